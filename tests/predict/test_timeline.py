"""Steps of all processes side by side: what is hidden, who waits, and what the length hangs on."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.grid import ProcessGrid, flattened_ids
from collectives.network import Level, Network, Traffic
from collectives.operations import AllReduce, CollectivePermute, Operation
from collectives.reduction import ADD
from spmd.analysis.collectives import Collective
from spmd.predict.events import PricedEvent
from spmd.predict.machine import nominal
from spmd.predict.timeline import OfNetwork, timeline
from spmd.predict.trace import predicted_events
from tests.effort import examples

F32 = np.dtype(np.float32)


class Second:
    """Every collective takes a second, every message of a permutation two."""

    levels = ("all",)

    def of(self, operation: Operation, groups: Any) -> Traffic:
        return Traffic(np.ones(len(groups)), np.array([100.0]))

    def permutation(self, operation: CollectivePermute, source: Any, target: Any) -> Traffic:
        return Traffic(np.full(len(source), 2.0), np.array([50.0]))


def meeting(size: int, groups: list[list[int]], operation: Operation | None = None, **more: Any) -> PricedEvent:
    op: Any = None
    ranks = None if isinstance(operation, CollectivePermute) else flattened_ids(ProcessGrid(1, size), groups)
    return PricedEvent(
        "meet", "p:1", collective=Collective(op, (operation or AllReduce((4,), F32, ADD),), ranks), **more
    )


def test_one_after_another() -> None:
    predicted = timeline(
        [PricedEvent("a", "p:1", 3.0), meeting(2, [[0, 1]]), PricedEvent("b", "p:2", 1.0, turns=2)], 2, Second()
    )
    assert predicted.seconds == 6.0 and predicted.computing.tolist() == [5.0, 5.0]
    assert predicted.communicating.tolist() == [1.0, 1.0] and predicted.bytes.tolist() == [100.0]


@pytest.mark.parametrize(("between", "seconds", "hidden"), [(0.25, 1.25, 0.25), (1.0, 2.0, 1.0), (3.0, 4.0, 1.0)])
def test_communication_beside_computing_is_hidden(between: float, seconds: float, hidden: float) -> None:
    start = meeting(2, [[0, 1]], starts=True)
    events = [
        start,
        PricedEvent("a", "p:1", between),
        PricedEvent("done", "p:2", finishes=start),
        PricedEvent("b", "p:3", 1.0),
    ]
    predicted = timeline(events, 2, Second())
    assert predicted.seconds == pytest.approx(max(between, 1.0) + 1.0) == pytest.approx(max(seconds, 2.0))
    assert predicted.hidden.tolist() == [hidden] * 2 and predicted.communicating.tolist() == [1.0 - hidden] * 2


def test_requests_go_one_after_another() -> None:
    first, second = meeting(2, [[0, 1]], starts=True), meeting(2, [[0, 1]], starts=True)
    predicted = timeline(
        [first, second, PricedEvent("d", "p:1", finishes=first), PricedEvent("e", "p:1", finishes=second)], 2, Second()
    )
    assert predicted.seconds == 2.0


def test_who_comes_first_waits_for_the_last() -> None:
    # Ranks 1 and 2 come a second late, for they met before; then all meet.
    predicted = timeline([meeting(4, [[1, 2]]), meeting(4, [[0, 1], [2, 3]])], 4, Second())
    assert predicted.waiting.tolist() == [1.0, 0.0, 0.0, 1.0] and predicted.seconds == 2.0


def test_a_permutation_is_waited_for_by_both_ends() -> None:
    pairs = CollectivePermute((4,), F32, ((0, 1), (1, 2)))
    predicted = timeline([meeting(4, [[2, 3]]), meeting(4, [], pairs)], 4, Second())
    assert predicted.waiting.tolist() == [0.0, 1.0, 0.0, 0.0] and predicted.communicating.tolist() == [
        2.0,
        2.0,
        3.0,
        1.0,
    ]


@st.composite
def programs(draw: st.DrawFn) -> list[PricedEvent]:
    events: list[PricedEvent] = []
    pending: list[PricedEvent] = []
    halves, thirds = [[0, 1, 2], [3, 4, 5]], [[0, 5], [1, 4], [2, 3]]
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["compute", "meet", "start", "finish"]))
        if kind == "compute":
            events.append(PricedEvent(f"c{number}", "p:1", draw(st.floats(0.01, 2.0)), draw(st.integers(1, 3))))
        elif kind == "finish" and pending:
            events.append(PricedEvent("d", "p:2", finishes=pending.pop(0)))
        else:
            groups = draw(st.sampled_from([halves, thirds, [[0, 2]], [[0, 1, 2, 3, 4, 5]]]))
            events.append(meeting(6, groups, starts=kind == "start"))
            if kind == "start":
                pending.append(events[-1])
    return [*events, *(PricedEvent("d", "p:2", finishes=start) for start in pending)]


@settings(max_examples=examples(150))
@given(programs())
def test_times_add_up(events: list[PricedEvent]) -> None:
    predicted = timeline(events, 6, Second())
    assert predicted.computing + predicted.communicating + predicted.waiting == pytest.approx(
        [float(end) for end in predicted.moments[-1].ends]
    )
    assert sum(seconds for _, seconds in predicted.critical_path()) == pytest.approx(predicted.seconds)
    for rank in range(6):
        shown = [entry for entry in predicted_events(predicted) if entry["ph"] == "X" and entry["pid"] == rank]
        own = sorted((entry["ts"], entry["ts"] + entry["dur"]) for entry in shown if entry["tid"] == 0)
        assert all(before[1] <= after[0] + 1e-3 for before, after in pairwise(own))


def test_a_network_prices_every_group_for_itself() -> None:
    network = Network((Level("node", 2, 1e-6, 1e9), Level("rack", None, 1e-3, 1e6)))
    predicted = timeline([meeting(4, [[0, 1], [2, 3]]), meeting(4, [[0, 2], [1, 3]])], 4, OfNetwork(nominal(), network))
    assert predicted.levels == ["node", "rack"] and (predicted.bytes > 0).all()
    near, far = (float((moment.ends - moment.begins).max()) for moment in predicted.moments)
    assert far > 100 * near
