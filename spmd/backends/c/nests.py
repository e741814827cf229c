"""Loop nests as C: scalar loops, in loop order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import Expression, MachineType
from spmd.backends.c.scalars import ExpressionScope, FunctionLibrary, c_type
from spmd.compiler.schedule.nest import FOLDED, Load, LoopReduction, Nest, Stage, Store, Update
from spmd.ir import Value

#: Elements per block of long reductions that may be reassociated, to limit rounding errors.
_BLOCK = 256


class NestWriter:
    """Emits the loops of `nest`; `pointer` returns the C name of a value's memory, as a pointer to a type."""

    def __init__(self, nest: Nest, library: FunctionLibrary, pointer: Callable[[Value, MachineType], str]) -> None:
        self.nest, self.library, self.pointer = nest, library, pointer
        self.numbers = count()

    def lines(self) -> list[str]:
        inner: list[str] = []
        for stage in self.nest.stages:
            loops = [variable for variable in stage.parallel if variable not in self.nest.outer]
            inner += self._loops(loops, self._folds(stage) if stage.reductions else self._point(stage))
        return self._loops(self.nest.outer, inner)

    def _loops(self, variables: Sequence[Variable], inner: Sequence[str]) -> list[str]:
        extents = self.nest.extents
        heads = [f"for (int64_t i{each} = 0; i{each} < {extents[each]}; i{each}++) {{" for each in variables]
        return [*heads, *inner, *("}" for _ in heads)]

    def _point(self, stage: Stage) -> list[str]:
        scope = StageScope(self, stage)
        scope.store(stage.stores)
        for update in stage.updates:
            scope.update(update)
        return scope.lines

    def _folds(self, stage: Stage) -> list[str]:
        """Return the reductions at one point of the parallel loops."""
        before, after, loops = StageScope(self, stage), StageScope(self, stage), stage.reduced
        totals = [before.start("total", reduction.initial) for reduction in stage.reductions]
        is_long = bool(loops) and self.nest.extents[loops[-1]] > 2 * _BLOCK
        if is_long and all(reduction.neutral is not None for reduction in stage.reductions):
            inner = self._loops(loops[:-1], self._blocks(stage, loops[-1], totals))
        else:
            inner = self._loops(loops, self._fold(stage, totals))
        for reduction, names in zip(stage.reductions, totals, strict=True):
            after.names, after.folded = {}, names
            after.store(reduction.stores)
        return [*before.lines, *inner, *after.lines]

    def _blocks(self, stage: Stage, last: Variable, totals: Sequence[Sequence[str]]) -> list[str]:
        """Return the innermost loop of reductions in blocks, whose results are combined into `totals`."""
        before, after, extent = StageScope(self, stage), StageScope(self, stage), self.nest.extents[last]
        parts = [before.start("part", reduction.neutral or ()) for reduction in stage.reductions]
        for reduction, names, part in zip(stage.reductions, totals, parts, strict=True):
            after.combine(reduction, names, part)
        return [
            f"for (int64_t begin = 0; begin < {extent}; begin += {_BLOCK}) {{",
            f"const int64_t end = begin + {_BLOCK} < {extent} ? begin + {_BLOCK} : {extent};",
            *before.lines,
            f"for (int64_t i{last} = begin; i{last} < end; i{last}++) {{",
            *self._fold(stage, parts),
            "}",
            *after.lines,
            "}",
        ]

    def _fold(self, stage: Stage, totals: Sequence[Sequence[str]]) -> list[str]:
        """Return the code at one point of the reduced loops."""
        scope = StageScope(self, stage)
        for reduction, names in zip(stage.reductions, totals, strict=True):
            scope.combine(reduction, names, scope.variables(reduction.inputs))
        scope.store(stage.stores)
        return scope.lines


class StageScope(ExpressionScope):
    """Expressions of a stage: parameters are loads, affine forms, or accumulators (`folded`)."""

    def __init__(self, nests: NestWriter, stage: Stage) -> None:
        super().__init__(nests.library, self._parameter, nests.numbers)
        self._nests, self._stage = nests, stage
        self.folded: Sequence[str] = ()

    def _parameter(self, node: Expression) -> str:
        assert isinstance(node.attribute, int)
        if node.attribute >= FOLDED:
            return self.folded[node.attribute - FOLDED]
        leaf = self._stage.leaves[node.attribute]
        if not isinstance(leaf, Load):
            return f"(uint64_t)({self._number(leaf.form)})"
        element = self._element(leaf.value, leaf.address, leaf.type)
        return self.variable(leaf.type, f"{self.render([leaf.mask])[0]} ? {element} : 0" if leaf.mask else element)

    def _element(self, value: Value, address: Affine, type: MachineType) -> str:
        return f"{self._nests.pointer(value, type)}[{self._number(address)}]"

    def _number(self, form: Affine) -> str:
        """Return the value of `form`, signed."""
        computed = self.render([part for part, _ in form.dynamic])
        terms = [(f"i{variable}", factor) for variable, factor in form.terms]
        terms += [(f"(int64_t){text}", factor) for text, (_, factor) in zip(computed, form.dynamic, strict=True)]
        texts = [text if factor == 1 else f"{factor} * {text}" for text, factor in terms]
        return " + ".join(texts + [str(form.offset)] * (form.offset != 0 or not texts)).replace("+ -", "- ")

    def variables(self, codes: Sequence[Expression]) -> list[str]:
        """Return variables with the values of `codes`."""
        return [self.variable(code.type, text) for code, text in zip(codes, self.render(codes), strict=True)]

    def start(self, stem: str, first: Sequence[Expression]) -> list[str]:
        """Declare accumulators with their initial values."""
        names = [f"{stem}{next(self._nests.numbers)}" for _ in first]
        for name, code, text in zip(names, first, self.render(first), strict=True):
            self.lines.append(f"{c_type(code.type)} {name} = {text};")
        return names

    def assign(self, places: Sequence[str], codes: Sequence[Expression]) -> None:
        """Assign `codes`, all evaluated before."""
        texts = self.variables(codes) if len(codes) > 1 else self.render(codes)
        self.lines += [f"{place} = {text};" for place, text in zip(places, texts, strict=True)]

    def store(self, stores: Sequence[Store]) -> None:
        self.assign([self._element(s.value, s.address, s.code.type) for s in stores], [s.code for s in stores])

    def combine(self, reduction: LoopReduction, totals: Sequence[str], new: Sequence[str]) -> None:
        """Combine `new` into the accumulators `totals`."""
        outside, self.names, self.folded = self.names, {}, [*totals, *new]
        self.assign(totals, reduction.combine)
        self.names = outside

    def update(self, update: Update) -> None:
        """Emit a read-modify-write."""
        outside = dict(self.names)
        self.lines.append(f"if ({self.render([update.mask])[0]}) {{" if update.mask is not None else "{")
        places = [self._element(value, address, code.type) for value, address, code in update.writes]
        old = [self.variable(each.type, place) for each, place in zip(update.old, places, strict=True)]
        self.names |= dict(zip(update.old, old, strict=True))
        self.assign(places, [code for _, _, code in update.writes])
        self.lines.append("}")
        self.names = outside
