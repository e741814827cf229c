"""Loop nests that only copy (spmd.compiler.schedule.copies), out of line: one piece of code for all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Affine
from spmd.backends.llvm.emit.outlined import OutOfLine, Parameter, body_of
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.loops import Range
from spmd.compiler.schedule.copies import Copy, CopyLoop, copy_of
from spmd.compiler.schedule.nest import Nest
from spmd.ir import Value

#: Loops around rows, at most.
_AROUND = 3
#: Bytes of a vector.
_VECTOR = 64
#: Bytes of a row, and of all of them, from which on a call is worth it.
_LEAST_ROW, _LEAST = 128, 1 << 11


def apart_copy_of(nest: Nest, part: Range | None = None) -> Copy | None:
    """What `nest` copies out of line, or the turn `part` of it alone; None where it does anything else, or little."""
    if part is not None and part.stop is not None:
        return None
    copy = copy_of(nest, None if part is None else part.variable)
    if copy is None or copy.type.bits < 8 or len(copy.loops) > 1 + _AROUND:
        return None
    item = copy.type.bits // 8
    row = (copy.loops[-1].stop - copy.loops[-1].first) * item
    return copy if row >= _LEAST_ROW and prod(loop.extent for loop in copy.loops) * item >= _LEAST else None


def write_copy(text: FunctionText, nest: Nest, pointer: Callable[[Value], str], part: Range | None) -> bool:
    """Writes a call for what `nest` copies; False, with nothing written, where that is not done out of line."""
    copy = apart_copy_of(nest, part)
    if copy is None or pointer(copy.source) == pointer(copy.target):
        return False
    rows = CopyRows(copy.type.bits if copy.padding is not None else 0)
    item = copy.type.bits // 8
    ends = ((copy.source, copy.read_from), (copy.target, copy.write_from))
    addresses = [_address(text, pointer(value), place, item, part) for value, place in ends]
    told = [*addresses, _sizes(text, copy, item)]
    if copy.padding is not None:
        told.append(str(copy.padding.attribute))
    rows.write_call(text, told)
    return True


def _address(text: FunctionText, pointer: str, place: Affine, item: int, part: Range | None) -> str:
    """The address `place` elements behind `pointer`, within the turn `part`."""
    for _, factor in place.terms:
        assert part is not None
        offset = text.value(f"mul i64 {part.first}, {factor * item}")
        pointer = text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
    return text.value(f"getelementptr i8, ptr {pointer}, i64 {place.offset * item}") if place.offset else pointer


def _sizes(text: FunctionText, copy: Copy, item: int) -> str:
    """The name of a constant of the module: of each loop its turns, the bytes of a turn in source and target, and where
    it is read; of the row its elements, or bytes where nothing is padded, and where it is read."""
    *around, row = copy.loops
    once = CopyLoop(-1, 1, 0, 0, 0, 1)
    numbers: list[int] = []
    for loop in [once] * (_AROUND - len(around)) + around:
        numbers += [loop.extent, loop.source * item, loop.target * item, loop.first, loop.stop - loop.first]
    unit = item if copy.padding is None else 1
    numbers += [row.extent * unit, row.first * unit, row.stop * unit]
    return text.numbers(numbers)


@dataclass(frozen=True)
class CopyRows(OutOfLine):
    """Copies rows; what is not read has a number of `bits` instead, but for 0 bits, where all is read."""

    bits: int

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.copy`, `spmd.pad.i32`."""
        return f"spmd.pad.i{self.bits}" if self.bits else "spmd.copy"

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Source and target, what `_sizes` says, and what stands where nothing is read."""
        pointers = [Parameter("ptr", f"%{name}", "noalias readonly") for name in ("source", "sizes")]
        pointers.insert(1, Parameter("ptr", "%target", "noalias"))
        return [*pointers, Parameter(f"i{self.bits}", "%padding")] if self.bits else pointers

    def body(self) -> str:
        """Row by row."""
        text = FunctionText()
        source, target, inside = "%source", "%target", "true"
        for loop in range(_AROUND):
            turn, _ = text.open_loop()
            source = _moved(text, source, text.value(f"mul i64 {turn}, %source{loop}"))
            target = _moved(text, target, text.value(f"mul i64 {turn}, %target{loop}"))
            if self.bits:
                place = text.value(f"sub i64 {turn}, %first{loop}")
                inside = text.value(f"and i1 {inside}, {text.value(f'icmp ult i64 {place}, %read{loop}')}")
        if self.bits:
            text.either(inside, lambda: self._row(text, source, target), lambda: self._fill(text, target, "%count"))
        else:
            _copy(text, source, target, "%count")
        for loop in reversed(range(_AROUND)):
            text.close_loop(f"%turns{loop}")
        of_loop = ("turns", "source", "target", "first", "read")
        names = [f"%{name}{loop}" for loop in range(_AROUND) for name in of_loop]
        return body_of(text, [*names, "%count", "%from", "%to"])

    def _row(self, text: FunctionText, source: str, target: str) -> None:
        """A row that is read between the places `from` and `to`."""
        item = self.bits // 8
        begin, end = (text.value(f"mul i64 %{name}, {item}") for name in ("from", "to"))
        self._fill(text, target, "%from")
        size = text.value(f"sub i64 {end}, {begin}")
        _copy(text, _moved(text, source, begin), _moved(text, target, begin), size)
        self._fill(text, _moved(text, target, end), text.value("sub i64 %count, %to"))

    def _fill(self, text: FunctionText, target: str, count: str) -> None:
        """`count` places that are not read."""
        lanes, scalar = _VECTOR * 8 // self.bits, f"i{self.bits}"
        vector = f"<{lanes} x {scalar}>"

        def put(type: str, value: str, place: str) -> None:
            address = text.value(f"getelementptr {scalar}, ptr {target}, i64 {place}")
            text.line(f"store {type} {value}, ptr {address}, align {self.bits // 8}")

        def many() -> None:
            one = text.value(f"insertelement {vector} poison, {scalar} %padding, i64 0")
            every = text.value(f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer")
            stop = text.value(f"sub i64 {count}, {lanes - 1}")
            start, _ = text.open_loop()
            put(vector, every, start)
            text.close_loop(stop, lanes)
            put(vector, every, text.value(f"sub i64 {count}, {lanes}"))

        def few() -> None:
            with text.where(text.value(f"icmp ne i64 {count}, 0")):
                place, _ = text.open_loop()
                put(scalar, "%padding", place)
                text.close_loop(count)

        text.either(text.value(f"icmp uge i64 {count}, {lanes}"), many, few)


def _moved(text: FunctionText, pointer: str, offset: str) -> str:
    return text.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")


def _copy(text: FunctionText, source: str, target: str, size: str) -> None:
    """Copies `size` bytes; what does not fill a vector is copied with some bytes before it."""
    vector = f"<{_VECTOR} x i8>"

    def put(place: str) -> None:
        value = text.value(f"load {vector}, ptr {_moved(text, source, place)}, align 1")
        text.line(f"store {vector} {value}, ptr {_moved(text, target, place)}, align 1")

    def vectors() -> None:
        whole = text.value(f"and i64 {size}, {-_VECTOR}")
        place, _ = text.open_loop()
        put(place)
        text.close_loop(whole, _VECTOR)
        with text.where(text.value(f"icmp ne i64 {size}, {whole}")):
            put(text.value(f"sub i64 {size}, {_VECTOR}"))

    def library() -> None:
        text.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    text.either(text.value(f"icmp uge i64 {size}, {_VECTOR}"), vectors, library)
