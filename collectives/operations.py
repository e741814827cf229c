"""The collectives as values: their static parameters and their meaning.

``evaluate`` follows the specification ("Collective ops" and each op's section): it takes the arrays of a group's
processes in group order, and returns each process's result. The in-process transport executes it; MPI implements it by
MPI's calls, and the tests compare the two. ``stacked`` is the same on the operands of many groups in one array, or on a
program's values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np

from collectives.arrays import Array, DType
from collectives.element_types import element
from collectives.errors import CommunicationError
from collectives.grid import MOVING, REDUCING, Grouping, Strategy, strategy_of
from collectives.permutations import Ends, ends_of
from collectives.reduction import Arithmetic, Reduction, arithmetic
from collectives.shapes import Shape, extent_text, scale_shape, split_shape
from collectives.stacked import ARRAYS, Stacks
from collectives.states import short_list

T = TypeVar("T")


@dataclass(frozen=True)
class Operation(ABC):
    """A collective with its static parameters. Equal operations match across processes.

    ``shape`` and ``dtype`` are the operand's.
    """

    shape: Shape
    dtype: DType
    #: The op's name without the dialect.
    name: ClassVar[str]
    #: How ids form process groups; None for an operation on all processes.
    grouping: ClassVar[Grouping | None] = None
    #: The MPI call that implements it; by default all operands are gathered on every process.
    mpi_call: ClassVar[str] = "MPI_Allgather"
    #: Names in HLO text and in XlaBuilder; empty if there is no such operation.
    hlo_opcode: ClassVar[str] = ""
    builder_name: ClassVar[str] = ""

    def __init_subclass__(cls, *, name: str = "", hlo_opcode: str = "", builder_name: str = "") -> None:
        super().__init_subclass__()
        if name:
            cls.name, cls.hlo_opcode, cls.builder_name = name, hlo_opcode, builder_name

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(d) for d in self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    def result_shape(self, size: int) -> Shape:
        """Return the shape of the result in a group of ``size``; CommunicationError if the operand does not fit."""
        return self.shape

    @abstractmethod
    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Return each process's result; results may share memory with each other and with the operands."""

    @abstractmethod
    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        """Return the results of A * B groups of G processes, given ``extent`` = (A, G, B).

        ``x`` holds the operands, of shape (A, G, B, *shape). The result has shape (A, G, B, *result_shape), or (A, 1,
        B, *result_shape) if all processes of a group get the same.
        """

    def _check_dim(self, dim: int, what: str) -> None:
        if not 0 <= dim < len(self.shape):
            raise CommunicationError(f"{what} {dim} is out of range for an operand of rank {len(self.shape)}")

    def traffic(self, nbytes: int, size: int) -> tuple[int, int]:
        """Return the bytes that the busiest process of a group of ``size`` sends and receives, by the best algorithm.

        ``nbytes`` is the operand's size on the wire. By default every process sends its operand to all others.
        """
        return nbytes * (size - 1), nbytes * (size - 1)

    def total(self, nbytes: int, size: int) -> int:
        """Return the bytes that all processes of a group of ``size`` send in total."""
        return size * self.traffic(nbytes, size)[0]

    @classmethod
    def named(cls, name: str) -> type[Operation]:
        """Return the operation called ``name``, such as ``all_gather``."""
        return next(each for each in cls.kinds() if each.name == name)

    @classmethod
    def kinds(cls) -> Iterator[type[Operation]]:
        """Return all named operations that are subclasses."""
        for each in cls.__subclasses__():
            if "name" in vars(each):
                yield each
            yield from each.kinds()


def strategy(op: str, channel_id: int = 0, use_global_device_ids: bool = False) -> Strategy:
    """Return the strategy by which ``op`` (its name without the dialect) forms process groups.

    Raises GroupError if ``use_global_device_ids`` is set without a positive ``channel_id`` (C4-C6 of the ops).
    """
    grouping = Operation.named(op).grouping
    assert grouping is not None, f"{op} is of all processes"
    return strategy_of(grouping, op, channel_id, use_global_device_ids)


def describe(operation: Operation) -> str:
    """Return the text of an operation for messages: ``all_gather of 4x2 float32, dim 1``."""
    facts = {each.name: getattr(operation, each.name) for each in fields(operation) if each.repr}
    reduction = f" {facts['reduction']}" if "reduction" in facts else ""
    details = [
        f", {name} {short_list(value) if isinstance(value, tuple) else value}"
        for name, value in facts.items()
        if name not in _OMITTED
    ]
    return f"{operation.name}{reduction} of {extent_text(operation.shape, operation.dtype)}{''.join(details)}"


#: Fields that `describe` prints elsewhere, or that follow from the group, types or options.
_OMITTED = frozenset({"shape", "dtype", "reduction", "reproducible", "fill", "split_count"})


@dataclass(frozen=True)
class ReducingOperation(Operation):
    """A collective that reduces operands of several processes."""

    reduction: Reduction
    grouping = REDUCING

    def __post_init__(self) -> None:
        super().__post_init__()
        arithmetic(self.reduction, self.dtype)  # raises TypeError if the reduction is not defined for the type

    @cached_property
    def arithmetic(self) -> Arithmetic:
        """The implementation of the reduction on the operand's element type."""
        return arithmetic(self.reduction, self.dtype)

    @property
    def is_exchanged(self) -> bool:
        """Whether operands are exchanged and folded in group order, rather than reduced by the transport."""
        rule = self.arithmetic
        return rule.step is None or (bool(vars(self)["reproducible"]) and not rule.exact)

    @property
    def associates(self) -> bool:
        """Whether the result depends on the order in which a transport associates the operands."""
        return not self.is_exchanged and not self.arithmetic.exact


@dataclass(frozen=True)
class AllReduce(ReducingOperation, name="all_reduce", hlo_opcode="all-reduce", builder_name="AllReduce"):
    """Every process gets the reduction of all operands."""

    reproducible: bool = False
    mpi_call = "MPI_Allreduce"

    def traffic(self, nbytes: int, size: int) -> tuple[int, int]:
        return by_parts(nbytes, size, 2)  # a reduce_scatter and an all_gather

    def total(self, nbytes: int, size: int) -> int:
        return 2 * nbytes * (size - 1)

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return [self.arithmetic.fold(arrays)] * len(arrays)

    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        return on.fold(x, self.arithmetic)


@dataclass(frozen=True)
class ReduceScatter(
    ReducingOperation, name="reduce_scatter", hlo_opcode="reduce-scatter", builder_name="ReduceScatter"
):
    """Every process gets its slice, along ``dim``, of the reduction of all operands."""

    dim: int
    reproducible: bool = False
    mpi_call = "MPI_Reduce_scatter_block"

    def result_shape(self, size: int) -> Shape:
        self._check_dim(self.dim, "scatter_dimension")
        return split_shape(self.shape, self.dim, size)

    def traffic(self, nbytes: int, size: int) -> tuple[int, int]:
        return by_parts(nbytes, size)

    def total(self, nbytes: int, size: int) -> int:
        return nbytes * (size - 1)

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return np.split(self.arithmetic.fold(arrays), len(arrays), self.dim)

    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        outer, size, inner = extent
        part = self.result_shape(size)
        place = 2 + self.dim
        total = on.reshape(on.fold(x, self.arithmetic), (outer, inner, *part[: self.dim], size, *part[self.dim :]))
        rank = 3 + len(part)
        return on.transpose(total, [0, place, 1, *range(2, place), *range(place + 1, rank)])


@dataclass(frozen=True)
class AllGather(Operation, name="all_gather", hlo_opcode="all-gather", builder_name="AllGather"):
    """Every process gets all operands, concatenated along ``dim``."""

    dim: int
    grouping = REDUCING

    def result_shape(self, size: int) -> Shape:
        self._check_dim(self.dim, "all_gather_dim")
        return scale_shape(self.shape, self.dim, size)

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return [np.concatenate(arrays, self.dim)] * len(arrays)

    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        outer, size, inner = extent
        place = 3 + self.dim
        parts = on.transpose(x, [0, 2, *range(3, place), 1, *range(place, 3 + len(self.shape))])
        return on.reshape(parts, (outer, 1, inner, *self.result_shape(size)))


@dataclass(frozen=True)
class AllToAll(Operation, name="all_to_all", hlo_opcode="all-to-all", builder_name="AllToAll"):
    """Slice i along ``split_dim`` goes to process i; the slices received are concatenated along ``concat_dim``."""

    split_dim: int
    concat_dim: int
    split_count: int
    mpi_call = "MPI_Alltoall"
    grouping = MOVING

    def result_shape(self, size: int) -> Shape:
        self._check_dim(self.split_dim, "split_dimension")
        self._check_dim(self.concat_dim, "concat_dimension")
        if self.split_count != size:
            raise CommunicationError(
                f"(C8) split_count is {self.split_count}, but the process group has {size} processes"
            )
        return scale_shape(split_shape(self.shape, self.split_dim, size), self.concat_dim, size)

    def traffic(self, nbytes: int, size: int) -> tuple[int, int]:
        return by_parts(nbytes, size)

    def total(self, nbytes: int, size: int) -> int:
        return nbytes * (size - 1)

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return list(self.stacked(np.stack(arrays)[None, :, None], (1, len(arrays), 1), ARRAYS)[0, :, 0])

    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        outer, size, inner = extent
        split, concat = 3 + self.split_dim, 4 + self.concat_dim
        part = split_shape(self.shape, self.split_dim, size)
        # (outer, sender, inner, ..., receiver, ...): the receiver's axis replaces the sender's, which moves to the
        # concatenated dimension.
        cut = on.reshape(x, (outer, size, inner, *self.shape[: self.split_dim], size, *part[self.split_dim :]))
        order = [0, split, 2, *(axis for axis in range(3, 4 + len(part)) if axis != split)]
        order.insert(concat - 1, 1)
        return on.reshape(on.transpose(cut, order), (outer, size, inner, *self.result_shape(size)))


@dataclass(frozen=True)
class CollectivePermute(
    Operation, name="collective_permute", hlo_opcode="collective-permute", builder_name="CollectivePermute"
):
    """A target gets its source's operand, by positions in the group; other processes get ``fill``."""

    pairs: tuple[tuple[int, int], ...]
    fill: int = 0
    mpi_call = "MPI_Sendrecv"
    grouping = MOVING

    def source(self, position: int) -> int | None:
        """Return the source that sends to ``position``, or None."""
        return self._ends.sources.get(position)

    def target(self, position: int) -> int | None:
        """Return the target that ``position`` sends to, or None."""
        return self._ends.targets.get(position)

    def linked(self, position: int) -> CollectivePermute:
        """Return the permutation of the pairs that are connected with ``position``, directly or transitively.

        Each pair is a separate process group (StableHLO specification, collective_permute): processes in other pairs
        are neither waited for nor counted. Without pairs if ``position`` is in none.
        """
        return replace(self, pairs=self._ends.linked(position))

    @property
    def ends(self) -> tuple[int, ...]:
        """The sorted positions that are a source or a target."""
        return tuple(sorted({end for pair in self.pairs for end in pair}))

    @cached_property
    def _ends(self) -> Ends:
        return ends_of(self.pairs)

    def result_shape(self, size: int) -> Shape:
        ends = self._ends
        if ends.lowest < 0 or ends.highest >= size:
            raise CommunicationError(f"source_target_pairs {short_list(self.pairs)}: an id is outside 0 to {size - 1}")
        if min(len(ends.sources), len(ends.targets)) < len(self.pairs):
            raise CommunicationError(f"source_target_pairs {short_list(self.pairs)}: a source or target appears twice")
        return self.shape

    def traffic(self, nbytes: int, size: int) -> tuple[int, int]:
        sent = min(nbytes, self.total(nbytes, size))
        return sent, sent

    def total(self, nbytes: int, size: int) -> int:
        return nbytes * sum(source != target for source, target in self.pairs)

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        sources = self._ends.sources
        return [arrays[sources[i]] if i in sources else filled(self) for i in range(len(arrays))]

    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        return on.take(x, self._ends.order(extent[1]), self.fill)


@dataclass(frozen=True)
class CollectiveBroadcast(
    Operation, name="collective_broadcast", hlo_opcode="collective-broadcast", builder_name="CollectiveBroadcast"
):
    """Every process gets the operand of the process at position ``root``."""

    root: int = 0
    mpi_call = "MPI_Bcast"
    grouping = MOVING

    def result_shape(self, size: int) -> Shape:
        check_root(self.root, size)
        return self.shape

    def traffic(self, nbytes: int, size: int) -> tuple[int, int]:
        return nbytes, nbytes

    def total(self, nbytes: int, size: int) -> int:
        return nbytes * (size - 1)  # the root receives nothing

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return [arrays[self.root]] * len(arrays)

    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        return on.take(x, np.array([self.root]), 0)


@dataclass(frozen=True)
class CollectiveReduce(ReducingOperation, name="collective_reduce"):
    """The process at position ``root`` gets the reduction of all operands, the others ``fill``."""

    root: int = 0
    reproducible: bool = False
    fill: int = 0
    mpi_call = "MPI_Reduce"

    def result_shape(self, size: int) -> Shape:
        check_root(self.root, size)
        return self.shape

    def traffic(self, nbytes: int, size: int) -> tuple[int, int]:
        return by_parts(nbytes, size, 2 if self.is_exchanged else 1)  # exchanged by parts, then gathered

    def total(self, nbytes: int, size: int) -> int:
        return (2 if self.is_exchanged else 1) * nbytes * (size - 1)

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        total = self.arithmetic.fold(arrays)
        return [total if i == self.root else filled(self) for i in range(len(arrays))]

    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        total = on.fold(x, self.arithmetic)
        return on.take(total, np.where(np.arange(extent[1]) == self.root, 0, -1), self.fill)


@dataclass(frozen=True)
class Barrier(Operation, name="barrier"):
    """No process returns before all have arrived."""

    shape: Shape = (0,)
    dtype: DType = field(default_factory=lambda: np.dtype(np.uint8))
    mpi_call = "MPI_Barrier"

    def traffic(self, nbytes: int, size: int) -> tuple[int, int]:
        return 0, 0

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return arrays

    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        return x


def by_parts(nbytes: int, size: int, times: int = 1) -> tuple[int, int]:
    """Return the bytes sent, and received, by a process that sends each other one its part, ``times`` times."""
    share = times * -(-nbytes * (size - 1) // size)
    return share, share


def filled(operation: CollectivePermute | CollectiveReduce) -> Array:
    """Return the result of a process that receives nothing: zeros, or the zero point of a quantized type."""
    if operation.fill == 0:
        return np.zeros(operation.shape, operation.dtype)
    return np.full(operation.shape, element(operation.dtype, operation.fill))


def check_root(root: int, size: int) -> None:
    """Raise CommunicationError unless ``root`` is a position in a group of ``size``."""
    if not 0 <= root < size:
        raise CommunicationError(f"root {root} is outside the process group of {size} processes")
