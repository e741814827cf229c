"""Horizontal reduction of the lanes of a vector, by halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.analysis.scalar.expression import MachineType
from spmd.backends.llvm.emit.writer import llvm_type
from spmd.backends.llvm.loops.element_emitter import shuffled

#: Combines values of the given number of lanes: (first, second, lanes).
Combine = Callable[[Sequence[str], Sequence[str], int], list[str]]


def reduce_lanes(
    types: Sequence[MachineType], names: Sequence[str], width: int, combine: Combine, emit: Callable[[str], str]
) -> list[str]:
    """Return one value of all `width` lanes of each of the vectors `names`."""
    totals = list(names)
    while width > 1:
        half = width // 2
        halves = []
        for start in (0, half):
            for type, name in zip(types, totals, strict=True):
                if half > 1:
                    halves.append(shuffled(name, None, type, width, range(start, start + half), emit))
                else:
                    halves.append(emit(f"extractelement {llvm_type(type, width)} {name}, i64 {start}"))
        totals = combine(halves[: len(types)], halves[len(types) :], half)
        width = half
    return totals
