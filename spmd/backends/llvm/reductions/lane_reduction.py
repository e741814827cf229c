"""The lanes of a vector folded to one value, halves with halves: where it is needed, or out of line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spmd.analysis.scalar.expression import Expression, MachineType, Primitive, expression, parameter
from spmd.backends.llvm.emit.outlined import OutOfLine, Parameter
from spmd.backends.llvm.emit.scalars import render_node
from spmd.backends.llvm.emit.writer import Writer, llvm_type
from spmd.backends.llvm.loops.element_emitter import WAIT_FOR_FIRST, shuffled
from spmd.compiler.schedule.nest import FOLDED, LoopReduction

#: Gives the values of a region of two values each, of so many lanes: (first, second, lanes).
Combine = Callable[[Sequence[str], Sequence[str], int], list[str]]


def fold_lanes(
    types: Sequence[MachineType], names: Sequence[str], width: int, combine: Combine, emit: Callable[[str], str]
) -> list[str]:
    """One value of all `width` lanes of each of the vectors `names`."""
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


@dataclass(frozen=True)
class LaneFold(OutOfLine):
    """A vector of `width` values folded by `primitive`."""

    promise = "memory(none) nounwind willreturn"

    primitive: Primitive
    type: MachineType
    width: int

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.fold.add.f32.x64`."""
        return f"spmd.fold.{self.primitive.value}.{self.type.value}.x{self.width}"

    @property
    def parameters(self) -> Sequence[Parameter]:
        return (Parameter(llvm_type(self.type, self.width), "%lanes"),)

    @property
    def returns(self) -> str:
        return llvm_type(self.type)

    def body(self) -> str:
        """Halves with halves."""
        writer = Writer()
        node = _of_two(self.primitive, self.type)

        def combine(first: Sequence[str], second: Sequence[str], width: int) -> list[str]:
            names = [*second, *first] if self.primitive in WAIT_FOR_FIRST else [*first, *second]
            return [render_node(node, names, width, writer.emit, writer.callees)]

        (total,) = fold_lanes([self.type], ["%lanes"], self.width, combine, writer.emit)
        return "\n".join([*writer.lines, f"  ret {self.returns} {total}"])


def _of_two(primitive: Primitive, type: MachineType) -> Expression:
    return expression(primitive, type, (parameter(FOLDED, type), parameter(FOLDED + 1, type)))


def lane_fold_of(reduction: LoopReduction, width: int) -> LaneFold | None:
    """What folds the lanes of `reduction` out of line; None where its region is more than a primitive of two values."""
    if len(reduction.combine) != 1:
        return None
    (root,) = reduction.combine
    if root.primitive.is_function or root is not _of_two(root.primitive, root.type):
        return None
    return LaneFold(root.primitive, root.type, width)
