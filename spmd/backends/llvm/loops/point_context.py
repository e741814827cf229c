"""The interface of points to vector loads and stores."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from spmd.analysis.affine import Affine
from spmd.analysis.scalar.expression import Expression
from spmd.backends.llvm.emit.text import FunctionText
from spmd.compiler.schedule.lanes import Lanes
from spmd.compiler.schedule.nest import Stage
from spmd.ir import Value


@dataclass(frozen=True, slots=True)
class Rendered:
    """An emitted value: its SSA name, whether it is a vector of lanes, and the depth of its scope."""

    name: str
    is_vector: bool
    depth: int


class PointContext(Protocol):
    """The current point of a loop nest (element_emitter.ElementEmitter)."""

    text: FunctionText
    stage: Stage
    lanes: Lanes
    #: Number of lanes that are not padding; None if all are valid.
    valid: int | None

    @property
    def written(self) -> Collection[Value]:
        """Values that the nest stores."""

    @property
    def width(self) -> int:
        """The number of lanes of vectors."""

    def render(self, expression: Expression) -> Rendered:
        """Return the value of `expression`, emitted once."""

    def start_of(self, form: Affine) -> Rendered:
        """Return the value of `form` at the first lane, without terms that are vectors."""
