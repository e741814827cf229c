"""chlo.top_k in native code: the largest elements of each row.

The largest so far are kept sorted as integers that combine key and index, such that of equal elements the earlier one
is greater. A row is scanned vector by vector, skipping vectors without an element greater than the smallest kept one.
One function serves rows of all lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import PlanTarget, native
from spmd.backends.llvm.emit.outlined import IrParameter, OutlinedFunction, body_of
from spmd.backends.llvm.emit.task_function import TaskFunction
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.strides import first_lanes
from spmd.backends.llvm.parallel.tasks import call_in_tasks
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.rates import nanoseconds
from spmd.compiler.schedule.steps import LibraryCall
from spmd.compiler.schedule.target import LibraryPlan
from spmd.compiler.schedule.tasks import tasks_of_time
from spmd.ir import Op
from spmd.types import I32, ElementType

_LANES = 16
#: Largest k; more are left to a sort.
_MOST = 128
#: Kept elements per vector.
_REGISTER = 8


def _is_short(op: Op) -> bool:
    operand, indices = op.operands[0].tensor, op.results[1].tensor
    element = operand.element_type
    if not (is_plain(operand) and is_plain(indices) and isinstance(element, ElementType) and operand.rank):
        return False
    if element.is_complex or element.bits not in (8, 16, 32) or (element.is_float and element.bits == 8):
        return False
    return indices.element_type is I32 and 0 < op["k"] <= _MOST and op["k"] <= operand.static_shape[-1]


def _plan(op: Op, machine: PlanTarget, image_bytes: int | None) -> LibraryPlan:
    *outer, size = op.operands[0].tensor.static_shape
    rows = prod(outer)
    return LibraryPlan(min(max(1, rows), tasks_of_time(nanoseconds("top_k", rows * size), machine.threads)))


@native("chlo.top_k", _is_short, _plan)
def _(writer: FunctionEmitter, call: LibraryCall) -> None:
    op = call.op
    pointers = [writer.pointer(value) for value in (op.operands[0], *op.results)]
    *outer, size = op.operands[0].tensor.static_shape
    rows = prod(outer)
    if not rows:
        return
    step = _step_of(op)
    parts = call.plan.tasks
    if parts == 1:
        step.write_call(writer.text, [*pointers, "0", str(rows), str(size)])
        return

    def write(part: TaskFunction) -> None:
        step.write_call(part.text, [*map(part.pointer, pointers), *part.share(rows, parts), str(size)])

    call_in_tasks(writer, parts, write)


def _step_of(op: Op) -> TopK:
    element = op.operands[0].tensor.element_type
    assert isinstance(element, ElementType)
    kind = "f" if element.is_float else "u" if element.is_unsigned else "i"
    rest = op.operands[0].tensor.static_shape[-1] - op["k"]
    return TopK(op["k"], kind, element.bits, rest >= _LANES, rest % _LANES)


@dataclass(frozen=True)
class TopK(OutlinedFunction):
    """The `count` largest elements of rows of any length: floats, signed or unsigned integers (f, i, u) of `bits`.

    After the first `count` elements a row has whole vectors if it `has_vectors`, then `rest` elements.
    """

    count: int
    kind: str
    bits: int
    has_vectors: bool
    rest: int

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.top_k.8.f32.vectors.8`."""
        return f"spmd.top_k.{self.count}.{self.kind}{self.bits}{'.vectors' if self.has_vectors else ''}.{self.rest}"

    def body(self) -> str:
        """Return the loop over rows."""
        text = FunctionText()
        row, _ = text.open_loop()
        _TopKWriter(text, self, row).write()
        text.close_loop("%stop", 1, "%first")
        return body_of(text)

    @property
    def parameters(self) -> Sequence[IrParameter]:
        """Operand, values and indices; first row, one past the last, and row length."""
        results = (IrParameter("ptr", "%values", "noalias"), IrParameter("ptr", "%indices", "noalias"))
        numbers = (IrParameter("i64", f"%{name}") for name in ("first", "stop", "size"))
        return (IrParameter("ptr", "%operand", "noalias readonly"), *results, *numbers)


class _TopKWriter:
    """Emits the search of one row."""

    def __init__(self, text: FunctionText, step: TopK, row: str) -> None:
        self.text = text
        self.step = step
        self.count, self.bits = step.count, step.bits
        self.kept = -(-self.count // _REGISTER) * _REGISTER
        self.operand = self._at("%operand", row, "%size", self.bits)
        self.values = self._at("%values", row, self.count, self.bits)
        self.indices = self._at("%indices", row, self.count, 32)
        memory = text.allocate(f"<{_REGISTER + self.kept} x i64>")  # preceded by a sentinel
        self.slot = text.value(f"getelementptr i64, ptr {memory}, i64 {_REGISTER}")
        self.keys = text.allocate(f"<{_LANES} x i32>")

    def _at(self, pointer: str, row: str, size: int | str, bits: int) -> str:
        start = self.text.value(f"mul i64 {row}, {size}")
        return self.text.value(f"getelementptr i{bits}, ptr {pointer}, i64 {start}")

    def write(self) -> None:
        text = self.text
        text.line(f"store i64 {2**63 - 1}, ptr {text.value(f'getelementptr i64, ptr {self.slot}, i64 -1')}")
        place, _ = text.open_loop()
        text.line(f"store i64 {-(2**63)}, ptr {text.value(f'getelementptr i64, ptr {self.slot}, i64 {place}')}")
        text.close_loop(self.kept)
        first, _ = text.open_loop()
        address = text.value(f"getelementptr i{self.bits}, ptr {self.operand}, i64 {first}")
        self._insert(self._key(text.value(f"load i{self.bits}, ptr {address}"), 1), first)
        text.close_loop(self.count)
        end = text.value(f"sub i64 %size, {self.step.rest}")
        if self.step.has_vectors:
            start, _ = text.open_loop()
            self._look(start, _LANES)
            text.close_loop(end, _LANES, str(self.count))
        if self.step.rest:
            self._look(end, self.step.rest)
        self._put_out()

    def _look(self, start: str, lanes: int) -> None:
        """Scan `lanes` elements from `start` on."""
        text = self.text
        address = text.value(f"getelementptr i{self.bits}, ptr {self.operand}, i64 {start}")
        vector = f"<{_LANES} x i{self.bits}>"
        if lanes == _LANES:
            codes = text.value(f"load {vector}, ptr {address}, align {self.bits // 8}")
        else:
            codes = text.value(
                f"call {vector} @llvm.masked.load.v{_LANES}i{self.bits}.p0(ptr align {self.bits // 8} {address}, "
                f"<{_LANES} x i1> {first_lanes(_LANES, lanes)}, {vector} zeroinitializer)"
            )
        keys = self._key(codes, _LANES)
        smallest = self._smallest()
        one = text.value(f"insertelement <{_LANES} x i32> poison, i32 {smallest}, i64 0")
        limit = text.value(
            f"shufflevector <{_LANES} x i32> {one}, <{_LANES} x i32> poison, <{_LANES} x i32> zeroinitializer"
        )
        larger = text.value(f"icmp sgt <{_LANES} x i32> {keys}, {limit}")
        if lanes != _LANES:
            larger = text.value(f"and <{_LANES} x i1> {larger}, {first_lanes(_LANES, lanes)}")
        any_larger = text.value(f"call i1 @llvm.vector.reduce.or.v{_LANES}i1(<{_LANES} x i1> {larger})")
        with text.where(any_larger):
            text.line(f"store <{_LANES} x i32> {keys}, ptr {self.keys}")
            lane, _ = text.open_loop()
            at = text.value(f"getelementptr i32, ptr {self.keys}, i64 {lane}")
            key = text.value(f"load i32, ptr {at}")
            with text.where(text.value(f"icmp sgt i32 {key}, {self._smallest()}")):
                self._insert(key, text.value(f"add i64 {start}, {lane}"))
            text.close_loop(lanes)

    def _smallest(self) -> str:
        """Return the key of the smallest kept element; a later element with an equal key is not kept."""
        text = self.text
        last = text.value(f"getelementptr i64, ptr {self.slot}, i64 {self.count - 1}")
        smallest = text.value(f"load i64, ptr {last}")
        return text.value(f"trunc i64 {text.value(f'ashr i64 {smallest}, 32')} to i32")

    def _key(self, codes: str, width: int) -> str:
        """Return integer keys ordered as the elements: floats in total order."""
        text = self.text
        type = f"i{self.bits}" if width == 1 else f"<{width} x i{self.bits}>"
        wide = "i32" if width == 1 else f"<{width} x i32>"

        def splat(value: int, kind: str) -> str:
            return str(value) if width == 1 else "<" + ", ".join([f"{kind} {value}"] * width) + ">"

        if self.step.kind == "f":
            sign = text.value(f"ashr {type} {codes}, {splat(self.bits - 1, f'i{self.bits}')}")
            others = splat((1 << (self.bits - 1)) - 1, f"i{self.bits}")
            codes = text.value(f"xor {type} {codes}, {text.value(f'and {type} {sign}, {others}')}")
        if self.bits == 32:
            if self.step.kind == "u":
                codes = text.value(f"xor {type} {codes}, {splat(-(2**31), 'i32')}")
            return codes
        way = "zext" if self.step.kind == "u" else "sext"
        return text.value(f"{way} {type} {codes} to {wide}")

    def _insert(self, key: str, place: str) -> None:
        """Insert an element among the kept ones, moving smaller ones back."""
        text, type = self.text, f"<{_REGISTER} x i64>"
        high = text.value(f"shl i64 {text.value(f'sext i32 {key} to i64')}, 32")
        number = text.value(f"or i64 {high}, {text.value(f'sub i64 {2**32 - 1}, {place}')}")
        one = text.value(f"insertelement {type} poison, i64 {number}, i64 0")
        new = text.value(f"shufflevector {type} {one}, {type} poison, <{_REGISTER} x i32> zeroinitializer")
        turn, _ = text.open_loop()  # from the last vector on, so that predecessors are still unmodified
        done = text.value(f"mul i64 {turn}, -{_REGISTER}")
        first = text.value(f"add i64 {done}, {self.kept - _REGISTER}")
        here = text.value(f"getelementptr i64, ptr {self.slot}, i64 {first}")
        before = text.value(f"getelementptr i64, ptr {here}, i64 -1")
        kept, moved = (text.value(f"load {type}, ptr {place}, align 8") for place in (here, before))
        stays, moves = (text.value(f"icmp sgt {type} {value}, {new}") for value in (kept, moved))
        condition = f"<{_REGISTER} x i1>"
        later = text.value(f"select {condition} {moves}, {type} {new}, {type} {moved}")
        text.line(
            f"store {type} {text.value(f'select {condition} {stays}, {type} {kept}, {type} {later}')}, ptr {here}"
        )
        text.close_loop(self.kept // _REGISTER)

    def _put_out(self) -> None:
        text = self.text
        number, _ = text.open_loop()
        kept = text.value(f"load i64, ptr {text.value(f'getelementptr i64, ptr {self.slot}, i64 {number}')}")
        place = text.value(f"sub i64 {2**32 - 1}, {text.value(f'and i64 {kept}, {2**32 - 1}')}")
        at = text.value(f"getelementptr i{self.bits}, ptr {self.operand}, i64 {place}")
        value, index = text.value(f"load i{self.bits}, ptr {at}"), text.value(f"trunc i64 {place} to i32")
        for found, bits, results in ((value, self.bits, self.values), (index, 32, self.indices)):
            target = text.value(f"getelementptr i{bits}, ptr {results}, i64 {number}")
            text.line(f"store i{bits} {found}, ptr {target}")
        text.close_loop(self.count)
