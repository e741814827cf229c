"""Loads and stores with strides of 2 to 4 elements, or in reverse.

Gathers and scatters are executed lane by lane; whole vectors and shuffles are faster, and both parts of complex numbers
share the same vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.scalar.expression import MachineType
from spmd.backends.llvm.emit.writer import llvm_type, suffix
from spmd.backends.llvm.loops.point_context import PointContext
from spmd.compiler.schedule.lanes import pieces
from spmd.compiler.schedule.nest import Load


def load_strided(point: PointContext, load: Load, pointer: str, step: int, depth: int) -> str:
    """Return the vector of a load with stride `step`, without a mask; emitted at `depth`."""
    width, stride = point.width, abs(step)
    lanes = width if point.valid is None else point.valid
    first = load.address if step > 0 else load.address.shifted(step * (lanes - 1))
    pair = first.offset % 2 if load.is_part and stride == 2 else 0
    start = point.start_of(first.shifted(-pair)).name
    span = 2 * lanes if load.is_part and stride == 2 else (lanes - 1) * stride + 1
    places = [(lane if step > 0 else lanes - 1 - lane) * stride + pair for lane in range(lanes)]
    chunks = range(0, span, width)
    if point.valid is None and span % width:  # the last vector ends at the last element
        chunks = [*chunks[:-1], span - width]  # type: ignore[assignment]
    joined: str | None = None
    for chunk in chunks:
        vector = _chunk(point, load, pointer, start, chunk, min(width, span - chunk), depth)
        inside = [chunk <= place < chunk + width for place in places]
        chosen = [
            (width if joined else 0) + place - chunk if here else lane
            for lane, (place, here) in enumerate(zip(places, inside, strict=True))
        ]
        chosen += [0] * (width - lanes)
        joined = shuffled(point, joined or vector, vector if joined else None, load.type, chosen, depth)
    assert joined is not None
    return joined


def load_pieces(point: PointContext, load: Load, pointer: str, depth: int) -> str:
    """Return the vector of a load with uneven lane offsets, without a mask; emitted at `depth`."""
    width = point.width
    places = point.lanes.offsets(load.address)[: point.valid]
    start = point.start_of(load.address).name
    joined: str | None = None
    for first, count in pieces(places, width):
        vector = _chunk(point, load, pointer, start, first, count, depth)
        chosen = [
            (width if joined else 0) + place - first if first <= place < first + count else lane
            for lane, place in enumerate(places)
        ]
        chosen += [chosen[0]] * (width - len(places))  # padding lanes repeat a valid one
        joined = shuffled(point, joined or vector, vector if joined else None, load.type, chosen, depth)
    assert joined is not None
    return joined


def _chunk(point: PointContext, load: Load, pointer: str, start: str, chunk: int, count: int, depth: int) -> str:
    """Return `count` contiguous elements from `chunk` elements after `start` on, loaded once per scope."""
    text, width = point.text, point.width
    key = (point.stage, "chunk", load.value, load.type, start, chunk, count)
    kept_chunk: str | None = text.find(key, depth)
    if kept_chunk is not None and load.value not in point.written:
        return kept_chunk
    scalar, vector, align = llvm_type(load.type, 1), llvm_type(load.type, width), load.type.bits // 8
    place = text.value(f"getelementptr {scalar}, ptr {pointer}, i64 {start}", depth)
    if chunk:
        place = text.value(f"getelementptr {scalar}, ptr {place}, i64 {chunk}", depth)
    if count == width:
        loaded = text.value(f"load {vector}, ptr {place}, align {align}", depth)
    else:
        name = f"llvm.masked.load.{suffix(load.type, width)}.p0"
        arguments = f"ptr align {align} {place}, <{width} x i1> {first_lanes(width, count)}, {vector} zeroinitializer"
        loaded = text.value(f"call {vector} @{name}({arguments})", depth)
    text.keep(key, loaded, depth)
    return loaded


def store_pairs(point: PointContext, pointer: str, start: str, parts: Sequence[str], type: MachineType) -> None:
    """Emit a store of two vectors interleaved at `start`, of their valid lanes."""
    text, width = point.text, point.width
    scalar, vector, align = llvm_type(type, 1), llvm_type(type, 2 * width), type.bits // 8
    lanes = [lane for pair in zip(range(width), range(width, 2 * width), strict=True) for lane in pair]
    both = shuffled(point, parts[0], parts[1], type, lanes, text.depth)
    place = text.value(f"getelementptr {scalar}, ptr {pointer}, i64 {start}")
    if point.valid is None:
        text.line(f"store {vector} {both}, ptr {place}, align {align}")
        return
    name = f"llvm.masked.store.{suffix(type, 2 * width)}.p0"
    mask = f"<{2 * width} x i1> {first_lanes(2 * width, 2 * point.valid)}"
    text.line(f"call void @{name}({vector} {both}, ptr align {align} {place}, {mask})")


def shuffled(
    point: PointContext, first: str, second: str | None, type: MachineType, lanes: Sequence[int], depth: int
) -> str:
    """Return the vector of `lanes` of one or two vectors."""
    vector = llvm_type(type, point.width)
    places = ", ".join(f"i32 {lane}" for lane in lanes)
    text = f"shufflevector {vector} {first}, {vector} {second or 'poison'}, <{len(lanes)} x i32> <{places}>"
    return point.text.value(text, depth)


def first_lanes(width: int, count: int) -> str:
    """Return the mask of the first `count` of `width` lanes."""
    return "<" + ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(width)) + ">"
