"""The protocol by which the schedule queries a back end's limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spmd.analysis.matrices import Matrix
from spmd.ir import Op
from spmd.support.processor import Processor


@dataclass(frozen=True, slots=True)
class LibraryPlan:
    """How an op that is no loop nest runs: the most parallel `tasks`, the sizes in bytes of its `scratch` buffers, and
    the `form` of its code, which the back end chooses and describes by its text.
    """

    tasks: int = 1
    scratch: tuple[int, ...] = ()
    form: object = ""


class BatchedProduct(Protocol):
    """A batched matrix product; `batch` is the batch shape."""

    @property
    def batch(self) -> tuple[int, ...]: ...

    @property
    def lhs(self) -> Matrix: ...

    @property
    def rhs(self) -> Matrix: ...

    @property
    def size(self) -> int:
        """Multiply-adds of one product."""

    @property
    def nanoseconds(self) -> int:
        """Approximate time of one product."""

    @property
    def runs_in_tasks(self) -> bool:
        """Whether threads may compute different products of the batch in parallel."""


class Target(Protocol):
    """A back end's native code, as far as the schedule depends on it."""

    @property
    def threads(self) -> int:
        """Threads that share the work of a unit."""

    @property
    def processor(self) -> Processor:
        """The processor that code is generated for."""

    @property
    def in_fixed_order(self) -> bool:
        """Whether the order of summation is fixed whatever the processor, which rules out BLAS."""

    def supports(self, op: Op) -> bool:
        """Return whether `op`, which is no loop nest, can be compiled."""

    def plan(self, op: Op, image_bytes: int | None) -> LibraryPlan:
        """Return tasks and scratch of `op`, which must be supported; `image_bytes`: size of one image of a convolution
        whose input is fused.
        """

    def product(self, op: Op) -> BatchedProduct | None:
        """Return `op` as a batched product on its operands in place; None if it is no such product."""
