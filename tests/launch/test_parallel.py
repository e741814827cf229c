"""`spmd run` of processes that run together: streams, different programs, what options change."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch import mpirun
from launch.cli import main
from spmd.support import machine

ROOT = Path(__file__).parents[2]
SPMD = [sys.executable, "-m", "launch"]

STREAM = """module attributes {mhlo.num_replicas = 2 : i32} {
func.func @main() -> tensor<2xf32> {
  %t = stablehlo.after_all : !stablehlo.token
  %r:2 = "stablehlo.infeed"(%t) {infeed_config = ""} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
  %y = "stablehlo.cross-replica-sum"(%r#0) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
    : (tensor<2xf32>) -> tensor<2xf32>
  %o = "stablehlo.outfeed"(%r#0, %r#1) {outfeed_config = ""} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  return %y : tensor<2xf32>
}
}"""
SENDER = """module attributes {mhlo.num_replicas = 3 : i32} {
func.func @main() -> tensor<f32> {
  %t = stablehlo.after_all : !stablehlo.token
  %x = stablehlo.constant dense<5.0> : tensor<f32>
  %s = "stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 3, type = 2>,
    is_host_transfer = true} : (tensor<f32>, !stablehlo.token) -> !stablehlo.token
  return %x : tensor<f32>
}
}"""
RECEIVER = """module attributes {mhlo.num_replicas = 3 : i32} {
func.func @main() -> tensor<f32> {
  %t = stablehlo.after_all : !stablehlo.token
  %r:2 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 3, type = 3>,
    is_host_transfer = true} : (!stablehlo.token) -> (tensor<f32>, !stablehlo.token)
  %y = stablehlo.add %r#0, %r#0 : tensor<f32>
  return %y : tensor<f32>
}
}"""
IDLE = """module attributes {mhlo.num_replicas = 3 : i32} {
func.func @main() -> tensor<f32> {
  %x = stablehlo.constant dense<1.0> : tensor<f32>
  return %x : tensor<f32>
}
}"""

CHECKED = """module {
  func.func @sum(%x: tensor<i32>) -> tensor<i32> {
    %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
      : (tensor<i32>) -> tensor<i32>
    func.return %0 : tensor<i32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<1> : tensor<i32>
    %b = stablehlo.constant dense<2> : tensor<i32>
    %r:2 = "interpreter.run_parallel"(%a, %b) {programs = [[@sum], [@sum]]}
      : (tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
    check.expect_eq_const %r#0, dense<3> : tensor<i32>
    check.expect_eq_const %r#1, dense<WANTED> : tensor<i32>
    func.return
  }
}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("stream", STREAM), ("sender", SENDER), ("receiver", RECEIVER), ("idle", IDLE)):
        (tmp_path / f"{name}.mlir").write_text(text)
    for rank in range(2):
        np.savez(tmp_path / f"feed-{rank}.npz", np.full(2, rank + 1, np.float32))
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("ranks", [False, True], ids=["threads", "ranks"])
def test_streams_of_each_process_are_files(folder: Path, ranks: bool) -> None:
    options = ["stream.mlir", "--infeed", "feed-{rank}.npz", "--outfeed", "out-{rank}.npz", "--profile", "trace.json"]
    program = [*SPMD, "run", *options, "--reproducible", "--check-collectives"]
    command = [*SPMD, "launch", "-n", "2", "--", *program] if ranks else [*program, "--grid", "2x1"]
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[3., 3.]") == 1 and "ranks 0-1" in done.stdout  # equal results are printed once
    for rank in range(2):
        with np.load(folder / f"out-{rank}.npz") as written:
            np.testing.assert_array_equal(written["0"], np.full(2, rank + 1, np.float32))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"rank 0 (0, 0)", "rank 1 (1, 0)"}


def mpmd(*programs: str) -> list[str]:
    launcher = mpirun.find()
    if launcher is None or launcher.kind == "srun":
        pytest.skip("programs side by side are started with mpirun here")
    options = ["--oversubscribe", *["--allow-run-as-root"] * machine.is_root()] if launcher.kind == "openmpi" else []
    parts = [["-n", "1", *SPMD, "run", f"{name}.mlir"] for name in programs]
    return [launcher.path, *options, *parts[0], *(word for part in parts[1:] for word in (":", *part))]


def test_ranks_may_run_different_programs(folder: Path) -> None:
    done = run(mpmd("sender", "idle", "receiver"), folder)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "rank" not in line] == ["5.", "1.", "10."]


def test_a_channel_without_its_other_end_is_told_before_the_programs_run(folder: Path) -> None:
    done = run(mpmd("sender", "idle", "idle"), folder)
    assert done.returncode != 0
    assert "process 0 sends on channel 3, and no process receives from it" in done.stderr


@pytest.mark.parametrize(("expected", "last"), [("3", "1 passed, 0 failed"), ("4", "0 passed, 1 failed")])
def test_conformance_files_run_their_processes_as_ranks(folder: Path, expected: str, last: str) -> None:
    (folder / "checked.mlir").write_text(CHECKED.replace("WANTED", expected))
    done = run([*SPMD, "launch", "-n", "2", "--", *SPMD, "test", "checked.mlir"], folder)
    assert done.stdout.splitlines()[-1] == last
    assert (done.returncode == 0) == (expected == "3")


def test_a_grid_that_does_not_fit_the_ranks_is_told_with_both(folder: Path) -> None:
    done = run([*SPMD, "launch", "-n", "2", "--", *SPMD, "run", "idle.mlir"], folder)
    assert done.returncode == 2
    assert "idle.mlir is for 3 processes (a 3x1 grid), and there are 2 ranks" in done.stderr


def test_ctrl_c_ends_all_processes_of_a_grid(folder: Path) -> None:
    forever = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
  interpreter.print %x : tensor<f32>
  %r = stablehlo.while(%v = %x) : tensor<f32>
    cond {
      %c = stablehlo.constant dense<true> : tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %w = "stablehlo.cross-replica-sum"(%v) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<f32>) -> tensor<f32>
      stablehlo.return %w : tensor<f32>
    }
  return %r : tensor<f32>
}"""
    (folder / "forever.mlir").write_text(forever)
    command = [*SPMD, "run", "forever.mlir", "--grid", "4x1", "--random", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def heed_interrupts() -> None:  # which a shell's background jobs are started without
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    job = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed_interrupts,
    )
    assert job.stdout is not None
    assert "process" in job.stdout.readline()  # one of them runs
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=120)
    assert job.returncode == 130


def test_nothing_of_the_options_is_asked_of_a_process_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "alone.mlir").write_text(IDLE.replace(" attributes {mhlo.num_replicas = 3 : i32}", ""))
    assert main(["run", str(folder / "alone.mlir"), "--collective-timeout", "5", "--combine-threshold", "0"]) == 0
    assert capsys.readouterr().out == "result 0: float32\n1.\n"
