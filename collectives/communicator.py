"""The interface that every transport implements.

A Communicator is one process's handle of a process group. Its methods *bind*: they take the static parameters of a
collective, check them once, and return the closure that the program calls on arrays, like a persistent request. The
processes of a group must make the same calls in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from collectives import operations
from collectives.agreement import Agreement
from collectives.arguments import AnyReduction, AnyShape, as_dtype, as_reduction, as_shape, check_peer, taking_any
from collectives.arrays import Array, DType
from collectives.operations import Operation
from collectives.reduction import ADD
from collectives.shapes import Shape

Pairs = Sequence[tuple[int, int]]
V = TypeVar("V")
#: What an exchange of objects is called in error reports by default.
SET_UP = "a set-up exchange"


class BoundCollective(Protocol):
    """The blocking closure of a collective: ``call(array, out=None)``.

    ``array`` has the bound shape and dtype. Returns a new array that belongs to the caller, or ``out`` if given:
    C-contiguous, of the result's shape and dtype. ``out is array`` runs the collective in place, where operand and
    result have the same shape; otherwise the two must not overlap. On return the operand may be overwritten. Raises
    ArgumentError for arrays that do not fit, CommunicationError if the processes call different collectives or a rank
    never arrives.
    """

    def __call__(self, array: Array, out: Array | None = None) -> Array: ...


class Request(Protocol):
    """A pending collective."""

    def wait(self) -> Array:
        """Return the result once it is available; the operand may then be overwritten. To be called once."""
        ...


@dataclass(frozen=True, slots=True)
class Completed(Generic[V]):
    """A request whose result is available."""

    result: V

    def wait(self) -> V:
        return self.result


class Start(Protocol):
    """The nonblocking closure of a collective: the operand must not be modified until ``wait`` returns."""

    def __call__(self, array: Array) -> Request: ...


class Communicator(ABC):
    """One process's handle of a process group.

    ``rank`` is the process's position in the group, ``size`` the number of its processes, ``members`` their world ranks
    in group order. The methods named after collectives return a `BoundCollective` for operands of ``shape`` (a tuple or
    a number) and ``dtype``; ``where`` is the source location for messages. They raise ArgumentError if shape, dtype or
    reduction are none, and CommunicationError if the shape does not fit the group.
    """

    rank: int
    size: int
    members: tuple[int, ...]

    @property
    def world_rank(self) -> int:
        """Return the process's rank in the whole grid."""
        return self.members[self.rank]

    @property
    def others(self) -> tuple[int, ...]:
        """Return the world ranks of the other processes of the group."""
        return self.members[: self.rank] + self.members[self.rank + 1 :]

    @abstractmethod
    def group(self, members: Sequence[int]) -> Communicator:
        """Return the group of the world ranks ``members``, in this order. Collective over these ranks; cached.

        Raises GroupError unless the members are distinct ranks that include this one.
        """

    @abstractmethod
    def bind(self, operation: Operation, where: str = "") -> BoundCollective:
        """Return the blocking closure of ``operation``; ``where`` is the source location for messages.

        Raises CommunicationError if the operation does not fit the group.
        """

    @abstractmethod
    def bind_start(self, operation: Operation, where: str = "") -> Start:
        """Return the nonblocking closure of ``operation``, as `bind` does."""

    def send(self, array: Array, target: int, tag: int, where: str = "") -> None:
        """Send ``array`` to position ``target`` without waiting for the receiver; it may be overwritten on return.

        ``tag`` is the channel number, any 64-bit integer. Raises ArgumentError if the group has no such position.
        """
        check_peer(target, self.size, "target")
        self._send(np.asarray(array), target, tag, where)

    def receive(self, shape: AnyShape, dtype: npt.DTypeLike, source: int, tag: int, where: str = "") -> Array:
        """Block until the next array from position ``source`` under ``tag`` arrives, in sending order, and return it.

        ``shape`` and ``dtype`` are those of the array sent. Raises ArgumentError if the group has no such position,
        CommunicationError if an array of another size was sent or the source ends without sending.
        """
        check_peer(source, self.size, "source")
        return self._receive(as_shape(shape), as_dtype(dtype), source, tag, where)

    @abstractmethod
    def _send(self, array: Array, target: int, tag: int, where: str) -> None: ...

    @abstractmethod
    def _receive(self, shape: Shape, dtype: DType, source: int, tag: int, where: str) -> Array: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: process {self.rank} of {self.size}>"

    def checked(self) -> Communicator:
        """Return the same group with a check before each collective that all processes call the same one."""
        return self

    def pass_by(self, where: str = "") -> None:  # noqa: B027 (a no-op by default)
        """Skip a collective in which this process is in none of the groups."""

    def compare(self, members: Sequence[int], operation: Operation, where: str = "") -> None:  # noqa: B027 (no-op)
        """Compare ``operation`` with what the other processes of the group ``members`` are about to call.

        Only at its first call there. Raises CommunicationError on all of them if they differ, with each operation and
        its source location. A no-op between threads of one process, which compare every call.
        """

    def agree(self, agreement: Agreement) -> None:  # noqa: B027 (see above)
        """Compare ``agreement`` with those of the other processes of the group. Collective over the group.

        Raises CommunicationError on all of them if they differ, with the differing facts.
        """

    def set_timeout(self, seconds: float | None, abort: bool = False) -> None:  # noqa: B027 (a no-op by default)
        """Set the time in seconds after which a blocked call is reported (0: never; None: unchanged).

        ``abort`` makes the report end all processes. For MPI ranks; ignored by processes that are threads.
        """

    def outside(self) -> AbstractContextManager[None]:
        """Return a context in which the process waits for something outside the grid, such as an infeed."""
        return nullcontext()

    @abstractmethod
    def allgather_object(self, value: V, what: str = SET_UP) -> list[V]:
        """Return every process's ``value``, in group order. Collective; for set-up and error reports, not for data.

        ``what`` names the exchange in reports of blocked calls.
        """

    def finish(self, what: str) -> None:  # noqa: B027 (threads are joined at the end)
        """Return once all processes of the grid have called this at the end of their programs.

        A process that blocks in its program on one that is here ends the job with an error. ``what`` names the next
        step in messages.
        """

    def exchange_results(self, value: V, what: str) -> list[V]:
        """Return every process's ``value``, in group order, once the programs of all have ended.

        The group is the whole grid. ``what`` names the exchange in messages.
        """
        self.finish(what)
        return self.allgather_object(value, what)

    def all_reduce(
        self,
        shape: AnyShape,
        dtype: npt.DTypeLike,
        reduction: AnyReduction = ADD,
        *,
        reproducible: bool = False,
        where: str = "",
    ) -> BoundCollective:
        """Bind the reduction of all operands; operand and result have ``shape``.

        ``reduction`` is ``"add"``, ``"max"``, ``np.maximum``, ... or a Reduction with a fold of the user's. A
        ``reproducible`` one folds in group order, with the same bits on every transport. Raises TypeError if the
        reduction is not defined for ``dtype``.
        """
        shape, dtype = as_shape(shape), as_dtype(dtype)
        return self._bound(operations.AllReduce(shape, dtype, as_reduction(reduction, dtype), reproducible), where)

    def reduce_scatter(
        self,
        shape: AnyShape,
        dtype: npt.DTypeLike,
        dim: int,
        reduction: AnyReduction = ADD,
        *,
        reproducible: bool = False,
        where: str = "",
    ) -> BoundCollective:
        """Bind the reduction of all operands of ``shape``, of which process i gets slice i along ``dim``.

        The result has ``shape`` with dimension ``dim`` divided by ``size``, which must divide it. ``reduction`` and
        ``reproducible`` are as for `all_reduce`.
        """
        shape, dtype = as_shape(shape), as_dtype(dtype)
        reduction = as_reduction(reduction, dtype)
        return self._bound(operations.ReduceScatter(shape, dtype, reduction, dim, reproducible), where)

    def all_gather(self, shape: AnyShape, dtype: npt.DTypeLike, dim: int, *, where: str = "") -> BoundCollective:
        """Bind the concatenation of all operands along ``dim``, whose size is multiplied by ``size`` in the result."""
        return self._bound(operations.AllGather(as_shape(shape), as_dtype(dtype), dim), where)

    def all_to_all(
        self,
        shape: AnyShape,
        dtype: npt.DTypeLike,
        split_dim: int,
        concat_dim: int,
        split_count: int | None = None,
        *,
        where: str = "",
    ) -> BoundCollective:
        """Bind the exchange of slices: slice i along ``split_dim`` goes to process i.

        The slices received are concatenated along ``concat_dim``: the result has ``shape`` with ``split_dim`` divided,
        then ``concat_dim`` multiplied, by ``size``. ``split_count``, the number of slices, must be ``size``.
        """
        count = self.size if split_count is None else split_count
        operation = operations.AllToAll(as_shape(shape), as_dtype(dtype), split_dim, concat_dim, count)
        return self._bound(operation, where)

    def collective_permute(
        self, shape: AnyShape, dtype: npt.DTypeLike, pairs: Pairs, *, fill: int = 0, where: str = ""
    ) -> BoundCollective:
        """Bind the transfers ``(source, target)`` between positions; operand and result have ``shape``.

        The result is filled with ``fill`` on processes that are no target. Sources must be distinct, targets as well.
        """
        pairs = tuple((int(source), int(target)) for source, target in pairs)
        return self._bound(operations.CollectivePermute(as_shape(shape), as_dtype(dtype), pairs, fill), where)

    def collective_broadcast(
        self, shape: AnyShape, dtype: npt.DTypeLike, root: int = 0, *, where: str = ""
    ) -> BoundCollective:
        """Bind the broadcast of the operand at position ``root``; operand and result have ``shape``.

        All processes pass an operand; only the root's is read.
        """
        return self._bound(operations.CollectiveBroadcast(as_shape(shape), as_dtype(dtype), root), where)

    def collective_reduce(
        self,
        shape: AnyShape,
        dtype: npt.DTypeLike,
        reduction: AnyReduction = ADD,
        root: int = 0,
        *,
        reproducible: bool = False,
        fill: int = 0,
        where: str = "",
    ) -> BoundCollective:
        """Bind the reduction of all operands to position ``root``; operand and result have ``shape``.

        The others get an array filled with ``fill``. ``reduction`` and ``reproducible`` are as for `all_reduce`.
        """
        shape, dtype = as_shape(shape), as_dtype(dtype)
        reduction = as_reduction(reduction, dtype)
        return self._bound(operations.CollectiveReduce(shape, dtype, reduction, root, reproducible, fill), where)

    def barrier(self, where: str = "") -> None:
        """Block until every process of the group has called this."""
        operation = operations.Barrier()
        self.bind(operation, where)(np.empty(operation.shape, operation.dtype))

    def _bound(self, operation: Operation, where: str) -> BoundCollective:
        """Bind ``operation`` with the arguments of each call checked and converted."""
        compare = partial(self.compare, self.members, operation, where)
        return taking_any(self.bind(operation, where), operation, operation.result_shape(self.size), compare)
