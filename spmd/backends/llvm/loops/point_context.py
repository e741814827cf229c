"""Where values are written: what loads and stores of several lanes have to know of the point that is written."""

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
    """A value in the text: its name, whether it has an entry for each lane, and the depth of the scope that has it."""

    name: str
    is_vector: bool
    depth: int


class PointContext(Protocol):
    """The point of a loop nest that is written (element_emitter.PointWriter)."""

    text: FunctionText
    stage: Stage
    lanes: Lanes
    #: Lanes that stand for points, where not all of them do.
    valid: int | None

    @property
    def written(self) -> Collection[Value]:
        """What the nest itself writes."""

    @property
    def width(self) -> int:
        """How many lanes vectors have."""

    def render(self, expression: Expression) -> Rendered:
        """Emit the value of `expression`, where that is not written yet."""

    def start_of(self, form: Affine) -> Rendered:
        """Return the number that `form` is for the first lane, but for what is computed for each lane."""
