"""A state that is cut outlives ranks: by copies that neighbours hold, else by the newest checkpoint."""

from pathlib import Path

import pytest

from launch import elastic, mpirun
from spmd.checkpoint.blocks import Box
from spmd.elastic import Training
from spmd.errors import UsageError
from tests.elastic.jobs import SHARDED_WORKER, ElasticJob

_launcher = mpirun.find()
needs_tolerance = pytest.mark.skipif(
    _launcher is None or elastic.refusal(_launcher) is not None, reason="this MPI cannot go on without lost ranks"
)


@needs_tolerance
@pytest.mark.parametrize(
    ("faults", "left"),
    [("1@before:6", 3), ("0@after:9,2@after:9", 2), ("3@after:2,0@before:20,1@after:31", 1)],
    ids=["one", "two that are no neighbours", "one after the other"],
)
def test_blocks_of_lost_ranks_are_taken_from_their_neighbours(faults: str, left: int) -> None:
    ended = ElasticJob(4, ["--faults", faults, "--redundancy", "1"], script=SHARDED_WORKER).finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    assert ended.outcome["right"] and ended.outcome["ranks"] == left, ended.screen
    assert not any(ended.outcome["from_checkpoint"])
    first = int(faults.partition(":")[2].partition(",")[0])
    assert ended.outcome["steps"][0] in (first - 1, first, first + 1)


@needs_tolerance
@pytest.mark.parametrize("redundancy", [0, 1])
def test_blocks_that_nobody_has_are_those_of_the_newest_checkpoint(redundancy: int, tmp_path: Path) -> None:
    faults = "3@before:10,0@before:10" if redundancy else "2@before:10"
    arguments = ["--faults", faults, "--redundancy", str(redundancy), "--checkpoints", str(tmp_path)]
    ended = ElasticJob(4, arguments, script=SHARDED_WORKER).finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    assert ended.outcome["right"] and ended.outcome["from_checkpoint"] == [True], ended.screen
    assert "blocks of the state are lost, and the newest checkpoint is taken" in ended.screen
    assert "ranks go on with step 8 after" in ended.screen


@needs_tolerance
def test_without_copy_and_checkpoint_the_job_has_failed() -> None:
    ended = ElasticJob(3, ["--faults", "1@before:10"], script=SHARDED_WORKER).finish()
    assert (ended.faults, ended.status) == ([], 1), ended.screen
    assert "blocks of the state are lost, of which no rank has a copy, and there is no checkpoint" in ended.screen


@needs_tolerance
def test_ranks_that_join_take_blocks() -> None:
    arguments = ["--faults", "0@before:3", "--redundancy", "1", "--await-ranks", "3"]
    ended = ElasticJob(3, arguments, ["--replace"], script=SHARDED_WORKER).finish()
    assert (ended.faults, ended.status) == ([], 0), ended.screen
    assert ended.outcome["right"] and ended.outcome["ranks"] == 3, ended.screen


def test_what_blocks_share() -> None:
    first, second = Box((2, 0), (4, 5)), Box((3, 4), (9, 9))
    assert first.common(second) == second.common(first) == Box((3, 4), (3, 1))
    assert first.common(second).within(first) == (slice(1, 4), slice(4, 5))
    assert first.common(Box((6, 0), (1, 1))).size == 0
    assert Box((), ()).common(Box((), ())) == Box((), ())


def test_redundancy_is_for_a_state_that_is_cut() -> None:
    with pytest.raises(UsageError, match="require a sharded state"):
        Training(0, examples=1, batch=1, epochs=1, redundancy=1)
    with pytest.raises(UsageError, match="0 or 1, got 2"):
        Training(0, examples=1, batch=1, epochs=1, redundancy=2, shardings=lambda rank, ranks: None)
