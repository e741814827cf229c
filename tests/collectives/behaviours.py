"""What holds on every transport beside the meaning of each collective: a function of the communicator each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import ml_dtypes
import numpy as np
import pytest

from collectives import (
    ADD,
    MAXIMUM,
    MINIMUM,
    AllGather,
    AllReduce,
    CollectivePermute,
    CommunicationError,
    GroupError,
    Reduction,
)
from collectives.arrays import Array
from collectives.communicator import Communicator
from collectives.mpi.background import LEAST
from collectives.operations import Operation
from collectives.shapes import Shape
from collectives.stacked import Stacks

T = TypeVar("T")
F32 = np.dtype(np.float32)


def starting_does_not_wait(c: Communicator) -> None:
    """The last process starts only when it has heard from another one that has already started: sizes up to those that
    MPI's ranks reduce in a thread of their own, and through memory."""
    last, group = c.size - 1, c.group(tuple(reversed(range(c.size))))
    for tag, count in enumerate((3, LEAST // F32.itemsize, (1 << 20) + 1)):
        start = group.bind_start(AllReduce((count,), F32, ADD))
        if c.rank == last and last:
            assert c.receive((1,), np.int8, 0, tag)[0] == 7
        request = start(np.full(count, c.rank, np.float32))
        if c.rank == 0 and last:
            c.send(np.array([7], np.int8), last, tag)
        np.testing.assert_array_equal(request.wait(), np.full(count, sum(range(c.size)), np.float32))


def several_are_under_way_and_done_in_any_order(c: Communicator) -> None:
    reduce, gather = c.bind_start(AllReduce((1,), F32, ADD)), c.bind_start(AllGather((1,), F32, 0))
    own = np.array([c.rank], np.float32)
    first, second, third = reduce(own), gather(own), reduce(own + 1)
    total = sum(range(c.size))
    assert third.wait().tolist() == [total + c.size]
    assert second.wait().tolist() == list(range(c.size))
    assert first.wait().tolist() == [total]


def the_first_large_sum_of_a_group_passes_small_ones(c: Communicator) -> None:
    """In groups that are new: nothing that a large sum needs of its own meets the messages of the others."""
    large = np.ones(LEAST // F32.itemsize, np.float32)
    for turn in range(1, c.size):
        group = c.group((*range(turn, c.size), *range(turn)))
        starts = [(count, group.bind_start(AllReduce((count,), F32, ADD))) for count in (1, large.size, 2, 31)]
        for count, request in [(count, start(large[:count])) for count, start in starts * 3]:
            np.testing.assert_array_equal(request.wait(), np.full(count, c.size, np.float32))


def permutes_under_way_keep_their_places(c: Communicator) -> None:
    """Whichever is awaited first, and whatever its shape."""
    after, before = [(i, (i + 1) % c.size) for i in range(c.size)], (c.rank - 1) % c.size
    forms = [((3,), np.int16), ((2, 2), np.float32), ((3,), np.int16), ((), np.complex64)]
    for order in ((3, 1, 0, 2), (2, 0, 1, 3)):
        requests = [
            c.bind_start(CollectivePermute(shape, np.dtype(dtype), tuple(after)))(
                np.full(shape, 10 * c.rank + number, dtype)
            )
            for number, (shape, dtype) in enumerate(forms)
        ]
        blocking = c.collective_permute((), np.int64, after)(np.array(77 + c.rank))
        assert int(blocking) == 77 + before
        for number in order:
            shape, dtype = forms[number]
            np.testing.assert_array_equal(requests[number].wait(), np.full(shape, 10 * before + number, dtype))


def nothing_arrives_as_the_same_zero(c: Communicator) -> None:
    """f8E8M0FNU has no zero: the element without bits stands for it, whoever makes it."""
    for name in ("float8_e8m0fnu", "float8_e4m3b11fnuz", "int4", "bfloat16"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        operand = np.ones((2,), np.int8).astype(dtype)
        # Process 0 sends and receives nothing; all but the last send to nobody at all.
        results = [
            c.collective_permute((2,), dtype, [])(operand),
            c.collective_permute((2,), dtype, [(0, c.size - 1)] if c.size > 1 else [])(operand),
            c.collective_reduce((2,), dtype, MAXIMUM, c.size - 1)(operand),
            c.collective_reduce((2,), dtype, Reduction("first", lambda a, b: a), c.size - 1)(operand),
        ]
        empty = results[:1] if c.rank == c.size - 1 else results
        assert all(not result.view(np.uint8).any() for result in empty)


def channels_of_any_number(c: Communicator) -> None:
    """Those that no tag of MPI holds arrive as well, each in its own order."""
    numbers = (-1, 2**31 - 1, 2**31, 2**62, 2**31 - 1)
    after, before = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    for place, number in enumerate(numbers):
        c.send(np.array([place, c.rank], np.int16), after, number)
    for number, place in ((2**62, 3), (2**31 - 1, 1), (-1, 0), (2**31 - 1, 4), (2**31, 2)):
        assert c.receive((2,), np.int16, before, number).tolist() == [place, before]


def collectives_pass_others_that_are_under_way(c: Communicator) -> None:
    """In groups of all and of some, again and again, since what may go wrong depends on who comes first."""
    start, reduce = c.bind_start(AllGather((2,), F32, 0)), c.all_reduce((2,), np.float32)
    pair = c.group((0, 1)).all_reduce((2,), np.float32) if c.size > 1 and c.rank < 2 else None
    own, everyone = np.full(2, c.rank, np.float32), np.repeat(np.arange(c.size, dtype=np.float32), 2)
    for _ in range(100):
        first, second = start(own), start(own)
        if pair is not None:
            assert pair(own).tolist() == [1, 1]
        assert reduce(own).tolist() == [sum(range(c.size))] * 2
        np.testing.assert_array_equal(second.wait(), everyone)
        np.testing.assert_array_equal(first.wait(), everyone)


def transfers_of_a_channel_keep_their_order(c: Communicator) -> None:
    after, before = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    for number in range(4):
        c.send(np.array([10 * c.rank + number]), after, tag=number % 2)
    odd = [int(c.receive((1,), np.int64, before, 1)[0]) for _ in range(2)]
    even = [int(c.receive((1,), np.int64, before, 0)[0]) for _ in range(2)]
    assert (odd, even) == ([10 * before + 1, 10 * before + 3], [10 * before, 10 * before + 2])


def a_sender_may_overwrite_what_it_has_sent(c: Communicator) -> None:
    array = np.full(3, c.rank)
    c.send(array, (c.rank + 1) % c.size, 0)
    array[:] = -1
    assert c.receive((3,), np.int64, (c.rank - 1) % c.size, 0).tolist() == [(c.rank - 1) % c.size] * 3


def groups_are_found_once_and_keep_their_own_order(c: Communicator) -> None:
    members = tuple(reversed(range(c.size)))
    group = c.group(members)
    assert c.group(list(members)) is group and group.group(members) is group
    assert (group.members, group.rank) == (members, c.size - 1 - c.rank)
    gathered = group.all_gather((1,), np.int32, 0)(np.array([c.rank], np.int32))
    assert gathered.tolist() == list(members)
    broadcast = group.collective_broadcast((), np.int32, 0)(np.array(c.rank, np.int32))
    assert int(broadcast) == c.size - 1


def zeros_have_signs(c: Communicator) -> None:
    """IEEE-754: -0 is less than +0, in whatever order they come."""
    for order in (range(c.size), reversed(range(c.size))):
        group = c.group(tuple(order))
        for sign in (1.0, -1.0):
            operand = np.full(9, 0.0 if c.rank == 0 else -0.0, np.float32) * np.float32(sign)
            for reduction, negative in ((MAXIMUM, c.size == 1 and sign < 0), (MINIMUM, c.size > 1 or sign < 0)):
                for reproducible in (False, True):
                    result = group.all_reduce((9,), np.float32, reduction, reproducible=reproducible)(operand)
                    assert np.signbit(result).all() == negative and np.signbit(result).any() == negative


def a_custom_reduction_sees_the_operands_in_group_order(c: Communicator) -> None:
    keep_first = Reduction("first", lambda a, b: a)
    members = (*range(1, c.size), 0)
    result = c.group(members).all_reduce((4,), np.int16, keep_first)(np.full(4, c.rank, np.int16))
    assert result.tolist() == [members[0]] * 4


@dataclass(frozen=True)
class HalfOfNext(Operation, name="half_of_next"):
    """Every process gets the second half of what the next one has."""

    def result_shape(self, size: int) -> Shape:
        return (self.shape[0] // 2,)

    def evaluate(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return [array[self.shape[0] // 2 :] for array in (*arrays[1:], arrays[0])]

    def stacked(self, x: T, extent: tuple[int, int, int], on: Stacks[T]) -> T:
        raise NotImplementedError


def a_collective_that_no_transport_knows_is_carried(c: Communicator) -> None:
    """MPI has no call of it; elements of half a byte travel packed."""
    for dtype in (np.dtype(np.complex64), np.dtype(ml_dtypes.int4), np.dtype(np.bool_)):
        values, after = np.arange(6 * c.size).reshape(c.size, 6).astype(np.int8) % 5, (c.rank + 1) % c.size
        operation, operand = HalfOfNext((6,), dtype), values[c.rank].astype(dtype)
        expected = values[after][3:].astype(dtype)
        np.testing.assert_array_equal(c.bind(operation)(operand), expected, strict=True)
        np.testing.assert_array_equal(c.bind_start(operation)(operand).wait(), expected, strict=True)


def what_does_not_fit_is_told_when_it_is_bound(c: Communicator) -> None:
    if c.size > 1:
        with pytest.raises(CommunicationError, match="cannot be split into"):
            c.reduce_scatter((c.size + 1,), np.float32, 0)
    with pytest.raises(CommunicationError, match="all_gather_dim 1 is out of range"):
        c.all_gather((5,), np.float32, 1)
    with pytest.raises(CommunicationError, match=r"\(C8\) split_count is 77"):
        c.all_to_all((77,), np.float32, 0, 0, 77)
    with pytest.raises(CommunicationError, match="an id is outside 0 to"):
        c.collective_permute((1,), np.float32, [(0, c.size)])
    with pytest.raises(CommunicationError, match="a source or target appears twice"):
        c.collective_permute((1,), np.float32, [(0, 0), (0, 0)])
    with pytest.raises(CommunicationError, match="root -1 is outside"):
        c.collective_broadcast((1,), np.float32, -1)
    with pytest.raises(TypeError, match="or is a reduction of booleans and integers, not of float32"):
        c.all_reduce((1,), np.float32, Reduction("or"))
    with pytest.raises(GroupError, match="members must be distinct ranks of 0 to"):
        c.group((c.size + 1,))
    with pytest.raises(GroupError, match="members must be distinct ranks of 0 to"):
        c.group((c.rank, c.rank))
    with pytest.raises(GroupError, match="members must hold the rank that makes the group"):
        c.group(tuple(rank for rank in range(c.size) if rank != c.rank))
    with pytest.raises(CommunicationError, match=r"target must be a position in the group, of 0 to \d, got \d"):
        c.send(np.ones(3), c.size, 0)
    with pytest.raises(CommunicationError, match=r"source must be a position in the group, of 0 to .*, got -1"):
        c.receive((3,), np.float32, -1, 0)


BEHAVIOURS: list[Callable[[Communicator], None]] = [
    starting_does_not_wait,
    several_are_under_way_and_done_in_any_order,
    the_first_large_sum_of_a_group_passes_small_ones,
    permutes_under_way_keep_their_places,
    nothing_arrives_as_the_same_zero,
    channels_of_any_number,
    collectives_pass_others_that_are_under_way,
    transfers_of_a_channel_keep_their_order,
    a_sender_may_overwrite_what_it_has_sent,
    groups_are_found_once_and_keep_their_own_order,
    zeros_have_signs,
    a_custom_reduction_sees_the_operands_in_group_order,
    a_collective_that_no_transport_knows_is_carried,
    what_does_not_fit_is_told_when_it_is_bound,
]
