"""Where lanes lie that are looked up in small arrays, in 32 bits, as LLVM's text: half of what addresses take."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.scalar.expression import Expression, Primitive
from spmd.backends.llvm.loops.point_context import PointContext
from spmd.compiler.schedule.nest import Load

#: Bytes from one place to another that 32 bits do not tell.
_FAR = 1 << 31


def narrow_places(point: PointContext, load: Load, offsets: Sequence[int]) -> tuple[int, str] | None:
    """How far the lanes of `load` are from the first one's place; the depth, and the name of a vector of i32.

    `offsets` are those that are known. None where others need more bits: they do not where they are made of 32 bits,
    and what is read is so small that of their sums the lower halves tell all.
    """
    lanes = [(part, factor) for part, factor in load.address.dynamic if point.render(part).is_vector]
    if 2 * load.value.tensor.nbytes >= _FAR or not all(_is_extended(part) for part, _ in lanes):
        return None
    text, width, depth = point.text, point.width, 0
    total = "<" + ", ".join(f"i32 {offset}" for offset in offsets) + ">"
    for part, factor in lanes:
        (number,) = part.operands
        value = point.render(number)
        depth, name = max(depth, value.depth), value.name
        if number.type.bits < 32:
            extend = "sext" if part.primitive is Primitive.SIGN_EXTEND else "zext"
            name = text.value(f"{extend} <{width} x i{number.type.bits}> {name} to <{width} x i32>", depth)
        if factor != 1:
            factors = ", ".join([f"i32 {factor}"] * width)
            name = text.value(f"mul <{width} x i32> {name}, <{factors}>", depth)
        total = text.value(f"add <{width} x i32> {total}, {name}", depth)
    return depth, total


def _is_extended(part: Expression) -> bool:
    """Whether the i64 `part` is made of a number of at most 32 bits."""
    return part.primitive in (Primitive.SIGN_EXTEND, Primitive.ZERO_EXTEND) and part.operands[0].type.bits <= 32
