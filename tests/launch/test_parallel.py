"""`spmd run` of processes that run together in one; on ranks: `tests.mpi.test_commands`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch.cli import main
from tests.clocks import WATCHDOG_SECONDS

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
ALONE = """module {
func.func @main() -> tensor<f32> {
  %x = stablehlo.constant dense<1.0> : tensor<f32>
  return %x : tensor<f32>
}
}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stream.mlir").write_text(STREAM)
    for rank in range(2):
        np.savez(tmp_path / f"feed-{rank}.npz", np.full(2, rank + 1, np.float32))
    return tmp_path


def test_streams_of_each_process_are_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    options = ["stream.mlir", "--infeed", "feed-{rank}.npz", "--outfeed", "out-{rank}.npz", "--profile", "trace.json"]
    assert main(["run", *options, "--reproducible", "--check-collectives", "--grid", "2x1"]) == 0
    out = capsys.readouterr().out
    assert out.count("[3., 3.]") == 1 and "ranks 0-1" in out  # equal results are printed once
    for rank in range(2):
        with np.load(folder / f"out-{rank}.npz") as written:
            np.testing.assert_array_equal(written["0"], np.full(2, rank + 1, np.float32))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"rank 0 (0, 0)", "rank 1 (1, 0)"}


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
    job.communicate(timeout=WATCHDOG_SECONDS)
    assert job.returncode == 130


def test_nothing_of_the_options_is_asked_of_a_process_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "alone.mlir").write_text(ALONE)
    assert main(["run", str(folder / "alone.mlir"), "--collective-timeout", "5", "--combine-threshold", "0"]) == 0
    assert capsys.readouterr().out == "result 0: float32\n1.\n"


SHARDED = """module {
sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func @main(%x: tensor<5xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}]>}, %k: tensor<f32>)
    -> tensor<5xf32> {
  %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<5xf32>
  %y = stablehlo.multiply %x, %b : tensor<5xf32>
  return %y : tensor<5xf32>
}
}"""


@pytest.mark.parametrize(
    ("grid", "replicas"), [((), 1), (("--grid", "1x4"), 1), (("--grid", "4x1"), 1), (("--grid", "2x4"), 2)]
)
def test_results_of_a_mesh_are_whole(
    grid: tuple[str, ...], replicas: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its devices are partitions, replicas, or what a grid is taken to be where none is given."""
    monkeypatch.chdir(tmp_path)
    Path("mesh.mlir").write_text(SHARDED)
    x = np.arange(5, dtype=np.float32)
    np.savez("x.npz", x, np.float32(3))
    assert main(["run", "mesh.mlir", "x.npz", *grid, "--output", "y.npz"]) == 0
    with np.load("y.npz") as written:
        assert len(written.files) == replicas
        for name in written.files:
            np.testing.assert_array_equal(written[name], 3 * x)


SYMBOLIC = """module {
sdy.mesh @mesh = <["x"=2]>
func.func @main(%x: tensor<?xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<?xf32> {
  %y = stablehlo.add %x, %x : tensor<?xf32>
  return %y : tensor<?xf32>
}
}"""


def test_a_program_of_any_size_is_cut_for_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mesh.mlir").write_text(SYMBOLIC)
    for size in (4, 6):
        np.save("x.npy", np.arange(size, dtype=np.float32))
        assert main(["run", "mesh.mlir", "x.npy", "--output", "y.npz"]) == 0
        with np.load("y.npz") as written:
            np.testing.assert_array_equal(written["result0"], 2 * np.arange(size))
