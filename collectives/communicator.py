"""The protocol that every transport keeps.

A Communicator is one process's end of a process group. Its methods *bind*: they take what is static about a
collective, check it once, and return the closure that the program calls on arrays.

* ``call(array, out=None) -> result``: ``array`` has the bound shape and dtype. The result is the process's own, a
  new array, or ``out`` where given (C-contiguous, of the result's shape and dtype). ``out is array`` asks for the
  collective in place where operand and result have one shape; otherwise the two must not overlap.
* ``start(array) -> Request``: the same without waiting. The operand must stay as it is until ``wait`` returns.

The processes of a group must make the same calls in the same order.
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
#: What processes do that exchange objects for no purpose that is told.
SET_UP = "a set-up exchange"


class BoundCollective(Protocol):
    """A bound collective."""

    def __call__(self, array: Array, out: Array | None = None) -> Array: ...


class Request(Protocol):
    """A collective under way."""

    def wait(self) -> Array:
        """The result, once it is there. May be called once."""
        ...


@dataclass(frozen=True, slots=True)
class Completed(Generic[V]):
    """A request whose result is there already."""

    result: V

    def wait(self) -> V:
        return self.result


class Start(Protocol):
    """A bound nonblocking collective."""

    def __call__(self, array: Array) -> Request: ...


class Communicator(ABC):
    """One process's end of a process group.

    ``rank`` is the process's position in the group, ``size`` the number of its processes, ``members`` their world
    ranks in the group's own order.
    """

    rank: int
    size: int
    members: tuple[int, ...]

    @property
    def world_rank(self) -> int:
        """The process's rank in the whole grid."""
        return self.members[self.rank]

    @abstractmethod
    def group(self, members: Sequence[int]) -> Communicator:
        """The group of the world ranks ``members``, in this order; to be called by its members only.

        Found once and kept: a second call with the same members costs a dictionary look-up.
        """

    @abstractmethod
    def bind(self, operation: Operation, where: str = "") -> BoundCollective:
        """The blocking closure of ``operation``; ``where`` is the place in the source, for messages."""

    @abstractmethod
    def bind_start(self, operation: Operation, where: str = "") -> Start:
        """The nonblocking closure of ``operation``."""

    def send(self, array: Array, target: int, tag: int, where: str = "") -> None:
        """Send a copy of ``array`` to position ``target`` without waiting for its receiver.

        ``tag`` is the number of a channel. ArgumentError where the group has no such position.
        """
        check_peer(target, self.size, "target")
        self._send(np.asarray(array), target, tag, where)

    def receive(self, shape: AnyShape, dtype: npt.DTypeLike, source: int, tag: int, where: str = "") -> Array:
        """Return the next array that position ``source`` has sent here under ``tag``, in the order of sending.

        ArgumentError where the group has no such position, CommunicationError where another size was sent.
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
        """The same group, where processes compare what they are about to do at each collective."""
        return self

    def compare(self, members: Sequence[int], operation: Operation, where: str = "") -> None:  # noqa: B027 (as below)
        """Compares ``operation``, which is about to be called in the group of the world ranks ``members``, with what
        the others of the group are about to call; only the first time that it is called there.

        CommunicationError, on all of them, where they differ, with what each calls and where. Threads of one process
        compare every call by themselves.
        """

    def agree(self, agreement: Agreement) -> None:  # noqa: B027 (threads of one process are given what they share)
        """Compares ``agreement`` with those of the other processes of the group, all of which come here.

        CommunicationError, on all of them, where they differ, with what each has come to and in what.
        """

    def set_timeout(self, seconds: float | None, abort: bool = False) -> None:  # noqa: B027 (nothing to do is common)
        """After how long a wait is told (None: as it is; 0: never), and whether it then ends all processes.

        For MPI ranks; processes that are threads are told when they are run.
        """

    def outside(self) -> AbstractContextManager[None]:
        """A context in which the process waits for something outside the grid, an infeed for one."""
        return nullcontext()

    @abstractmethod
    def allgather_object(self, value: V, what: str = SET_UP) -> list[V]:
        """Every process's ``value``, in group order: for set-up and error reports, not for data.

        ``what`` says what for, to whoever asks why a process waits.
        """

    def finish(self, what: str) -> None:  # noqa: B027 (processes that are threads have met when they are through)
        """Return once all processes of the grid have come here, at the end of their programs.

        A process that waits in its program for one that has come here waits in vain: that ends the job. ``what`` says
        what follows, for messages.
        """

    def exchange_results(self, value: V, what: str) -> list[V]:
        """Return every process's ``value``, in group order, once the programs of all have ended.

        The group is the whole grid. ``what`` says what for, for messages.
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
        """Binds the reduction over all processes: ``"add"``, ``"max"``, ``np.maximum``, a Reduction of one's own."""
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
        """Binds the reduction of which each process gets its part along ``dim``."""
        shape, dtype = as_shape(shape), as_dtype(dtype)
        reduction = as_reduction(reduction, dtype)
        return self._bound(operations.ReduceScatter(shape, dtype, reduction, dim, reproducible), where)

    def all_gather(self, shape: AnyShape, dtype: npt.DTypeLike, dim: int, *, where: str = "") -> BoundCollective:
        """Binds the concatenation of all operands along ``dim``."""
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
        """Binds the exchange of parts along ``split_dim``, concatenated along ``concat_dim``.

        ``split_count`` is the number of parts, which is that of the processes.
        """
        count = self.size if split_count is None else split_count
        operation = operations.AllToAll(as_shape(shape), as_dtype(dtype), split_dim, concat_dim, count)
        return self._bound(operation, where)

    def collective_permute(
        self, shape: AnyShape, dtype: npt.DTypeLike, pairs: Pairs, *, fill: int = 0, where: str = ""
    ) -> BoundCollective:
        """Binds the transfers ``(source, target)``, by position in the group; ``fill`` where nothing arrives."""
        pairs = tuple((int(source), int(target)) for source, target in pairs)
        return self._bound(operations.CollectivePermute(as_shape(shape), as_dtype(dtype), pairs, fill), where)

    def collective_broadcast(
        self, shape: AnyShape, dtype: npt.DTypeLike, root: int = 0, *, where: str = ""
    ) -> BoundCollective:
        """Binds the broadcast from position ``root``."""
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
        """Binds the reduction to position ``root``; the others get ``fill``."""
        shape, dtype = as_shape(shape), as_dtype(dtype)
        reduction = as_reduction(reduction, dtype)
        return self._bound(operations.CollectiveReduce(shape, dtype, reduction, root, reproducible, fill), where)

    def barrier(self, where: str = "") -> None:
        """Waits until every process of the group has come here."""
        operation = operations.Barrier()
        self.bind(operation, where)(np.empty(operation.shape, operation.dtype))

    def _bound(self, operation: Operation, where: str) -> BoundCollective:
        """The closure for a user, who may call it on anything."""
        compare = partial(self.compare, self.members, operation, where)
        return taking_any(self.bind(operation, where), operation, operation.result_shape(self.size), compare)
