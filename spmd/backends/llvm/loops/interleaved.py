"""Interleaved stores of a short, unrolled innermost loop.

If its iterations compute different things (arrays stacked along the last dimension, components of a cross product),
lanes are neighbours of the loop around it. Iterations are computed separately, and their results interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spmd.analysis.affine import Variable
from spmd.analysis.scalar.expression import MachineType
from spmd.backends.llvm.emit.writer import llvm_type
from spmd.backends.llvm.loops.element_emitter import ElementEmitter
from spmd.backends.llvm.loops.stores import store_lanes
from spmd.backends.llvm.loops.strides import shuffled
from spmd.compiler.schedule.interior import specialized_iterations
from spmd.compiler.schedule.nest import Stage


def store_unrolled(point: ElementEmitter, stage: Stage, inner: Variable) -> None:
    """Emit all iterations of the loop `inner` of `stage` for the lanes, and their stores.

    All loads precede all stores, since results may overwrite operands.
    """
    extent, whole = point.nest.extents[inner], point.stage
    # A stage object per iteration, since values are cached by stage.
    iterations = specialized_iterations(point.nest, stage, inner) or [replace(stage) for _ in range(extent)]
    values: list[list[str]] = []
    for number, iteration in enumerate(iterations):
        point.stage = iteration
        point.variables[inner] = (str(number), point.base)
        codes = [store.code for store in iteration.stores]
        values.append([point.at_width(point.render(code), code.type, point.width, code) for code in codes])
    point.variables[inner] = ("0", point.base)
    for number, store in enumerate(stage.stores):
        start = point.start_of(store.address).name
        _store_interleaved(point, point.pointer(store.value), start, [each[number] for each in values], store.code.type)
    point.stage = whole


def _store_interleaved(
    point: ElementEmitter, pointer: str, start: str, vectors: Sequence[str], type: MachineType
) -> None:
    """Emit the store of all vectors interleaved lane by lane, at `start`."""
    text, width, count = point.text, point.width, len(vectors)
    total = count * (width if point.valid is None else point.valid)
    for first in range(0, total, width):
        iteration_of = [(first + lane) % count for lane in range(width)]
        lane_of = [(first + lane) // count for lane in range(width)]
        joined = vectors[0]
        for iteration in range(1, count):
            before = lane_of if iteration == 1 else list(range(width))
            chosen = [
                width + lane_of[lane]
                if iteration_of[lane] == iteration
                else before[lane]
                if iteration_of[lane] < iteration
                else 0
                for lane in range(width)
            ]
            joined = shuffled(point, joined, vectors[iteration], type, chosen, text.depth)
        place = text.value(f"getelementptr {llvm_type(type, 1)}, ptr {pointer}, i64 {start}")
        address = text.value(f"getelementptr {llvm_type(type, 1)}, ptr {place}, i64 {first}") if first else place
        store_lanes(text, type, width, min(width, total - first), joined, address)
