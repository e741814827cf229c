"""Folds of many lanes, a few lanes at a time, where a turn computes much.

All lanes at once are as many chains of operations as there are registers to hold them: worth it where memory is all
that is waited for. Where a turn computes much, processors wait for that, and LLVM spends its time on every register
that a vector fills. So each turn takes a few lanes there, and what is folded so far lies in memory. The association is
that of all lanes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.analysis.scalar.expression import walk
from spmd.backends.llvm.emit.writer import llvm_type
from spmd.backends.llvm.loops.element_emitter import PointWriter
from spmd.compiler.schedule.lanes import Lanes
from spmd.compiler.schedule.nest import Stage

#: Lanes that are taken at a time, and how many operations of a turn are much.
NARROW, _MUCH = 16, 6


def is_narrow(stage: Stage, width: int) -> bool:
    """Whether a turn of the folds of `stage`, of `width` lanes, calls functions, or computes much."""
    if width <= NARROW or any(part.type.bits < 8 for each in stage.reductions for part in each.initial):
        return False  # bits lie packed: no lane of theirs has an address
    codes = [*(part for each in stage.reductions for part in each.inputs), *(store.code for store in stage.stores)]
    primitives = [node.primitive for node in walk(codes) if node.operands]
    return len(primitives) >= _MUCH or any(primitive.is_function for primitive in primitives)


def fold_narrow_turns(
    point: PointWriter,
    stage: Stage,
    slots: Sequence[list[str]],
    place: Callable[[str], str],
    length: int | str,
    turn: Callable[[Sequence[list[str]]], None],
) -> None:
    """Folds `length` elements of the lane loop into `slots`, each of as many lanes as `point` takes at once; where that
    is no number, it is one of whole turns.

    `place` gives an element's place in the loop; `turn` writes what is done with some lanes, given where what is folded
    of them lies.
    """
    text, width, lane = point.text, point.width, point.lane
    assert lane is not None

    def from_lane(number: str) -> list[list[str]]:
        return [
            [
                text.value(f"getelementptr {llvm_type(part.type)}, ptr {slot}, i64 {number}")
                for part, slot in zip(reduction.initial, names, strict=True)
            ]
            for reduction, names in zip(stage.reductions, slots, strict=True)
        ]

    lanes, point.lanes = point.lanes, Lanes(lane, NARROW)
    rest = 0 if isinstance(length, str) else length % NARROW
    if isinstance(length, str) or length >= NARROW:
        name, depth = text.open_loop()
        point.variables[lane] = (place(name), depth)
        turn(from_lane(text.value(f"and i64 {name}, {width - 1}")))
        text.close_loop(length if isinstance(length, str) else length - rest, NARROW)
    if rest:
        point.valid = rest
        with text.part() as depth:
            point.variables[lane] = (place(str(int(length) - rest)), depth)
            turn(from_lane(str((int(length) - rest) % width)))
        point.valid = None
    point.lanes = lanes
