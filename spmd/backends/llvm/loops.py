"""Loop nests as LLVM's text.

One loop of a stage, the lane loop, is run many points at a time: what depends on its variable is a vector with a lane
for each, all else is a scalar. The lane loop is the last of the dimensions in memory order, so that lanes are
neighbours; where that dimension is folded the lanes hold partial results, which are folded in a tree at the end. The
association of a reduction so follows from its length alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import I1, I64, Expression, MachineType, Primitive, walk
from spmd.backends.llvm.scalars import render_node
from spmd.backends.llvm.text import FunctionText
from spmd.backends.llvm.writer import constant_text, llvm_type, suffix
from spmd.compiler.schedule.nest import FOLDED, Load, Nest, Position, Reduction, Stage, Store, Update
from spmd.ir import Value

#: Lanes of a loop that computes elements, and of one that folds them.
LANES, FOLDING_LANES = 16, 64
#: Elements that are folded one after another, and turns of a loop that are folded by themselves.
FEW, BLOCK = 16, 64
#: Points of a nest that is written out without any loop.
WRITTEN_OUT = 16


@dataclass(frozen=True, slots=True)
class Rendered:
    """A value in the text: its name, whether it has an entry for each lane, and the depth of the scope that has it."""

    name: str
    is_vector: bool
    depth: int


class NestWriter:
    """Writes the loops of one nest at the end of the innermost scope of `text`.

    `pointer` gives the name of the buffer of a value.
    """

    def __init__(self, nest: Nest, text: FunctionText, pointer: Callable[[Value], str]) -> None:
        self.nest = nest
        self.text = text
        self.pointer = pointer
        self.base = text.depth
        #: Where a variable stands: a name or a number, and the depth of the scope in which it is fixed.
        self.variables: dict[Variable, tuple[str, int]] = {}
        self.stage = nest.stages[0]
        #: What the nest itself writes is read within the loops that its stages share, however it is addressed.
        self.written = {store.value for store in nest.stores()}
        self.shared_depth = text.depth
        self.lane: Variable | None = None
        self.width = 1
        #: Lanes that stand for points, where not all of them do.
        self.valid: int | None = None

    def write(self) -> None:
        self._outer(self.nest.outer)

    def _outer(self, variables: Sequence[Variable]) -> None:
        """The loops that the stages share."""
        if variables:
            self._loop(variables[0], self.nest.extents[variables[0]], 1, lambda: self._outer(variables[1:]))
            return
        self.shared_depth = self.text.depth
        for stage in self.nest.stages:
            if all(self.nest.extents[variable] for variable in stage.kept):
                self.stage = stage
                self._stage(stage)

    # --- loops ---

    def _stage(self, stage: Stage) -> None:
        inside = [variable for variable in stage.loops if variable not in self.nest.outer]
        points = prod(self.nest.extents[variable] for variable in inside)
        if not points and not stage.reductions:
            return
        self.lane, self.width = self._lanes(stage, points)
        written_out = points <= WRITTEN_OUT

        def at_point() -> None:
            if stage.reductions:
                self._fold(stage, written_out)
            else:
                self._store_all(stage.stores, {})
                for update in stage.updates:
                    self._update(update)

        with self.text.part():
            self._loops([v for v in stage.kept if v not in self.nest.outer], at_point, written_out)

    def _lanes(self, stage: Stage, points: int) -> tuple[Variable | None, int]:
        """The lane loop, and how many of its points are taken at a time."""
        if points <= 1:
            return None, 1
        among = stage.loops
        kept = tuple(variable for variable in stage.kept if variable not in self.nest.outer)
        if stage.reductions and (self._length(stage) <= FEW or any(r.neutral is None for r in stage.reductions)):
            among = kept  # elements are folded in their order
        if stage.updates:
            among = tuple(variable for variable in stage.loops[-1:] if variable in stage.side_by_side)
        if not set(among) - set(self.nest.outer):
            return None, 1
        lane = max(among)
        extent = self.nest.extents[lane]
        most = FOLDING_LANES if stage.reductions and lane == max(stage.loops) else LANES
        width = 1
        while width < most and width < extent:
            width *= 2
        if points <= WRITTEN_OUT and (width != extent or points != extent):
            return None, 1
        return lane, width

    def _length(self, stage: Stage) -> int:
        """How many elements each fold has."""
        return prod(self.nest.extents[variable] for variable in stage.reduced)

    def _loops(self, variables: Sequence[Variable], body: Callable[[], None], written_out: bool) -> None:
        """Loops over `variables`, outermost first, around what `body` writes."""
        if not variables:
            body()
            return
        variable, rest = variables[0], variables[1:]
        extent = self.nest.extents[variable]

        def inside() -> None:
            self._loops(rest, body, written_out)

        if variable == self.lane:
            self._lane_loop(variable, extent, inside)
        elif written_out:
            for number in range(extent):
                self._at(variable, str(number), inside)
        else:
            self._loop(variable, extent, 1, inside)

    def _loop(self, variable: Variable, stop: int, step: int, inside: Callable[[], None]) -> None:
        if stop == step:
            self._at(variable, "0", inside)
            return
        name, depth = self.text.open_loop()
        self.variables[variable] = (name, depth)
        inside()
        self.text.close_loop(stop, step)

    def _at(self, variable: Variable, number: str, inside: Callable[[], None]) -> None:
        """`inside` with the variable at one known place."""
        with self.text.part() as depth:
            self.variables[variable] = (number, depth)
            inside()

    def _lane_loop(self, variable: Variable, extent: int, inside: Callable[[], None]) -> None:
        rest = extent % self.width
        whole = extent - rest
        if whole:
            self._loop(variable, whole, self.width, inside)
        if rest:
            self.valid = rest
            self._at(variable, str(whole), inside)
            self.valid = None

    # --- reductions ---

    def _fold(self, stage: Stage, written_out: bool) -> None:
        """All that is done at one point of the loops that are not folded: folds, from their start to their results."""
        across = self.lane is not None and self.lane in stage.reduced
        width = self.width if self.lane is not None else 1
        slots = [self._start(reduction, across, width) for reduction in stage.reductions]

        def step() -> None:
            for reduction, names in zip(stage.reductions, slots, strict=True):
                self._step(reduction, names, across, width)
            self._store_all(stage.stores, {})

        if all(self.nest.extents[variable] for variable in stage.reduced):
            last = stage.reduced[-1] if stage.reduced else None
            if last is not None and self._is_long(stage, last):
                self._loops(stage.reduced[:-1], lambda: self._blocks(stage, last, slots, width), written_out)
            else:
                self._loops(stage.reduced, step, written_out)
        for reduction, names in zip(stage.reductions, slots, strict=True):
            types = [expression.type for expression in reduction.initial]
            totals = [
                self.text.value(f"load {llvm_type(type, width)}, ptr {slot}")
                for type, slot in zip(types, names, strict=True)
            ]
            if across:
                totals = self._folded_lanes(reduction, totals, width)
                starts = [self.render(part).name for part in reduction.initial]
                totals = self._combined(reduction, starts, totals, 1)
            bindings = self._bindings(totals, vector=not across and width > 1)
            self._store_all(reduction.stores, bindings)

    def _start(self, reduction: Reduction, across: bool, width: int) -> list[str]:
        """Room for what is folded, with what it starts from."""
        slots = [self.text.allocate(llvm_type(first.type, width)) for first in reduction.initial]
        if across:
            assert reduction.neutral is not None
        self._reset(slots, reduction.neutral if across and reduction.neutral else reduction.initial, width)
        return slots

    def _reset(self, slots: Sequence[str], values: Sequence[Expression], width: int) -> None:
        for slot, value in zip(slots, values, strict=True):
            name = self.at_width(self.render(value), value.type, width, value)
            self.text.line(f"store {llvm_type(value.type, width)} {name}, ptr {slot}")

    def _is_long(self, stage: Stage, last: Variable) -> bool:
        """Whether the last loop of a fold is cut in blocks, each folded by itself, so that sums keep their digits."""
        turns = self.nest.extents[last] // (self.width if last == self.lane else 1)
        return turns >= 2 * BLOCK and all(reduction.neutral is not None for reduction in stage.reductions)

    def _blocks(self, stage: Stage, last: Variable, totals: Sequence[list[str]], width: int) -> None:
        """The last loop of a fold in blocks, and blocks of blocks, whose results are folded into `totals`."""
        turn = self.width if last == self.lane else 1
        levels = [BLOCK * turn]
        while self.nest.extents[last] >= 2 * BLOCK * levels[-1]:
            levels.append(levels[-1] * BLOCK)
        self._fold_range(stage, last, "0", self.nest.extents[last], levels, totals, width)

    def _fold_range(
        self,
        stage: Stage,
        last: Variable,
        start: str,
        length: int,
        levels: Sequence[int],
        totals: Sequence[list[str]],
        width: int,
    ) -> None:
        """Folds `length` places from `start` on into `totals`: through blocks of the last of `levels`, if any."""
        if not levels:
            self._fold_turns(stage, last, start, length, totals, width)
            return
        size = levels[-1]
        parts = [
            [self.text.allocate(llvm_type(first.type, width)) for first in reduction.initial]
            for reduction in stage.reductions
        ]

        def block(begin: str, places: int) -> None:
            for reduction, slots in zip(stage.reductions, parts, strict=True):
                assert reduction.neutral is not None
                self._reset(slots, reduction.neutral, width)
            self._fold_range(stage, last, begin, places, levels[:-1], parts, width)
            for reduction, slots, total in zip(stage.reductions, parts, totals, strict=True):
                self._merge(reduction, total, slots, width)

        whole = length // size
        if whole:
            name, _ = self.text.open_loop()
            block(self._plus(start, name), size)
            self.text.close_loop(whole * size, size)
        if length % size:
            with self.text.part():
                block(self._plus(start, str(whole * size)), length % size)

    def _fold_turns(
        self, stage: Stage, last: Variable, start: str, length: int, slots: Sequence[list[str]], width: int
    ) -> None:
        across = last == self.lane
        turn = self.width if across else 1

        def step() -> None:
            for reduction, names in zip(stage.reductions, slots, strict=True):
                self._step(reduction, names, across, width)
            self._store_all(stage.stores, {})

        rest = length % turn
        if length >= turn:
            name, depth = self.text.open_loop()
            self.variables[last] = (self._plus(start, name), depth)
            step()
            self.text.close_loop(length - rest, turn)
        if rest:
            self.valid = rest
            with self.text.part() as depth:
                self.variables[last] = (self._plus(start, str(length - rest)), depth)
                step()
            self.valid = None

    def _plus(self, first: str, second: str) -> str:
        """The sum of two places, names or numbers."""
        if "%" not in first + second:
            return str(int(first) + int(second))
        if first == "0":
            return second
        return self.text.value(f"add nuw nsw i64 {first}, {second}")

    def _merge(self, reduction: Reduction, total: Sequence[str], slots: Sequence[str], width: int) -> None:
        """Folds what is in `slots` into `total`."""
        types = [llvm_type(first.type, width) for first in reduction.initial]
        names = [
            self.text.value(f"load {type}, ptr {slot}")
            for slot, type in zip((*total, *slots), (*types, *types), strict=True)
        ]
        combined = self._combined(reduction, names[: len(types)], names[len(types) :], width)
        for slot, type, value in zip(total, types, combined, strict=True):
            self.text.line(f"store {type} {value}, ptr {slot}")

    def _step(self, reduction: Reduction, slots: Sequence[str], across: bool, width: int) -> None:
        inputs = [self.at_width(self.render(part), part.type, width) for part in reduction.inputs]
        types = [llvm_type(part.type, width) for part in reduction.inputs]
        before = [self.text.value(f"load {type}, ptr {slot}") for type, slot in zip(types, slots, strict=True)]
        after = self._combined(reduction, before, inputs, width)
        for slot, type, old, new in zip(slots, types, before, after, strict=True):
            if across and self.valid is not None:
                new = self.text.value(f"select <{width} x i1> {self._valid_lanes()}, {type} {new}, {type} {old}")
            self.text.line(f"store {type} {new}, ptr {slot}")

    def _combined(self, reduction: Reduction, first: Sequence[str], second: Sequence[str], width: int) -> list[str]:
        """The region applied to folded values of `width` lanes."""
        bindings = self._bindings([*first, *second], vector=width > 1)
        writer = _Bound(self, bindings, width)
        return [writer.render(part) for part in reduction.combine]

    def _folded_lanes(self, reduction: Reduction, totals: list[str], width: int) -> list[str]:
        """One value of all lanes: halves are combined with halves."""
        types = [part.type for part in reduction.initial]
        while width > 1:
            half = width // 2
            halves = []
            for start in (0, half):
                for type, name in zip(types, totals, strict=True):
                    if half > 1:
                        made = shuffled(name, None, type, width, range(start, start + half), self.text.value)
                    else:
                        made = self.text.value(f"extractelement {llvm_type(type, width)} {name}, i64 {start}")
                    halves.append(made)
            totals = self._combined(reduction, halves[: len(types)], halves[len(types) :], half)
            width = half
        return totals

    def _bindings(self, names: Sequence[str], *, vector: bool) -> dict[int, Rendered]:
        return {FOLDED + number: Rendered(name, vector, self.text.depth) for number, name in enumerate(names)}

    # --- values ---

    def render(self, expression: Expression) -> Rendered:
        """The value of `expression`, written where all that it depends on is known, once."""
        key = (self.stage, expression)
        found = self.text.find(key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        stack = [expression]
        while stack:
            node = stack[-1]
            if self.text.find((self.stage, node)) is not None:
                stack.pop()
                continue
            missing = [operand for operand in node.operands if self.text.find((self.stage, operand)) is None]
            if missing:
                stack += missing
                continue
            stack.pop()
            made = self._render_node(node)
            self.text.keep((self.stage, node), made, made.depth)
        return self.text.find(key)  # type: ignore[no-any-return]

    def _render_node(self, node: Expression) -> Rendered:
        if node.primitive is Primitive.CONSTANT:
            return Rendered(constant_text(node, 1), False, self.base)
        if node.primitive is Primitive.PARAMETER:
            assert isinstance(node.attribute, int)
            leaf = self.stage.leaves[node.attribute]
            return self._load(leaf) if isinstance(leaf, Load) else self._position(leaf)
        operands = [self.text.find((self.stage, operand)) for operand in node.operands]
        return self.apply(node, operands)

    def apply(self, node: Expression, operands: Sequence[Rendered]) -> Rendered:
        """The node on rendered operands."""
        vector = any(operand.is_vector for operand in operands)
        depth = max((operand.depth for operand in operands), default=self.base)
        width = self.width if vector else 1
        names = [
            self.at_width(operand, part.type, width, part)
            for operand, part in zip(operands, node.operands, strict=True)
        ]
        name = render_node(node, names, width, lambda text: self.text.value(text, depth), self.text.callees)
        return Rendered(name, vector, depth)

    def at_width(self, value: Rendered, type: MachineType, width: int, node: Expression | None = None) -> str:
        """The name of a value as a vector of `width` equal lanes, where it is none yet."""
        if value.is_vector or width == 1:
            return value.name
        if node is not None and node.primitive is Primitive.CONSTANT:
            return constant_text(node, width)
        key = ("splat", value.name, type, width)
        found = self.text.find(key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        scalar, vector = llvm_type(type, 1), llvm_type(type, width)
        depth = value.depth
        one = self.text.value(f"insertelement {vector} poison, {scalar} {value.name}, i64 0", depth)
        name = self.text.value(f"shufflevector {vector} {one}, {vector} poison, <{width} x i32> zeroinitializer", depth)
        self.text.keep(key, name, depth)
        return name

    # --- places ---

    def _position(self, leaf: Position) -> Rendered:
        return self._affine(leaf.form)

    def _affine(self, form: Affine) -> Rendered:
        """The number that `form` is: a vector where it depends on the lane loop."""
        step = form.coefficient(self.lane) if self.lane is not None else 0
        lanes = [(self.render(part), factor) for part, factor in form.dynamic]
        start = self._start_of(form)
        if not step and not any(part.is_vector for part, _ in lanes):
            return start
        total = self.at_width(start, I64, self.width)
        depth = start.depth
        if step:
            offsets = ", ".join(f"i64 {step * lane}" for lane in range(self.width))
            total = self.text.value(f"add <{self.width} x i64> {total}, <{offsets}>", depth)
        for part, factor in lanes:
            if part.is_vector:
                depth = max(depth, part.depth)
                name = part.name
                if factor != 1:
                    factors = ", ".join([f"i64 {factor}"] * self.width)
                    name = self.text.value(f"mul <{self.width} x i64> {name}, <{factors}>", depth)
                total = self.text.value(f"add <{self.width} x i64> {total}, {name}", depth)
        return Rendered(total, True, depth)

    def _start_of(self, form: Affine) -> Rendered:
        """The number that `form` is for the first lane, but for what is computed for each lane."""
        parts: list[tuple[int, str, int]] = []
        offset = form.offset
        for variable, coefficient in form.terms:
            name, depth = self.variables[variable]
            if name.startswith("%"):
                parts.append((depth, name, coefficient))
            else:
                offset += int(name) * coefficient
                parts.append((depth, "0", 0))
        for expression, coefficient in form.dynamic:
            part = self.render(expression)
            if not part.is_vector:
                parts.append((part.depth, part.name, coefficient))
        parts.sort()
        total, depth = str(offset), self.base
        for where, name, coefficient in parts:
            depth = max(depth, where)
            if not coefficient:
                continue
            key = (self, "sum", total, name, coefficient)
            found = self.text.find(key)
            if found is None:
                scaled = name
                if coefficient != 1:
                    scaled = self.text.value(f"mul nsw i64 {name}, {coefficient}", depth)
                found = scaled if total == "0" else self.text.value(f"add nsw i64 {total}, {scaled}", depth)
                self.text.keep(key, found, depth)
            total = found
        return Rendered(total, False, depth)

    # --- memory ---

    def _load(self, load: Load, least: int = 0) -> Rendered:
        """What is in memory, read in the scope at depth `least` or further in."""
        mask = None if load.mask is None else self.render(load.mask)
        if load.value in self.written:
            least = max(least, self.shared_depth)
        pointer = self.pointer(load.value)
        type = llvm_type(load.type, 1)
        step = load.address.coefficient(self.lane) if self.lane is not None else 0
        gathered = any(self.render(part).is_vector for part, _ in load.address.dynamic)
        if not gathered and not step and (mask is None or not mask.is_vector):
            return self._load_one(load, pointer, type, mask, least)
        vector = llvm_type(load.type, self.width)
        needs_mask = mask is not None or self.valid is not None
        align = load.type.bits // 8
        if gathered or step != 1:
            form = self._affine(load.address)
            depth = max(form.depth, mask.depth if mask else 0, least)
            places = self.at_width(form, I64, self.width)
            pointers = self.text.value(f"getelementptr {type}, ptr {pointer}, <{self.width} x i64> {places}", depth)
            allowed = self._allowed(mask) if needs_mask else _all_lanes(self.width)
            name = f"llvm.masked.gather.{suffix(load.type, self.width)}.{suffix('p0', self.width)}"
            call = (
                f"call {vector} @{name}(<{self.width} x ptr> align {align} {pointers}, "
                f"<{self.width} x i1> {allowed}, {vector} zeroinitializer)"
            )
            return Rendered(self.text.value(call, depth), True, depth)
        start = self._start_of(load.address)
        depth = max(start.depth, mask.depth if mask else 0, least)
        number = self._touched(start.name, mask, depth)
        place = self.text.value(f"getelementptr {type}, ptr {pointer}, i64 {number}", depth)
        if not needs_mask:
            return Rendered(self.text.value(f"load {vector}, ptr {place}, align {align}", depth), True, depth)
        name = f"llvm.masked.load.{suffix(load.type, self.width)}.p0"
        text = (
            f"call {vector} @{name}(ptr align {align} {place}, <{self.width} x i1> {self._allowed(mask)}, "
            f"{vector} zeroinitializer)"
        )
        return Rendered(self.text.value(text, depth), True, depth)

    def _touched(self, number: str, mask: Rendered | None, depth: int) -> str:
        """The place of the first lane, or 0 where no lane is read or written.

        Processors take long over places that are in no memory, also where a mask keeps them from being touched.
        """
        if mask is None:
            return number
        lane = mask.name
        if mask.is_vector:
            kind = f"<{self.width} x i1>"
            lane = self.text.value(f"call i1 @llvm.vector.reduce.or.v{self.width}i1({kind} {mask.name})", depth)
        return self.text.value(f"select i1 {lane}, i64 {number}, i64 0", depth)

    def _load_one(self, load: Load, pointer: str, type: str, mask: Rendered | None, least: int) -> Rendered:
        """One value for all lanes. Where the mask does not hold the first of the buffer is read instead."""
        start = self._start_of(load.address)
        depth = max(start.depth, mask.depth if mask else 0, least)
        number = start.name
        if mask is not None:
            number = self.text.value(f"select i1 {mask.name}, i64 {number}, i64 0", depth)
        place = pointer
        if number != "0":
            place = self.text.value(f"getelementptr {type}, ptr {pointer}, i64 {number}", depth)
        return Rendered(self.text.value(f"load {type}, ptr {place}", depth), False, depth)

    def _allowed(self, mask: Rendered | None) -> str:
        """The lanes that may be read: those that stand for points, and of those the ones for which `mask` holds."""
        if mask is None:
            return self._valid_lanes()
        lanes = self.at_width(mask, I1, self.width)
        if self.valid is None:
            return lanes
        return self.text.value(f"and <{self.width} x i1> {lanes}, {self._valid_lanes()}", mask.depth)

    def _valid_lanes(self) -> str:
        assert self.valid is not None
        return "<" + ", ".join(f"i1 {'true' if lane < self.valid else 'false'}" for lane in range(self.width)) + ">"

    def _store_all(self, stores: Sequence[Store], bindings: Mapping[int, Rendered]) -> None:
        """Writes values; `bindings` are the parameters of what reductions give."""
        for store in stores:
            if bindings:
                vector = any(value.is_vector for value in bindings.values())
                name = _Bound(self, bindings, self.width if vector else 1).render(store.code)
                self._store(store, Rendered(name, vector, self.text.depth))
            else:
                self._store(store, self.render(store.code))

    def _update(self, update: Update) -> None:
        """Reads what stands in memory now, and writes what takes its place."""
        mask = None if update.mask is None else self.render(update.mask)
        loads = [
            Load(value, address, code.type, update.mask)
            for (value, address, _), code in zip(update.writes, update.old, strict=True)
        ]
        before = [self._load(load, self.text.depth) for load in loads]
        vector = any(value.is_vector for value in before)
        bindings = {
            FOLDED + number: Rendered(self.at_width(value, load.type, self.width if vector else 1), vector, 0)
            for number, (value, load) in enumerate(zip(before, loads, strict=True))
        }
        bound = _Bound(self, bindings, self.width if vector else 1)
        codes = [bound.render(code) for _, _, code in update.writes]
        for (value, address, code), name in zip(update.writes, codes, strict=True):
            self._store(Store(value, address, code), Rendered(name, vector, self.text.depth), mask)

    def _store(self, store: Store, value: Rendered, mask: Rendered | None = None) -> None:
        type = llvm_type(store.code.type, 1)
        pointer = self.pointer(store.value)
        step = store.address.coefficient(self.lane) if self.lane is not None else 0
        varies = any(self.render(part).is_vector for part, _ in store.address.dynamic)
        if not step and not varies:
            first = self._start_of(store.address)
            place = pointer
            if first.name != "0":
                place = self.text.value(f"getelementptr {type}, ptr {pointer}, i64 {first.name}")
            if mask is not None:  # what is outside is written where nobody looks
                nowhere = self.text.allocate(type, 8)
                place = self.text.value(f"select i1 {mask.name}, ptr {place}, ptr {nowhere}")
            self.text.line(f"store {type} {value.name}, ptr {place}")
            return
        align = store.code.type.bits // 8
        vector = llvm_type(store.code.type, self.width)
        name = self.at_width(value, store.code.type, self.width, store.code)
        if step == 1 and not varies:
            start = self._start_of(store.address)
            number = self._touched(start.name, mask, self.text.depth)
            place = self.text.value(f"getelementptr {type}, ptr {pointer}, i64 {number}")
            if self.valid is None and mask is None:
                self.text.line(f"store {vector} {name}, ptr {place}, align {align}")
                return
            function = f"llvm.masked.store.{suffix(store.code.type, self.width)}.p0"
            self.text.line(
                f"call void @{function}({vector} {name}, ptr align {align} {place}, "
                f"<{self.width} x i1> {self._allowed(mask)})"
            )
            return
        places = self.at_width(self._affine(store.address), I64, self.width)
        pointers = self.text.value(f"getelementptr {type}, ptr {pointer}, <{self.width} x i64> {places}")
        allowed = _all_lanes(self.width) if self.valid is None and mask is None else self._allowed(mask)
        function = f"llvm.masked.scatter.{suffix(store.code.type, self.width)}.{suffix('p0', self.width)}"
        self.text.line(
            f"call void @{function}({vector} {name}, <{self.width} x ptr> align {align} {pointers}, "
            f"<{self.width} x i1> {allowed})"
        )


class _Bound:
    """Expressions whose parameters are bound to values: what regions of reductions are."""

    def __init__(self, writer: NestWriter, bindings: Mapping[int, Rendered], width: int) -> None:
        self._writer = writer
        self._bindings = bindings
        self._width = width
        self._made: dict[Expression, str] = {}

    def render(self, root: Expression) -> str:
        """The name of the value of `root`, written at the end of the innermost scope."""
        text = self._writer.text
        for node in walk([root]):
            if node in self._made:
                continue
            if node.primitive is Primitive.CONSTANT:
                self._made[node] = constant_text(node, self._width)
            elif node.primitive is Primitive.PARAMETER:
                assert isinstance(node.attribute, int)
                self._made[node] = self._parameter(node, node.attribute)
            else:
                names = [self._made[operand] for operand in node.operands]
                self._made[node] = render_node(node, names, self._width, text.value, text.callees)
        return self._made[root]

    def _parameter(self, node: Expression, number: int) -> str:
        bound = self._bindings.get(number)
        if bound is not None:
            return bound.name
        captured = self._writer.render(node)
        return self._writer.at_width(captured, node.type, self._width)


def _all_lanes(width: int) -> str:
    return "<" + ", ".join(["i1 true"] * width) + ">"


def shuffled(
    first: str, second: str | None, type: MachineType, width: int, lanes: Sequence[int], emit: Callable[[str], str]
) -> str:
    """The vector of `lanes` of one or two vectors of `width` lanes."""
    vector = llvm_type(type, width)
    places = ", ".join(f"i32 {lane}" for lane in lanes)
    return emit(f"shufflevector {vector} {first}, {vector} {second or 'poison'}, <{len(lanes)} x i32> <{places}>")
