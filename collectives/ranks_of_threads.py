"""A transport for grids of which each MPI rank runs several processes, as threads.

All threads of a rank meet at each collective, whatever their groups are: every process of a grid runs the same program.
The last one to arrive executes it for all of them: without communication for a group whose processes are all of this
rank, else with one exchange for all groups that span the same ranks. So ranks communicate in the order of the program,
from one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from collectives.agreement import Agreement
from collectives.arguments import as_members
from collectives.arrays import Array, DType
from collectives.communicator import SET_UP, BoundCollective, Communicator, Completed, Start, V
from collectives.errors import CommunicationError
from collectives.operations import AllGather, AllReduce, Barrier, Operation, describe
from collectives.shapes import Shape
from collectives.threads import ThreadCommunicator, detached, run

T = TypeVar("T")
_Members = tuple[int, ...]
#: Seconds before a wait between threads of a rank is reported: the transport of the ranks has timeouts of its own.
_NEVER = 1e9


@dataclass(frozen=True)
class _Part:
    """The operand of one process in a collective of its group; `members` is empty for a process in no group."""

    members: _Members
    operation: Operation | None
    array: Array | None
    where: str


class RankOfThreads:
    """A rank, and the processes of a grid that run as its threads.

    One of the threads calls `collectives`, `objects` and `agree` with the values of all of them.
    """

    def __init__(self, ranks: Communicator, owners: Sequence[int]) -> None:
        """Take the position in `ranks` of the rank that runs each process of the grid (`owners`)."""
        self.ranks = ranks
        self.owners = tuple(owners)
        self.own = tuple(process for process, owner in enumerate(owners) if owner == ranks.rank)
        self.communicators = [ThreadOfRank(self, place) for place in range(len(self.own))]
        #: The communicators between the threads of the current run, by position.
        self.threads: dict[int, ThreadCommunicator] = {}
        self._bound: dict[tuple[_Members, Operation], BoundCollective] = {}

    def run(self, process: Callable[[int], T]) -> list[T]:
        """Run `process(place)` in a thread for each of the rank's processes, and return their results in order.

        Raises the first exception of any of them.
        """

        def body(thread: ThreadCommunicator) -> T:
            self.threads[thread.rank] = thread
            return process(thread.rank)

        return run(len(self.own), body, timeout=_NEVER)

    def collectives(self, parts: list[_Part]) -> Sequence[Array | None]:
        """Return the result of each process of the rank; None for one in no group."""
        groups: dict[_Members, dict[int, _Part]] = {}
        for process, part in zip(self.own, parts, strict=True):
            if part.members:
                groups.setdefault(part.members, {})[process] = part
        self._check(parts)
        spans: dict[tuple[_Members, Operation], list[_Members]] = {}
        for members in sorted(groups):
            part = next(iter(groups[members].values()))
            assert part.operation is not None
            ranks = tuple(sorted({self.owners[member] for member in members}))
            spans.setdefault((ranks, part.operation), []).append(members)
        results: dict[int, Array] = {}
        for ranks, operation in sorted(spans, key=lambda span: (span[0], spans[span])):
            together = spans[ranks, operation]
            arrays = {process: part.array for members in together for process, part in groups[members].items()}
            results |= self._among(ranks, together, operation, parts[0].where, arrays)
        return [results.get(process) for process in self.own]

    def _check(self, parts: list[_Part]) -> None:
        """Raise CommunicationError if the processes are at different calls."""
        calls = {(part.operation, part.where) for part in parts if part.operation is not None}
        if len({(operation.name, operation.shape, operation.dtype, where) for operation, where in calls}) > 1:
            listed = "; ".join(sorted(f"{describe(one)}{f' at {where}' if where else ''}" for one, where in calls))
            raise CommunicationError(f"processes of rank {self.ranks.world_rank} are at different calls: {listed}")

    def _among(
        self, ranks: _Members, groups: list[_Members], operation: Operation, where: str, arrays: dict[int, Any]
    ) -> dict[int, Array]:
        """Return the results of the rank's processes in groups that span the same ranks."""
        if isinstance(operation, Barrier):
            if len(ranks) > 1:
                self.ranks.group(ranks).barrier(where)
            return arrays
        if isinstance(operation, AllReduce) and not operation.is_exchanged and len(ranks) > 1:
            return self._reduced(ranks, groups, operation, where, arrays)
        if len(ranks) > 1:
            arrays = self._gathered(ranks, groups, operation, where, arrays)
        results: dict[int, Array] = {}
        for members in groups:
            operands = [arrays[member] for member in members]
            found = detached(operation.evaluate(operands), operands)
            results |= {member: found[place] for place, member in enumerate(members) if member in self.own}
        return results

    def _reduced(
        self, ranks: _Members, groups: list[_Members], operation: AllReduce, where: str, arrays: dict[int, Any]
    ) -> dict[int, Array]:
        """Reduce the operands of each rank, then across ranks, one partial result for each group."""
        own = [[member for member in members if member in self.own] for members in groups]
        parts = np.stack([operation.evaluate([arrays[member] for member in members])[0] for members in own])
        whole = AllReduce(parts.shape, operation.dtype, operation.reduction, operation.reproducible)
        total = self._call(ranks, whole, where, parts)
        return {member: total[place] for place, members in enumerate(own) for member in members}

    def _gathered(
        self, ranks: _Members, groups: list[_Members], operation: Operation, where: str, arrays: dict[int, Any]
    ) -> dict[int, Any]:
        """Return the operands of all processes of the groups."""
        held = [[member for members in groups for member in members if self.owners[member] == rank] for rank in ranks]
        stack = np.zeros((max(map(len, held)), *operation.shape), operation.dtype)
        for place, member in enumerate(held[ranks.index(self.ranks.rank)]):
            stack[place] = arrays[member]
        whole = self._call(ranks, AllGather(stack.shape, operation.dtype, 0), where, stack)
        rows = whole.reshape(len(ranks), *stack.shape)
        return {member: rows[rank, place] for rank, members in enumerate(held) for place, member in enumerate(members)}

    def _call(self, ranks: _Members, operation: Operation, where: str, array: Array) -> Array:
        bound = self._bound.get((ranks, operation))
        if bound is None:
            bound = self._bound[ranks, operation] = self.ranks.group(ranks).bind(operation, where)
        return bound(array)

    def objects(self, values: list[Any]) -> Sequence[Any]:
        """Return the values of all processes of the grid, for each process of the rank."""
        of_ranks = [iter(of_rank) for of_rank in self.ranks.allgather_object(values)]
        everything = [next(of_ranks[owner]) for owner in self.owners]
        return [everything] * len(values)

    def agree(self, values: list[Agreement]) -> Sequence[None]:
        """Compare what the processes of the rank agree on, which is the same, with other ranks."""
        self.ranks.agree(values[0])
        return [None] * len(values)


class ThreadOfRank(Communicator):
    """A process group, for a process that runs as a thread of a rank."""

    def __init__(self, rank_of: RankOfThreads, place: int, members: _Members | None = None) -> None:
        self._rank_of, self._place = rank_of, place
        self.members = tuple(range(len(rank_of.owners))) if members is None else members
        self.size = len(self.members)
        self.rank = self.members.index(rank_of.own[place])
        self._groups: dict[_Members, ThreadOfRank] = {self.members: self}

    def group(self, members: Sequence[int]) -> ThreadOfRank:
        members = tuple(members)
        communicator = self._groups.get(members)
        if communicator is None:
            members = as_members(members, len(self._rank_of.owners), self.world_rank)
            communicator = self._groups[members] = ThreadOfRank(self._rank_of, self._place, members)
            communicator._groups = self._groups
        return communicator

    def bind(self, operation: Operation, where: str = "") -> BoundCollective:
        operation.result_shape(self.size)  # raises where the shapes do not fit the group

        def call(array: Array, out: Array | None = None) -> Array:
            result = self._meet(self._rank_of.collectives, _Part(self.members, operation, array, where), where)
            if out is None:
                return np.array(result)
            np.copyto(out, result)
            return out

        return call

    def bind_start(self, operation: Operation, where: str = "") -> Start:
        call = self.bind(operation, where)
        return lambda array: Completed(call(array))

    def pass_by(self, where: str = "") -> None:
        self._meet(self._rank_of.collectives, _Part((), None, None, where), where)

    def _meet(self, act: Callable[[list[Any]], Sequence[Any]], value: object, where: str) -> Any:
        return self._rank_of.threads[self._place].exchange(act, value, where)

    def _send(self, array: Array, target: int, tag: int, where: str) -> None:
        raise CommunicationError(f"{where}: send is not supported between threads of ranks")

    def _receive(self, shape: Shape, dtype: DType, source: int, tag: int, where: str) -> Array:
        raise CommunicationError(f"{where}: recv is not supported between threads of ranks")

    def agree(self, agreement: Agreement) -> None:
        self._meet(self._rank_of.agree, agreement, "")

    def set_timeout(self, seconds: float | None, abort: bool = False) -> None:
        self._rank_of.ranks.set_timeout(seconds, abort)

    def allgather_object(self, value: V, what: str = SET_UP) -> list[V]:
        gathered: list[V] = self._meet(self._rank_of.objects, value, what)
        return [gathered[member] for member in self.members]
