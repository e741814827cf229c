"""A permutation belongs to the processes that its pairs link, and to no others."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collectives.operations import CollectivePermute
from collectives.record.activity import Activity, Waiting
from collectives.record.calls import call_of
from collectives.record.diagnosis import diagnose
from collectives.record.reading import Record, _record
from collectives.record.recorder import Recorder

SIZE = 7


@st.composite
def pairs(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    """Unique sources and unique targets of `SIZE` processes, in any order."""
    count = draw(st.integers(0, SIZE))
    sources, targets = (draw(st.permutations(range(SIZE)))[:count] for _ in range(2))
    return tuple(zip(sources, targets, strict=True))


def permute(pairs: tuple[tuple[int, int], ...]) -> CollectivePermute:
    return CollectivePermute((2,), np.dtype(np.float32), pairs)


@given(pairs=pairs())
def test_a_process_takes_part_in_the_pairs_that_link_it_to_others(pairs: tuple[tuple[int, int], ...]) -> None:
    linked = np.eye(SIZE, dtype=bool)
    for source, target in pairs:
        linked[source, target] = linked[target, source] = True
    for _ in range(SIZE):
        linked = linked @ linked
    for rank in range(SIZE):
        part = permute(pairs).linked(rank)
        assert part.pairs == tuple(sorted(pair for pair in pairs if linked[rank, pair[0]]))
        assert (part.source(rank), part.target(rank)) == (permute(pairs).source(rank), permute(pairs).target(rank))
        assert call_of(permute(pairs), range(SIZE), rank, "p.py:1").members == part.ends


def record(rank: int, calls: list[str], size: int = 4) -> Record:
    """What rank `rank` of four records of the given calls: `swap` with its neighbour, `sum` of all."""
    recorder, activity = Recorder(), Activity(8)
    recorder.attach(activity, rank, size, 60.0)
    everyone = tuple(range(size))
    swap = call_of(permute(((0, 1), (1, 0), (2, 3), (3, 2))), everyone, rank, "p.mlir:3")
    for name in calls:
        waiting = Waiting(swap.text, (rank ^ 1,), swap.members, call=swap) if name == "swap" else Waiting(
            "sum", tuple(other for other in everyone if other != rank), everyone
        )  # fmt: skip
        event = activity.begin(waiting, activity.counter(swap.pairs if name == "swap" else everyone))
        event.ended = event.began
        activity.what = None
    return _record(Path(f"rank_{rank}"), recorder.content("a test"))


def test_a_permutation_in_a_branch_is_no_turn_of_the_others() -> None:
    records = [record(rank, ["swap", "sum", "swap"] if rank > 1 else ["sum"]) for rank in range(4)]
    assert not diagnose(records).fault, str(diagnose(records))
    groups = [{call.group for call in each.calls} for each in records]
    assert groups[0] == {"0"} and groups[2] == groups[3] == {"0", "permutation 2->3, 3->2"}
    assert records[3].groups["permutation 2->3, 3->2"] == (2, 3)


def test_who_does_not_come_to_a_permutation_is_behind() -> None:
    records = [record(rank, ["swap"] * (1 + (rank == 3))) for rank in range(4)]
    *calls, last = records[3].calls
    pending = [*calls, type(last)(**{**vars(last), "state": "started", "completed": None})]
    found = diagnose([*records[:3], type(records[3])(**{**vars(records[3]), "calls": tuple(pending)})])
    assert found.fault and "Rank 2 has not reached it" in str(found) and "Rank 0" not in str(found)
