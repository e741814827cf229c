"""What processes of a group have called for the first time is compared, as the same of the group's collectives."""

from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collectives.record.activity import Call, Waiting
from collectives.record.first_calls import FirstCalls

GROUP = (0, 2, 5)
NAMES = st.sampled_from(["all_reduce add", "all_reduce maximum", "all_gather", "collective_permute"])


def waiting(name: str, place: str) -> Waiting:
    call = Call(name.split(" ")[0], f"{name} of 4 float32", (4,), (4,), np.dtype(np.float32), GROUP, place)
    return Waiting(f"{call.text} among {list(GROUP)} at {place}", (), GROUP, call=call)


@given(calls=st.lists(NAMES, min_size=1, max_size=6), data=st.data())
def test_who_calls_something_else_is_found_by_the_next_and_nobody_else(calls: list[str], data: st.DataObject) -> None:
    odd, at = data.draw(st.sampled_from(GROUP)), data.draw(st.integers(0, len(calls) - 1))
    instead = data.draw(NAMES)
    processes = {rank: FirstCalls(rank) for rank in GROUP}
    told = []
    for rank in data.draw(st.permutations(GROUP)):
        names = [instead if (rank, number) == (odd, at) else name for number, name in enumerate(calls)]
        firsts = deque((waiting(name, f"{rank}.py"), number) for number, name in enumerate(names, 1))
        told += [(rank, to, content) for to, content in processes[rank].new(firsts).items()]
        assert not firsts
    for rank, to, content in told:
        processes[to].receive(rank, content)
    found = {rank: text for rank, process in processes.items() if (text := process.difference())}
    if calls[at] == instead or "collective_permute" in (calls[at], instead):
        assert not found
        return
    following = GROUP[(GROUP.index(odd) + 1) % len(GROUP)]
    assert set(found) == {odd, following}
    assert all(f"process {odd}: {instead} of 4 float32 among [0, 2, 5] at {odd}.py" in text for text in found.values())


def test_a_call_that_only_one_makes_for_the_first_time_is_not_compared() -> None:
    one, other = FirstCalls(0), FirstCalls(2)
    told = one.new(deque([(waiting("all_reduce add", "a.py"), 7)]))
    other.new(deque([(waiting("all_reduce maximum", "b.py"), 6)]))
    other.receive(0, told[2])
    assert other.difference() == ""
