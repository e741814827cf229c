"""Whoever waits is watched from the first call on: each case is a job, and what it says in the end."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch import mpirun
from tests.clocks import WATCHDOG_SECONDS

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("waiting_worker.py")
ABORT = {"COLLECTIVE_TIMEOUT": "2", "COLLECTIVE_ABORT": "1"}


def job(case: str, ranks: int = 2, **settings: str) -> tuple[int, str, str]:
    """The status, and what was written to standard output and to standard error."""
    command = [sys.executable, "-m", "launch", "launch", "-n", str(ranks), "--", sys.executable, str(WORKER), case]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WATCHDOG_SECONDS, check=False
    )
    return done.returncode, done.stdout, done.stderr


#: Of these the resident ranks of `tests.mpi.collectives.test_meeting`, `test_job` or another case here hold the facts.
LONG_RUN = {
    "one_of_three_is_missing", "one_saves", "ends_under_a_started_one", "fails_amid_the_loop", "fails_in_a_thread",
    "wait_in_a_circle", "ends_before_the_first_call", "ends_amid_the_loop"
}  # fmt: skip
ENDED = "has ended"
NOT_THERE = "has not reached its first communication"
SUM = "all_reduce add of 8 float32"
FIRST = "the first call of @main at step.mlir:1"


CASES: list[tuple[str, int, dict[str, str], list[str]]] = [
    ("one_of_three_is_missing", 3, ABORT, ["MpiCommunicator.world()", f"process 1: {NOT_THERE}"]),
    ("one_saves", 2, ABORT, ["process 0: waits", "checkpoint.save of step 5", f"process 1: {NOT_THERE}"]),
    ("ends_before_the_first_call", 2, {}, ["process 0 waits forever for process 1", f"process 1: {ENDED}"]),
    ("ends_amid_the_loop", 3, {}, ["forever for process 1", SUM, f"process 1: {ENDED}"]),
    ("finalizes_amid_the_loop", 2, {}, ["forever for process 1", "at train.py:7", f"process 1: {ENDED}"]),
    ("wait_in_a_circle", 3, {"COLLECTIVE_TIMEOUT": "3"}, ["wait forever", f"{SUM} among [1, 2] at train.py:11"]),
    ("ends_under_a_started_one", 2, {}, ["forever for process 1", "at train.py:9", f"process 1: {ENDED}"]),
    ("fails_amid_the_loop", 3, {}, ["rank 1 of 3", "ValueError: out of cheese"]),
    ("fails_in_a_thread", 2, {}, ["rank 1 of 2", "ValueError: out of cheese"]),
    ("a_message_is_too_long", 2, {}, ["[0, 1] at train.py:7", "MPI_ERR_TRUNCATE", "COLLECTIVE_CHECK=1"]),
    ("another_shape_at_the_last_batch", 2, {}, ["wait forever", FIRST, "tensor<7xf32>", "add of scalar float32"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "ranks", "settings", "words"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case[0] in LONG_RUN), id=case[0]) for case in CASES],
)
def test_a_job_whose_ranks_do_not_meet_ends_and_says_why(
    case: str, ranks: int, settings: dict[str, str], words: list[str]
) -> None:
    status, _, said = job(case, ranks, **settings)
    launcher = mpirun.find()
    if case == "a_message_is_too_long" and launcher is not None and launcher.kind != "openmpi":
        assert status != 0 and "exited with status" in said  # MPICH ends the process itself, and raises nothing
        return
    assert status == 1
    last = said.rstrip().splitlines()[-15:]
    assert not [word for word in words if not any(word in line for line in last)], said
    if "cheese" in words[-1]:
        assert last[-1] == words[-1]


BRANCH = """module attributes {mhlo.num_replicas = 3 : i32} {
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %r = stablehlo.replica_id : tensor<ui32>
  %z = stablehlo.constant dense<2> : tensor<ui32>
  %p = stablehlo.compare LT, %r, %z : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
  %0 = "stablehlo.if"(%p) ({
    %1 = "stablehlo.OP
    stablehlo.return %1 : tensor<2xf32>
  }, {
    stablehlo.return %x : tensor<2xf32>
  }) : (tensor<i1>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
}"""
ALL_REDUCE = """all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) : (tensor<2xf32>) -> tensor<2xf32>"""
PERMUTE = """collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 0]]> : tensor<3x2xi64>}
      : (tensor<2xf32>) -> tensor<2xf32>"""


@pytest.mark.parametrize(
    ("op", "options"),
    [
        (ALL_REDUCE, []),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(PERMUTE, []), (ALL_REDUCE, ["--check-collectives"])]
        ],
    ],
    ids=["all_reduce", "permute", "checked"],
)
def test_who_has_finished_its_program_is_not_waited_for(tmp_path: Path, op: str, options: list[str]) -> None:
    program = tmp_path / "branch.mlir"
    program.write_text(BRANCH.replace("OP", op))
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    command = [sys.executable, "-m", "launch"]
    line = [*command, "launch", "-n", "3", "--", *command, "run", os.fspath(program), os.fspath(tmp_path / "x.npy")]
    done = subprocess.run(
        [*line, *options], cwd=ROOT, capture_output=True, text=True, timeout=WATCHDOG_SECONDS, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and "forever for process 2" in done.stderr
    # Of the ring, process 1 has what process 0 sends, and has finished, too.
    assert "branch.mlir:7:10" in done.stderr and "2: has finished its program" in done.stderr
    assert op.partition('"')[0] in done.stderr


def test_ranks_may_end_long_before_others() -> None:
    status, printed, said = job("ends_while_others_have_much_to_do", 3)
    assert (status, said) == (0, "") and printed.count("is through") == 3
