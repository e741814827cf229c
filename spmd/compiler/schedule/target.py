"""What the schedule is told of the code that will run it: the limits of a back end, as a protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spmd.analysis.matrices import Matrix
from spmd.ir import Op
from spmd.support.processor import Processor


@dataclass(frozen=True, slots=True)
class LibraryPlan:
    """How an op that is no loop nest runs: in up to `tasks` at a time, with working memory of `scratch` bytes each."""

    tasks: int = 1
    scratch: tuple[int, ...] = ()


class BatchedProduct(Protocol):
    """Products of matrices, one for each index of `batch`."""

    @property
    def batch(self) -> tuple[int, ...]: ...

    @property
    def lhs(self) -> Matrix: ...

    @property
    def rhs(self) -> Matrix: ...

    @property
    def size(self) -> int:
        """Multiplications of each product."""

    @property
    def nanoseconds(self) -> int:
        """How long one of the products takes, roughly."""

    @property
    def runs_in_tasks(self) -> bool:
        """Whether several threads may each run products of their own."""


class Target(Protocol):
    """A back end's native code, as far as the schedule depends on it."""

    @property
    def threads(self) -> int:
        """How many threads share the work of a unit."""

    @property
    def processor(self) -> Processor:
        """What the code is made for."""

    @property
    def in_fixed_order(self) -> bool:
        """Whether sums have one order, whatever the processor: no library adds up products."""

    def supports(self, op: Op) -> bool:
        """Whether `op`, which is part of no loop nest, has a native form."""

    def plan(self, op: Op, image_bytes: int | None) -> LibraryPlan:
        """How `op`, which is supported, runs; a convolution whose images are made one at a time, of `image_bytes`."""

    def product(self, op: Op) -> BatchedProduct | None:
        """`op` as products of matrices where they lie; None where it is anything else."""
