"""Stores of what a short innermost loop computes at each of its turns, as LLVM's text.

Where its turns compute different things (arrays that are stacked along their last dimension, the parts of a cross
product), lanes are neighbours of the loop around it. Each turn is computed by itself, and what all gave is woven
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spmd.analysis.affine import Variable
from spmd.analysis.scalar.expression import MachineType
from spmd.backends.llvm.emit.writer import llvm_type
from spmd.backends.llvm.loops.element_emitter import PointWriter
from spmd.backends.llvm.loops.stores import store_lanes
from spmd.backends.llvm.loops.strides import shuffled
from spmd.compiler.schedule.interior import specialized_iterations
from spmd.compiler.schedule.nest import Stage


def store_turns(point: PointWriter, stage: Stage, inner: Variable) -> None:
    """Compute `stage` at all turns of the loop `inner` for the lanes, and writes it.

    All is read before anything is written: a result may stand on the memory of an operand.
    """
    extent, whole = point.nest.extents[inner], point.stage
    # A stage of its own for each turn: what was computed for one is not what another computes.
    turns = specialized_iterations(point.nest, stage, inner) or [replace(stage) for _ in range(extent)]
    values: list[list[str]] = []
    for number, turn in enumerate(turns):
        point.stage = turn
        point.variables[inner] = (str(number), point.base)
        codes = [store.code for store in turn.stores]
        values.append([point.at_width(point.render(code), code.type, point.width, code) for code in codes])
    point.variables[inner] = ("0", point.base)
    for number, store in enumerate(stage.stores):
        start = point.start_of(store.address).name
        _store_woven(point, point.pointer(store.value), start, [each[number] for each in values], store.code.type)
    point.stage = whole


def _store_woven(point: PointWriter, pointer: str, start: str, vectors: Sequence[str], type: MachineType) -> None:
    """Emit the first lanes of all vectors, then the second, and so on, from `start` on."""
    text, width, count = point.text, point.width, len(vectors)
    total = count * (width if point.valid is None else point.valid)
    for first in range(0, total, width):
        turn_of = [(first + lane) % count for lane in range(width)]
        lane_of = [(first + lane) // count for lane in range(width)]
        joined = vectors[0]
        for turn in range(1, count):
            before = lane_of if turn == 1 else list(range(width))
            chosen = [
                width + lane_of[lane] if turn_of[lane] == turn else before[lane] if turn_of[lane] < turn else 0
                for lane in range(width)
            ]
            joined = shuffled(point, joined, vectors[turn], type, chosen, text.depth)
        place = text.value(f"getelementptr {llvm_type(type, 1)}, ptr {pointer}, i64 {start}")
        address = text.value(f"getelementptr {llvm_type(type, 1)}, ptr {place}, i64 {first}") if first else place
        store_lanes(text, type, width, min(width, total - first), joined, address)
