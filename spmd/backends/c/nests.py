"""Loop nests as C: one point at a time, in the order of the loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import Expression, MachineType
from spmd.backends.c.scalars import Library, Scope, c_type
from spmd.compiler.schedule.nest import FOLDED, Load, LoopReduction, Nest, Stage, Store, Update
from spmd.ir import Value

#: Elements of a long fold that are folded by themselves where that may be, which keeps the rounding of sums small.
_BLOCK = 256


class NestWriter:
    """Writes the loops of `nest` into `lines`; `pointer` gives the name of a value's memory as one of a type."""

    def __init__(
        self, nest: Nest, library: Library, lines: list[str], pointer: Callable[[Value, MachineType], str]
    ) -> None:
        self.nest, self.library, self.lines, self.pointer = nest, library, lines, pointer
        self.depth = 1
        self.names = (f"x{number}" for number in count())

    def write(self, comment: str) -> None:
        with self._block(f"/* {comment} */"), self._loops(self.nest.outer):
            for stage in self.nest.stages:
                with self._loops([variable for variable in stage.kept if variable not in self.nest.outer]):
                    self._point(stage)

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self._line("}")

    @contextmanager
    def _loops(self, variables: Sequence[Variable]) -> Iterator[None]:
        if not variables:
            yield
            return
        name = f"i{variables[0]}"
        head = f"for (int64_t {name} = 0; {name} < {self.nest.extents[variables[0]]}; {name}++)"
        with self._block(head), self._loops(variables[1:]):
            yield

    # --- points ---

    def _point(self, stage: Stage) -> None:
        if stage.reductions:
            self._folds(stage)
            return
        with self._scope(stage) as scope:
            self._store(scope, stage.stores)
            for update in stage.updates:
                self._update(stage, scope, update)

    @contextmanager
    def _scope(self, stage: Stage, folded: Sequence[str] = ()) -> Iterator[Scope]:
        """Where expressions of `stage` are written; the parameters from FOLDED on are `folded`."""
        scope = _StageScope(self, stage, folded)
        yield scope
        self.lines += scope.lines
        scope.lines.clear()

    def _store(self, scope: Scope, stores: Sequence[Store]) -> None:
        """Writes `stores`, all of which are computed before."""
        texts = scope.render([store.code for store in stores])
        places = [self.place(scope, store.value, store.address, store.code.type) for store in stores]
        scope.lines += [f"{scope.indent}{place} = {text};" for place, text in zip(places, texts, strict=True)]

    def place(self, scope: Scope, value: Value, address: Affine, type: MachineType) -> str:
        return f"{self.pointer(value, type)}[{self.number(scope, address)}]"

    def number(self, scope: Scope, form: Affine) -> str:
        """The number that `form` is, signed."""
        terms = [f"i{variable}" if factor == 1 else f"{factor} * i{variable}" for variable, factor in form.terms]
        for (_, factor), text in zip(form.dynamic, scope.render([part for part, _ in form.dynamic]), strict=True):
            terms.append(f"(int64_t){text}" if factor == 1 else f"{factor} * (int64_t){text}")
        if form.offset or not terms:
            terms.append(str(form.offset))
        return " + ".join(terms).replace("+ -", "- ")

    def _update(self, stage: Stage, scope: Scope, update: Update) -> None:
        """What stands in memory is read, combined and written, point after point."""
        indent = scope.indent
        if update.mask is not None:
            scope.lines.append(f"{indent}if ({scope.render([update.mask])[0]}) {{")
            scope.indent += "  "
        names = dict(scope.names)
        places = [self.place(scope, value, address, code.type) for value, address, code in update.writes]
        old = [scope.variable(each.type, place) for each, place in zip(update.old, places, strict=True)]
        scope.names |= dict(zip(update.old, old, strict=True))
        texts = scope.render([code for _, _, code in update.writes])
        texts = [scope.variable(code.type, text) for (_, _, code), text in zip(update.writes, texts, strict=True)]
        scope.lines += [f"{scope.indent}{place} = {text};" for place, text in zip(places, texts, strict=True)]
        scope.names, scope.indent = names, indent
        if update.mask is not None:
            scope.lines.append(f"{indent}}}")

    # --- folds ---

    def _folds(self, stage: Stage) -> None:
        """The folds at one point of the loops that are kept."""
        totals = self._start(stage, "total", lambda reduction: reduction.initial)
        *outer, last = stage.reduced or (None,)
        blocked = all(reduction.neutral is not None for reduction in stage.reductions)
        with self._loops([variable for variable in outer if variable is not None]):
            if last is None:
                self._fold(stage, totals)
            elif blocked and self.nest.extents[last] > 2 * _BLOCK:
                self._blocks(stage, last, totals)
            else:
                with self._loops([last]):
                    self._fold(stage, totals)
        names = iter(totals)
        for reduction in stage.reductions:
            with self._scope(stage, [next(names) for _ in reduction.initial]) as scope:
                self._store(scope, reduction.stores)

    def _start(
        self, stage: Stage, stem: str, first: Callable[[LoopReduction], tuple[Expression, ...] | None]
    ) -> list[str]:
        """Variables with what the folds start from."""
        names: list[str] = []
        for reduction in stage.reductions:
            with self._scope(stage) as scope:
                for text, code in zip(scope.render(first(reduction) or ()), first(reduction) or (), strict=True):
                    names.append(f"{stem}{len(names)}")
                    scope.lines.append(f"{scope.indent}{c_type(code.type)} {names[-1]} = {text};")
        return names

    def _blocks(self, stage: Stage, last: Variable, totals: list[str]) -> None:
        end, name = self.nest.extents[last], f"i{last}"
        with self._block(f"for (int64_t begin = 0; begin < {end}; begin += {_BLOCK})"):
            self._line(f"const int64_t end = begin + {_BLOCK} < {end} ? begin + {_BLOCK} : {end};")
            parts = self._start(stage, "part", lambda reduction: reduction.neutral)
            with self._block(f"for (int64_t {name} = begin; {name} < end; {name}++)"):
                self._fold(stage, parts)
            names = iter(zip(totals, parts, strict=True))
            for reduction in stage.reductions:
                pairs = [next(names) for _ in reduction.initial]
                self._combine(stage, reduction, [pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def _fold(self, stage: Stage, totals: Sequence[str]) -> None:
        """What is done at one point of the loops that are folded."""
        names = iter(totals)
        for reduction in stage.reductions:
            self._combine(stage, reduction, [next(names) for _ in reduction.initial])
        with self._scope(stage) as scope:
            self._store(scope, stage.stores)

    def _combine(
        self, stage: Stage, reduction: LoopReduction, totals: Sequence[str], new: Sequence[str] | None = None
    ) -> None:
        """Folds `new`, or what is at this point, into `totals`."""
        with self._scope(stage) as scope:
            texts = [
                    scope.variable(code.type, text)
                    for code, text in zip(reduction.inputs, scope.render(reduction.inputs), strict=True)
                ] if new is None else list(new)  # fmt: skip
            inner = _StageScope(self, stage, [*totals, *texts])
            results = inner.render(reduction.combine)
            results = results if len(results) == 1 else [
                    inner.variable(code.type, text) for code, text in zip(reduction.combine, results, strict=True)
                ]  # fmt: skip
            scope.lines += inner.lines
            scope.lines += [f"{scope.indent}{t} = {r};" for t, r in zip(totals, results, strict=True)]


class _StageScope(Scope):
    """Expressions of a stage: parameters are what it loads, loop variables, or folded values."""

    def __init__(self, nests: NestWriter, stage: Stage, folded: Sequence[str]) -> None:
        super().__init__(nests.library, self._parameter, "  " * nests.depth)
        self._nests, self._stage, self._folded = nests, stage, folded

    def fresh(self) -> str:
        return next(self._nests.names)

    def _parameter(self, node: Expression) -> str:
        assert isinstance(node.attribute, int)
        if node.attribute >= FOLDED:
            return self._folded[node.attribute - FOLDED]
        leaf = self._stage.leaves[node.attribute]
        if not isinstance(leaf, Load):
            return f"(uint64_t)({self._nests.number(self, leaf.form)})"
        place = self._nests.place(self, leaf.value, leaf.address, leaf.type)
        if leaf.mask is not None:
            place = f"{self.render([leaf.mask])[0]} ? {place} : 0"
        return self.variable(leaf.type, place)
