"""Values at the points of a loop nest, as LLVM IR.

Values that depend on the lane loop are vectors, others are scalars. Each value is emitted once, in the outermost scope
in which its operands are defined.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import I1, I64, Expression, MachineType, Primitive, walk
from spmd.backends.llvm.emit.scalars import render_node
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import constant_text, index_type, llvm_type, suffix
from spmd.backends.llvm.loops.point_context import Rendered
from spmd.backends.llvm.loops.strides import first_lanes, load_pieces, load_strided
from spmd.compiler.schedule.lanes import Lanes, is_shuffled
from spmd.compiler.schedule.nest import Load, Nest, Position
from spmd.ir import Value

#: Outer loop variables in an address beyond which their sum is made opaque: LLVM's loop strength reduction considers
#: all loops at once, which took a quarter of the compile time of deep nests without benefit.
_DEEP = 2


class ElementEmitter:
    """Emits values at the points of `nest`; the loop emitter sets `variables`.

    `pointer` returns the SSA name of the buffer of a value.
    """

    def __init__(self, nest: Nest, text: FunctionText, pointer: Callable[[Value], str]) -> None:
        self.nest = nest
        self.text = text
        self.pointer = pointer
        self.base = text.depth
        #: Value of each loop variable: an SSA name or a number, and the depth of the scope that defines it.
        self.variables: dict[Variable, tuple[str, int]] = {}
        self.stage = nest.stages[0]
        #: Values that the nest stores: their loads are not hoisted out of the shared loops.
        self.written = {store.value for store in nest.stores()}
        self.shared_depth = text.depth
        self.lanes = Lanes()
        #: Number of lanes that are not padding; None if all are valid.
        self.valid: int | None = None
        #: Loads, without masks, that are only valid in the scope at depth `guard` or deeper, whose condition guards
        #: them.
        self.guarded: Collection[Load] = ()
        self.guard = text.depth
        #: Loads that were transposed (loops/transposed.py): the slot of the block, and the index in it, or the variable
        #: that holds that.
        self.transposed: dict[Load, tuple[str, str | Variable]] = {}

    @property
    def lane(self) -> Variable | None:
        """The lane loop."""
        return self.lanes.variable

    @property
    def width(self) -> int:
        """The number of lanes of vectors."""
        return self.lanes.width

    # --- values ---

    def render(self, expression: Expression) -> Rendered:
        """Return the value of `expression`, emitted once."""
        key = (self.stage, expression)
        kept_register = self.text.find(key)
        if kept_register is not None:
            return kept_register  # type: ignore[no-any-return]
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
            new_register = self._render_node(node)
            self.text.keep((self.stage, node), new_register, new_register.depth)
        return self.text.find(key)  # type: ignore[no-any-return]

    def _render_node(self, node: Expression) -> Rendered:
        if node.primitive is Primitive.CONSTANT:
            return Rendered(constant_text(node, 1), False, self.base)
        if node.primitive is Primitive.PARAMETER:
            assert isinstance(node.attribute, int)
            leaf = self.stage.leaves[node.attribute]
            return self.load(leaf) if isinstance(leaf, Load) else self._position(leaf)
        operands = [self.text.find((self.stage, operand)) for operand in node.operands]
        return self.apply(node, operands)

    def apply(self, node: Expression, operands: Sequence[Rendered]) -> Rendered:
        """Return a node applied to rendered operands."""
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
        """Return the SSA name of a value, splatted to `width` lanes if it is a scalar."""
        if value.is_vector or width == 1:
            return value.name
        if node is not None and node.primitive is Primitive.CONSTANT:
            return constant_text(node, width)
        key = ("splat", value.name, type, width)
        depth = value.depth if value.name.startswith("%") else self.base  # a number is valid in every scope
        register = self.text.find(key, depth)
        if register is not None:
            return register  # type: ignore[no-any-return]
        scalar, vector = llvm_type(type, 1), llvm_type(type, width)
        one = self.text.value(f"insertelement {vector} poison, {scalar} {value.name}, i64 0", depth)
        name = self.text.value(f"shufflevector {vector} {one}, {vector} poison, <{width} x i32> zeroinitializer", depth)
        self.text.keep(key, name, depth)
        return name

    # --- indices ---

    def _position(self, leaf: Position) -> Rendered:
        return self.affine(leaf.form)

    def affine(self, form: Affine) -> Rendered:
        """Return the value of `form`: a vector if it depends on the lane loop."""
        places = self.lanes.offsets(form)
        lanes = [(self.render(part), factor) for part, factor in form.dynamic]
        start = self.start_of(form)
        if not any(places) and not any(part.is_vector for part, _ in lanes):
            return start
        total = self.at_width(start, I64, self.width)
        depth = start.depth
        if any(places):
            offsets = ", ".join(f"i64 {place}" for place in places)
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

    def start_of(self, form: Affine) -> Rendered:
        """Return the value of `form` at the first lane, without terms that are vectors."""
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
        total, depth, added = str(offset), self.base, 0
        for where, name, coefficient in parts:
            if added >= _DEEP and where > depth:
                total, added = self._opaque(total, depth), 0
            depth = max(depth, where)
            if not coefficient:
                continue
            added += 1
            key = (self, "sum", total, name, coefficient)
            register = self.text.find(key, depth)
            if register is None:
                scaled = name
                if coefficient != 1:
                    scaled = self.text.value(f"mul nsw i64 {name}, {coefficient}", depth)
                register = scaled if total == "0" else self.text.value(f"add nsw i64 {total}, {scaled}", depth)
                self.text.keep(key, register, depth)
            total = register
        return Rendered(total, False, depth)

    def _opaque(self, number: str, depth: int) -> str:
        """Return `number` frozen, so that LLVM does not analyze it."""
        key = (self, "opaque", number)
        register: str | None = self.text.find(key, depth)
        if register is None:
            register = self.text.value(f"freeze i64 {number}", depth)
            self.text.keep(key, register, depth)
        return register

    # --- memory ---

    def load(self, load: Load, least: int = 0) -> Rendered:
        """Return a loaded value, emitted in the scope at depth `least` or deeper."""
        mask = None if load.mask is None else self.render(load.mask)
        if load.value in self.written:
            least = max(least, self.shared_depth)
        if self.guarded and replace(load, mask=None) in self.guarded:
            least = max(least, self.guard)
        pointer = self.pointer(load.value)
        type = llvm_type(load.type, 1)
        if load in self.transposed:
            slot, number = self.transposed[load]
            name = number if isinstance(number, str) else self.variables[number][0]
            at = self.text.value(f"getelementptr {llvm_type(load.type, self.width)}, ptr {slot}, i64 {name}")
            vector = self.text.value(f"load {llvm_type(load.type, self.width)}, ptr {at}")
            return Rendered(vector, True, self.text.depth)
        step = self.lanes.step(load.address)
        gathered = any(self.render(part).is_vector for part, _ in load.address.dynamic)
        if not gathered and step == 0:
            return self._load_one(load, pointer, type, mask, least)
        vector = llvm_type(load.type, self.width)
        needs_mask = mask is not None or self.valid is not None
        align = load.type.bits // 8
        if not gathered and mask is None and step is None:
            depth = max(self.start_of(load.address).depth, least)
            return Rendered(load_pieces(self, load, pointer, depth), True, depth)
        if not gathered and mask is None and step is not None and is_shuffled(step):
            depth = max(self.start_of(load.address).depth, least)
            return Rendered(load_strided(self, load, pointer, step, depth), True, depth)
        if gathered or step != 1:
            depth, pointers = self._pointers(load, pointer, max(mask.depth if mask else 0, least))
            allowed = self.allowed(mask) if needs_mask else all_lanes(self.width)
            name = f"llvm.masked.gather.{suffix(load.type, self.width)}.{suffix('p0', self.width)}"
            call = (
                f"call {vector} @{name}(<{self.width} x ptr> align {align} {pointers}, "
                f"<{self.width} x i1> {allowed}, {vector} zeroinitializer)"
            )
            return Rendered(self.text.value(call, depth), True, depth)
        start = self.start_of(load.address)
        depth = max(start.depth, mask.depth if mask else 0, least)
        number = self.touched(start.name, mask, depth)
        place = self.text.value(f"getelementptr {type}, ptr {pointer}, i64 {number}", depth)
        if not needs_mask:
            return Rendered(self.text.value(f"load {vector}, ptr {place}, align {align}", depth), True, depth)
        name = f"llvm.masked.load.{suffix(load.type, self.width)}.p0"
        text = (
            f"call {vector} @{name}(ptr align {align} {place}, <{self.width} x i1> {self.allowed(mask)}, "
            f"{vector} zeroinitializer)"
        )
        return Rendered(self.text.value(text, depth), True, depth)

    def _pointers(self, load: Load, pointer: str, least: int) -> tuple[int, str]:
        """Return the depth and the vector of lane addresses: a base and constant offsets if no index is dynamic."""
        offsets = self.lanes.offsets(load.address)
        type, number = llvm_type(load.type, 1), index_type(max(map(abs, offsets)))
        if not any(self.render(part).is_vector for part, _ in load.address.dynamic):
            start = self.start_of(load.address)
            depth = max(start.depth, least)
            first = self.text.value(f"getelementptr {type}, ptr {pointer}, i64 {start.name}", depth)
            places = "<" + ", ".join(f"{number} {place}" for place in offsets) + ">"
            lanes = f"getelementptr {type}, ptr {first}, <{self.width} x {number}> {places}"
            return depth, self.text.value(lanes, depth)
        form = self.affine(load.address)
        depth = max(form.depth, least)
        places = self.at_width(form, I64, self.width)
        return depth, self.text.value(f"getelementptr {type}, ptr {pointer}, <{self.width} x i64> {places}", depth)

    def touched(self, number: str, mask: Rendered | None, depth: int) -> str:
        """Return the index of the first lane, or 0 if no lane is accessed.

        Processors are slow at unmapped addresses, even if a mask suppresses the access.
        """
        if mask is None:
            return number
        lane = self._any_lane(mask.name, depth) if mask.is_vector else mask.name
        return self.text.value(f"select i1 {lane}, i64 {number}, i64 0", depth)

    def _any_lane(self, lanes: str, depth: int) -> str:
        """Return the SSA name of the i1 that any of `lanes` is set."""
        return self.text.value(f"call i1 @llvm.vector.reduce.or.v{self.width}i1(<{self.width} x i1> {lanes})", depth)

    def _load_one(self, load: Load, pointer: str, type: str, mask: Rendered | None, least: int) -> Rendered:
        """Return one value for all lanes. If the mask does not hold, the first element of the buffer is
        loaded instead.
        """
        start = self.start_of(load.address)
        depth = max(start.depth, mask.depth if mask else 0, least)
        number = start.name
        if mask is not None:
            holds = self._any_lane(self.allowed(mask), mask.depth) if mask.is_vector else mask.name
            number = self.text.value(f"select i1 {holds}, i64 {number}, i64 0", depth)
        place = pointer
        if number != "0":
            place = self.text.value(f"getelementptr {type}, ptr {pointer}, i64 {number}", depth)
        return Rendered(self.text.value(f"load {type}, ptr {place}", depth), False, depth)

    def allowed(self, mask: Rendered | None) -> str:
        """Return the mask of lanes that may be accessed: valid ones for which `mask` holds."""
        if mask is None:
            return self.valid_lanes()
        lanes = self.at_width(mask, I1, self.width)
        if self.valid is None:
            return lanes
        return self.text.value(f"and <{self.width} x i1> {lanes}, {self.valid_lanes()}", mask.depth)

    def valid_lanes(self) -> str:
        assert self.valid is not None
        return first_lanes(self.width, self.valid)


#: x86 min and max depend on their first operand's latency first. In a reduction step that should be the new value,
#: since the accumulator is ready late: a column reduction takes half the time.
WAIT_FOR_FIRST = (Primitive.MAXIMUM, Primitive.MINIMUM)


class Bound:
    """Expressions with parameters bound to values: regions of reductions."""

    def __init__(self, writer: ElementEmitter, bindings: Mapping[int, Rendered], width: int) -> None:
        self._writer = writer
        self._bindings = bindings
        self._width = width
        self._registers: dict[Expression, str] = {}

    def render(self, root: Expression) -> str:
        """Return the SSA name of the value of `root`, emitted at the end of the innermost scope."""
        text = self._writer.text
        for node in walk([root]):
            if node in self._registers:
                continue
            if node.primitive is Primitive.CONSTANT:
                self._registers[node] = constant_text(node, self._width)
            elif node.primitive is Primitive.PARAMETER:
                assert isinstance(node.attribute, int)
                self._registers[node] = self._parameter(node, node.attribute)
            else:
                names = [self._registers[operand] for operand in node.operands]
                if node.primitive in WAIT_FOR_FIRST:
                    names.reverse()
                self._registers[node] = render_node(node, names, self._width, text.value, text.callees)
        return self._registers[root]

    def _parameter(self, node: Expression, number: int) -> str:
        bound = self._bindings.get(number)
        if bound is not None:
            return bound.name
        captured = self._writer.render(node)
        return self._writer.at_width(captured, node.type, self._width)


def all_lanes(width: int) -> str:
    return "<" + ", ".join(["i1 true"] * width) + ">"


def shuffled(
    first: str, second: str | None, type: MachineType, width: int, lanes: Sequence[int], emit: Callable[[str], str]
) -> str:
    """Return the vector of `lanes` of one or two vectors of `width` lanes."""
    vector = llvm_type(type, width)
    places = ", ".join(f"i32 {lane}" for lane in lanes)
    return emit(f"shufflevector {vector} {first}, {vector} {second or 'poison'}, <{len(lanes)} x i32> <{places}>")
