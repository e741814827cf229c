"""Fills of memory with one element."""

from __future__ import annotations

from spmd.backends.llvm.emit.text import FunctionText
from spmd.support.arrays import Array

#: Bytes stored at a time.
_LINE = 64


def fill(text: FunctionText, target: str, array: Array) -> None:
    """Emit a fill of `target` with the splat `array`."""
    element = array.reshape(-1)[:1].tobytes()
    if len(set(element)) == 1:
        text.line(f"call void @llvm.memset.p0.i64(ptr {target}, i8 {element[0]}, i64 {array.nbytes}, i1 false)")
        return
    for start, size in text.chunks(array.nbytes, _LINE):
        place = text.value(f"getelementptr i8, ptr {target}, i64 {start}")
        pattern = (element * _LINE)[:size]
        text.line(f"store <{size} x i8> <{', '.join(f'i8 {byte}' for byte in pattern)}>, ptr {place}, align 1")
