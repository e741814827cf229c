"""Commands on ranks: `spmd run`, `spmd test` and `spmd info`, as each rank of a job calls them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from collectives import failure
from launch.cli import main
from tests.launch.test_cli import REPLICAS
from tests.runtime import branches

pytestmark = pytest.mark.mpi
WORLD = MPI.COMM_WORLD
RANKS = range(WORLD.size)

STREAM = f"""module attributes {{mhlo.num_replicas = {WORLD.size} : i32}} {{
func.func @main() -> tensor<2xf32> {{
  %t = stablehlo.after_all : !stablehlo.token
  %r:2 = "stablehlo.infeed"(%t) {{infeed_config = ""}} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
  %y = "stablehlo.cross-replica-sum"(%r#0) {{replica_groups = dense<[{list(RANKS)}]> : tensor<1x{WORLD.size}xi64>}}
    : (tensor<2xf32>) -> tensor<2xf32>
  %o = "stablehlo.outfeed"(%r#0, %r#1) {{outfeed_config = ""}} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  return %y : tensor<2xf32>
}}
}}"""
SENDER = f"""module attributes {{mhlo.num_replicas = {WORLD.size} : i32}} {{
func.func @main() -> tensor<f32> {{
  %t = stablehlo.after_all : !stablehlo.token
  %x = stablehlo.constant dense<5.0> : tensor<f32>
  %s = "stablehlo.send"(%x, %t) {{channel_handle = #stablehlo.channel_handle<handle = 3, type = 2>,
    is_host_transfer = true}} : (tensor<f32>, !stablehlo.token) -> !stablehlo.token
  return %x : tensor<f32>
}}
}}"""
RECEIVER = f"""module attributes {{mhlo.num_replicas = {WORLD.size} : i32}} {{
func.func @main() -> tensor<f32> {{
  %t = stablehlo.after_all : !stablehlo.token
  %r:2 = "stablehlo.recv"(%t) {{channel_handle = #stablehlo.channel_handle<handle = 3, type = 3>,
    is_host_transfer = true}} : (!stablehlo.token) -> (tensor<f32>, !stablehlo.token)
  %y = stablehlo.add %r#0, %r#0 : tensor<f32>
  return %y : tensor<f32>
}}
}}"""
IDLE = """module attributes {mhlo.num_replicas = RANKS : i32} {
func.func @main() -> tensor<f32> {
  %x = stablehlo.constant dense<1.0> : tensor<f32>
  return %x : tensor<f32>
}
}"""
SUM = f"""module attributes {{mhlo.num_replicas = {WORLD.size} : i32}} {{
func.func @main(%a: tensor<f32>) -> tensor<f32> {{
  %0 = "stablehlo.cross-replica-sum"(%a) {{replica_groups = dense<[{list(RANKS)}]> : tensor<1x{WORLD.size}xi64>}}
    : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}}
}}"""
RANK = """
func.func @main() -> (tensor<f32>, tensor<ui32>) {
  %0 = stablehlo.constant dense<1.5> : tensor<f32>
  %1 = stablehlo.replica_id : tensor<ui32>
  return %0, %1 : tensor<f32>, tensor<ui32>
}
"""


def checked(wanted: int) -> str:
    """A conformance file of as many processes as there are ranks, which sums ones, and its expected sum."""
    types = ", ".join(["tensor<i32>"] * WORLD.size)
    return f"""module {{
  func.func @sum(%x: tensor<i32>) -> tensor<i32> {{
    %0 = "stablehlo.cross-replica-sum"(%x) {{replica_groups = dense<[{list(RANKS)}]> : tensor<1x{WORLD.size}xi64>}}
      : (tensor<i32>) -> tensor<i32>
    func.return %0 : tensor<i32>
  }}
  func.func @main() {{
    %a = stablehlo.constant dense<1> : tensor<i32>
    %r:{WORLD.size} = "interpreter.run_parallel"({", ".join(["%a"] * WORLD.size)})
      {{programs = [{", ".join(["[@sum]"] * WORLD.size)}]}} : ({types}) -> ({types})
    check.expect_eq_const %r#0, dense<{WORLD.size}> : tensor<i32>
    check.expect_eq_const %r#{WORLD.size - 1}, dense<{wanted}> : tensor<i32>
    func.return
  }}
}}"""


@dataclass(frozen=True)
class Said:
    """What a command returned and printed on each rank."""

    statuses: Sequence[int]
    outs: Sequence[str]
    errs: Sequence[str]

    @property
    def out(self) -> str:
        return "".join(self.outs)

    @property
    def err(self) -> str:
        return "".join(self.errs)


def said(*line: str) -> Said:
    """What `spmd` with these words does on all ranks."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(line))
    everyone = WORLD.allgather((status, out.getvalue(), err.getvalue()))
    return Said(*zip(*everyone, strict=True))


def tell(message: str, status: int = failure.EXIT_FAILURE) -> None:
    """In place of what ends all ranks: these go on to other tests."""
    print(message, file=sys.stderr)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One folder for all ranks, in which they are."""
    folder = Path(WORLD.bcast(os.fspath(tmp_path)))
    programs = {"stream": STREAM, "sender": SENDER, "receiver": RECEIVER, "sum": SUM, "rank": RANK}
    programs["replicas"] = REPLICAS
    programs |= {"idle": IDLE.replace("RANKS", str(WORLD.size)), "three": IDLE.replace("RANKS", "3")}
    if WORLD.rank == 0:
        for name, text in programs.items():
            (folder / f"{name}.mlir").write_text(text)
        for rank in RANKS:
            np.savez(folder / f"feed-{rank}.npz", np.full(2, rank + 1, np.float32))
            np.save(folder / f"rank{rank}.npy", np.array(10.0**rank, np.float32))
        np.save(folder / "a.npy", np.array([7, 8, 9], np.uint32))
    WORLD.Barrier()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(failure, "fail", tell)
    return folder


def test_streams_of_each_rank_are_files(folder: Path) -> None:
    options = ["stream.mlir", "--infeed", "feed-{rank}.npz", "--outfeed", "out-{rank}.npz", "--profile", "trace.json"]
    done = said("run", *options, "--reproducible", "--check-collectives")
    assert not any(done.statuses), done.err
    total = WORLD.size * (WORLD.size + 1) // 2
    assert done.out.count(f"[{total}., {total}.]") == 1, "equal results are printed once"
    assert f"ranks 0-{WORLD.size - 1}" in done.out
    for rank in RANKS:
        with np.load(folder / f"out-{rank}.npz") as written:
            np.testing.assert_array_equal(written["0"], np.full(2, rank + 1, np.float32))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == set(RANKS)
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {f"rank {rank} ({rank}, 0)" for rank in RANKS}


def test_each_rank_takes_its_own_arguments(folder: Path) -> None:
    done = said("run", "sum.mlir", "rank{rank}.npy", "--output", "out.npz")
    assert (set(done.statuses), done.err) == ({0}, "")
    with np.load(folder / "out.npz") as written:
        totals = [float(written[f"rank{rank}.result0"]) for rank in RANKS]
    assert totals == [float(sum(10**rank for rank in RANKS))] * WORLD.size


def test_each_rank_writes_its_own_results(folder: Path) -> None:
    done = said("run", "rank.mlir", "--grid", f"{WORLD.size}x1", "--output", "o-{rank}.npz")
    assert (set(done.statuses), done.err) == ({0}, "")
    for rank in RANKS:
        with np.load(folder / f"o-{rank}.npz") as written:
            assert (written["result0"], written["result1"]) == (1.5, rank)


def test_each_replica_of_a_global_program_has_whole_results(folder: Path) -> None:
    replicas = WORLD.size // 2
    done = said("run", "replicas.mlir", "a.npy", "--grid", f"{replicas}x2")
    assert (set(done.statuses), done.err) == ({0}, "")
    wholes = [f"[{replica}, 7, 8, 9, {replica}]" for replica in range(replicas)]
    assert [line for line in done.out.splitlines() if line[0] == "["] == wholes


def test_ranks_may_run_different_programs(folder: Path) -> None:
    program = ("sender", "idle", "receiver")[WORLD.rank] if WORLD.rank < 3 else "idle"
    done = said("run", f"{program}.mlir")
    assert not any(done.statuses), done.err
    values = [line for line in done.out.splitlines() if "rank" not in line]
    assert sorted(values, key=float) == ["1.", "5.", "10."], "equal results are printed once"


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("op", branches.OPS)
def test_groups_of_a_replica_meet_in_a_branch_of_their_own(folder: Path, op: str, checks: bool) -> None:
    replicas = WORLD.size // 2
    if WORLD.size % 2:
        pytest.skip("replicas of two partitions")
    if WORLD.rank == 0:
        (folder / "branch.mlir").write_text(branches.program(op, replicas))
    WORLD.Barrier()
    line = ["run", "branch.mlir", "rank{rank}.npy", "--grid", f"{replicas}x2", "--output", "branch.npz"]
    done = said(*line, *["--check-collectives"] * checks)
    assert (set(done.statuses), done.err) == ({0}, "")
    with np.load(folder / "branch.npz") as written:
        assert [float(written[f"rank{rank}.result0"]) for rank in RANKS] == [branches.total(op, replicas)] * WORLD.size


def test_a_channel_without_its_other_end_is_told_before_the_programs_run(folder: Path) -> None:
    done = said("run", "sender.mlir" if WORLD.rank == 0 else "idle.mlir")
    assert all(done.statuses)
    assert "process 0 sends on channel 3, and no process receives from it" in done.err


@pytest.mark.parametrize("off", [0, 1])
def test_conformance_files_run_their_processes_as_ranks(folder: Path, off: int) -> None:
    if WORLD.rank == 0:
        (folder / "checked.mlir").write_text(checked(WORLD.size + off))
    WORLD.Barrier()
    done = said("test", "checked.mlir")
    assert done.outs[0].splitlines()[-1] == f"{1 - off} passed, {off} failed"
    assert any(done.statuses) == bool(off)


def test_a_grid_that_does_not_fit_the_ranks_is_told_with_both(folder: Path) -> None:
    if WORLD.size == 3:
        pytest.skip("the program is for three ranks")
    done = said("run", "three.mlir")
    assert set(done.statuses) == {2}
    assert f"three.mlir is for 3 processes (a 3x1 grid), and there are {WORLD.size} ranks" in done.err


def test_each_rank_tells_its_processors_and_threads() -> None:
    done = said("info")
    assert not any(done.statuses), done.err
    lines = done.out.splitlines()
    assert sum(line.startswith("Python ") for line in lines) == 1, "told once"
    for rank in RANKS:
        line = next(line for line in lines if line.startswith(f"rank {rank} "))
        assert ", processors " in line and line.endswith("(as the environment says)")
        assert "openblas" not in line or ": 1" in line
