"""Prefix sums in native code: reduce_window whose windows extend from the first element, or to the last.

Lanes are independent sums if the dimension is not the last one; along the last dimension a vector is scanned in
log2(lanes) steps. Sums over blocks are kept separate from those within a block, for accuracy. Association depends on
the shape alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from spmd.analysis.constants import constant_scalar
from spmd.analysis.index_maps import element_type
from spmd.analysis.reducers import Monoid, monoid_of
from spmd.analysis.scalar.conversion import converted
from spmd.analysis.scalar.elements import decode, element_constant, encode, memory_types, register_types
from spmd.analysis.scalar.elementwise import compute
from spmd.analysis.scalar.expression import Expression, Primitive, parameter, walk
from spmd.analysis.windows import windows_of
from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import PlanTarget, native
from spmd.backends.llvm.emit.scalars import render_node
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.emit.writer import constant_text, llvm_type, suffix
from spmd.backends.llvm.loops.stores import store_lanes
from spmd.backends.llvm.loops.strides import first_lanes
from spmd.backends.llvm.parallel.tasks import call_by_iterations
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.rates import nanoseconds
from spmd.compiler.schedule.steps import LibraryCall
from spmd.compiler.schedule.target import LibraryPlan
from spmd.compiler.schedule.tasks import tasks_of_time
from spmd.dialects.make import make_op
from spmd.ir import Op, Value
from spmd.types import TensorType

_LANES = 16
#: Vectors of a block.
_BLOCK = 16


@dataclass(frozen=True)
class _Running:
    """Prefix sums along `length` elements, for `inner` contiguous and `outer` outer indices."""

    monoid: Monoid
    outer: int
    length: int
    inner: int
    backwards: bool

    def __str__(self) -> str:
        return f"{self.rows} prefix sums of {self.length}{' from the end' if self.backwards else ''}"

    @property
    def rows(self) -> int:
        """Rows, each with the sums of one vector of inner indices."""
        return self.outer * -(-self.inner // _LANES)


def _running(op: Op) -> _Running | None:
    """Return the prefix sums that `op` computes; None if it is no such window, or its initial value matters."""
    if len(op.results) != 1 or not all(is_plain(value.type) for value in (*op.operands, op.result)):
        return None
    monoid, shape = monoid_of(op.regions[0]), op.operands[0].tensor.static_shape
    axis = windows_of(op).cumulative_axis()
    if monoid is None or axis is None or monoid.identity is None or monoid.element.is_complex or not all(shape):
        return None
    if not monoid.idempotent and not _changes_nothing(op.operands[1], monoid):
        return None
    place, backwards = axis
    return _Running(monoid, prod(shape[:place]), shape[place], prod(shape[place + 1 :]), backwards)


def _changes_nothing(initial: Value, monoid: Monoid) -> bool:
    value = constant_scalar(initial)
    return value is not None and monoid.identity is not None and bool(value == monoid.identity)


def _plan(op: Op, machine: PlanTarget, image_bytes: int | None) -> LibraryPlan:
    running = _running(op)
    assert running is not None
    time = nanoseconds("scan", running.outer * running.length * running.inner)
    return LibraryPlan(min(running.rows, tasks_of_time(time, machine.threads)), form=running)


@native("stablehlo.reduce_window", lambda op: _running(op) is not None, _plan)
def _(writer: FunctionEmitter, step: LibraryCall) -> None:
    op, running = step.op, step.plan.form
    assert isinstance(running, _Running)
    pointers = [writer.pointer(value) for value in (*op.operands, op.result)]

    def write(text: FunctionText, pointer: Callable[[str], str], row: str) -> None:
        _TotalsWriter(text, op, running, list(map(pointer, pointers)), row).write()

    call_by_iterations(writer, running.rows, step.plan.tasks, write)


class _TotalsWriter:
    """Emits the sums of one row: of up to 16 inner indices, or of one."""

    def __init__(self, text: FunctionText, op: Op, running: _Running, pointers: list[str], row: str) -> None:
        self.text, self.op, self.running = text, op, running
        self.operand, self.initial, self.result = pointers
        self.element = running.monoid.accumulator
        (self.type,) = register_types(self.element)
        self.across = running.inner == 1
        extent = running.length if self.across else running.inner
        self.width = min(_LANES, 1 << (extent - 1).bit_length())
        self.origin = self._origin(row)

    def _origin(self, row: str) -> str:
        """Return the index of the row's first element."""
        text, running = self.text, self.running
        strips = -(-running.inner // _LANES)
        whole = running.length * running.inner
        if strips == 1:
            return text.value(f"mul i64 {row}, {whole}")
        strip = text.value(f"mul i64 {text.value(f'urem i64 {row}, {strips}')}, {_LANES}")
        # The last vector is moved back to end with the row, and recomputes elements of the previous one.
        strip = text.value(f"call i64 @llvm.umin.i64(i64 {strip}, i64 {running.inner - _LANES})")
        start = text.value(f"mul i64 {text.value(f'udiv i64 {row}, {strips}')}, {whole}")
        return text.value(f"add i64 {start}, {strip}")

    # --- vector expressions ---

    def _render(self, root: Expression, names: list[str], width: int) -> str:
        """Return the value of `root` with parameters `names`, on `width` lanes."""
        values: dict[Expression, str] = {}
        for node in walk([root]):
            if node.primitive is Primitive.CONSTANT:
                values[node] = constant_text(node, width)
            elif node.primitive is Primitive.PARAMETER:
                assert isinstance(node.attribute, int)
                values[node] = names[node.attribute]
            else:
                operands = [values[operand] for operand in node.operands]
                values[node] = render_node(node, operands, width, self.text.value, self.text.callees)
        return values[root]

    def _combined(self, first: str, second: str) -> str:
        """Return both combined; `first` precedes."""
        scalar = TensorType((), self.element)
        operands = [(parameter(0, self.type),), (parameter(1, self.type),)]
        results = compute(make_op(self.running.monoid.op, [Value(scalar), Value(scalar)], [scalar]), operands)
        assert results is not None, f"{self.running.monoid.op} of {scalar} has no scalar form"
        return self._render(results[0][0], [first, second], self.width)

    def _decoded(self, code: str, value: Value, width: int) -> str:
        element = element_type(value)
        (type,) = memory_types(element)
        (root,) = converted(decode((parameter(0, type),), element), element, self.element)
        return self._render(root, [code], width)

    def _load(self, place: str, valid: int) -> str:
        (type,) = memory_types(element_type(self.op.operands[0]))
        address = self.text.value(f"getelementptr {llvm_type(type)}, ptr {self.operand}, i64 {place}")
        vector, align = llvm_type(type, self.width), type.bits // 8
        if valid == self.width:
            code = self.text.value(f"load {vector}, ptr {address}, align {align}")
        else:
            code = self.text.value(
                f"call {vector} @llvm.masked.load.{suffix(type, self.width)}.p0(ptr align {align} {address}, "
                f"<{self.width} x i1> {first_lanes(self.width, valid)}, {vector} zeroinitializer)"
            )
        return self._decoded(code, self.op.operands[0], self.width)

    def _store(self, name: str, place: str, valid: int) -> None:
        element = element_type(self.op.result)
        (code,) = encode(converted((parameter(0, self.type),), self.element, element), element)
        code_name = self._render(code, [name], self.width)
        address = self.text.value(f"getelementptr {llvm_type(code.type)}, ptr {self.result}, i64 {place}")
        store_lanes(self.text, code.type, self.width, valid, code_name, address)

    def _splat(self, scalar: str) -> str:
        vector, type = llvm_type(self.type, self.width), llvm_type(self.type)
        if self.width == 1:
            return scalar
        one = self.text.value(f"insertelement {vector} poison, {type} {scalar}, i64 0")
        return self.text.value(f"shufflevector {vector} {one}, {vector} poison, <{self.width} x i32> zeroinitializer")

    def _identity(self) -> str:
        (code,) = element_constant(self.running.monoid.identity, self.element)
        return constant_text(code, self.width)

    # --- sums ---

    def write(self) -> None:
        text, type = self.text, llvm_type(self.type, self.width)
        self.before, self.within = text.allocate(type), text.allocate(type)
        (code_type,) = memory_types(element_type(self.op.operands[1]))
        code = text.value(f"load {llvm_type(code_type)}, ptr {self.initial}")
        text.line(f"store {type} {self._splat(self._decoded(code, self.op.operands[1], 1))}, ptr {self.before}")
        step = self.width if self.across else 1
        whole = self.running.length // step
        blocks = whole // _BLOCK
        if blocks:
            number, _ = text.open_loop()
            first = text.value(f"mul i64 {number}, {_BLOCK * step}")
            self._block(first, _BLOCK, step)
            text.close_loop(blocks)
        if whole % _BLOCK:
            self._block(str(blocks * _BLOCK * step), whole % _BLOCK, step)
        if self.running.length % step:
            text.line(f"store {type} {self._identity()}, ptr {self.within}")
            self._vector(str(whole * step), self.running.length % step)

    def _block(self, first: str, count: int, step: int) -> None:
        """Emit `count` vectors from `first` on as a block, and add its total to those before."""
        text, type = self.text, llvm_type(self.type, self.width)
        text.line(f"store {type} {self._identity()}, ptr {self.within}")
        number, _ = text.open_loop()
        start = text.value(f"add i64 {text.value(f'mul i64 {number}, {step}')}, {first}")
        self._vector(start, self.width if self.across else min(self.width, self.running.inner))
        text.close_loop(count)
        before, within = (text.value(f"load {type}, ptr {slot}") for slot in (self.before, self.within))
        text.line(f"store {type} {self._combined(before, within)}, ptr {self.before}")

    def _vector(self, start: str, valid: int) -> None:
        """Emit one vector of sums from index `start` along the length."""
        text, type = self.text, llvm_type(self.type, self.width)
        place = self._place(start, valid)
        values = self._load(place, valid)
        if self.across:
            values = self._prefixes(self._ordered(values, valid))
        before, within = (text.value(f"load {type}, ptr {slot}") for slot in (self.before, self.within))
        within = self._combined(within, values)
        total = self._combined(before, within)
        if self.across:
            total = self._ordered(total, valid)
            within = self._shuffled(within, [valid - 1] * self.width)
        text.line(f"store {type} {within}, ptr {self.within}")
        self._store(total, place, valid)

    def _place(self, start: str, valid: int) -> str:
        """Return the index of the first element of the vector at `start` along the length."""
        text, inner = self.text, self.running.inner
        if self.running.backwards:
            last = self.running.length - (valid if self.across else 1)
            start = text.value(f"sub i64 {last}, {start}")
        return text.value(f"add i64 {text.value(f'mul i64 {start}, {inner}')}, {self.origin}")

    def _ordered(self, values: str, valid: int) -> str:
        """Return the valid lanes reversed if the sums run backwards."""
        if not self.running.backwards:
            return values
        return self._shuffled(values, [*reversed(range(valid)), *range(valid, self.width)])

    def _prefixes(self, values: str) -> str:
        """Return each lane combined with all before it."""
        distance = 1
        while distance < self.width:
            lanes = [self.width + lane - distance if lane >= distance else lane for lane in range(self.width)]
            values = self._combined(self._shuffled(self._identity(), lanes, values), values)
            distance *= 2
        return values

    def _shuffled(self, first: str, lanes: list[int], second: str = "poison") -> str:
        if self.width == 1:
            return first
        vector, places = llvm_type(self.type, self.width), ", ".join(f"i32 {lane}" for lane in lanes)
        return self.text.value(f"shufflevector {vector} {first}, {vector} {second}, <{self.width} x i32> <{places}>")
