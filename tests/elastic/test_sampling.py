"""The examples of a step: each of an epoch in one batch, whoever takes which."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd.elastic import Schedule, Settings
from spmd.errors import UsageError

COUNTS = st.integers(1, 200)


@given(COUNTS, COUNTS, st.integers(1, 3), st.integers(0, 5), st.data())
def test_every_example_of_an_epoch_is_counted_once_whatever_the_ranks(
    examples: int, batch: int, epochs: int, seed: int, data: st.DataObject
) -> None:
    schedule = Schedule(examples, batch, epochs, seed)
    seen = np.zeros((epochs, examples))
    for step in range(schedule.steps):
        ranks = data.draw(st.integers(1, 7))
        cuts = [schedule.cut(step, rank, ranks) for rank in range(ranks)]
        assert {len(cut.rows) for cut in cuts} == {len(cut.weights) for cut in cuts} == {schedule.length(ranks)}
        for cut in cuts:
            np.add.at(seen[schedule.place(step)[0]], cut.rows, cut.weights)
        whole = np.concatenate([cut.rows[cut.weights == 1] for cut in cuts])
        assert whole.tolist() == schedule.rows(step).tolist()
    assert (seen == 1).all()


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    first, again, other = Schedule(50, 50, 2, 1), Schedule(50, 7, 2, 1), Schedule(50, 50, 2, 2)
    assert np.concatenate([again.rows(step) for step in range(8)]).tolist() == first.rows(0).tolist()
    assert first.rows(0).tolist() != first.rows(1).tolist() != other.rows(1).tolist()
    assert Schedule(5, 2, 1, shuffle=False).rows(2).tolist() == [4]


@pytest.mark.parametrize("counts", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1.5, 1, 1), (True, 1, 1)])
def test_counts_that_are_none_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="must be a positive integer"):
        Schedule(*counts)


def test_settings_go_through_the_environment_and_are_read_strictly() -> None:
    assert Settings.from_environment({}) == Settings(1, 10.0)
    assert Settings.from_environment(Settings(3, 0.5).variables()) == Settings(3, 0.5)
    several = Settings(1, 2.0, 4, 5, ("python", "-c", "start"))
    assert Settings.from_environment(several.variables()) == several
    for name, text in [("MIN_RANKS", "0"), ("MIN_RANKS", "two"), ("PATIENCE", "-1"), ("PATIENCE", "soon")]:
        with pytest.raises(UsageError, match=f"SPMD_ELASTIC_{name}={text}"):
            Settings.from_environment({f"SPMD_ELASTIC_{name}": text})
