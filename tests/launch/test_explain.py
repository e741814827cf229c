"""What `spmd explain` says of a program's collectives."""

from pathlib import Path

import pytest

from launch.cli import main
from tests.backends.collective_programs import PROGRAMS


def explain(folder: Path, capsys: pytest.CaptureFixture[str], name: str, *options: str) -> str:
    file = folder / "p.mlir"
    file.write_text(PROGRAMS[name].text)
    assert main(["explain", str(file), "--grid", str(PROGRAMS[name].grid), *options]) == 0
    return capsys.readouterr().out


def test_groups_bytes_and_algorithm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = explain(tmp_path, capsys, "flattened_ids")
    assert "process grid 2x2 (replicas by partitions): 4 processes, rank = replica_id * 2 + partition_id" in out
    assert f"{tmp_path / 'p.mlir'}:2:6: stablehlo.all_reduce\n  2 groups: [0, 3], [1, 2]\n" in out
    assert "all_reduce add of 4 float32: sends 16 B, receives 16 B\n    MPI_Allreduce\n" in out


def test_what_makes_another_algorithm_necessary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "reproducible: exchanged by parts" in explain(tmp_path, capsys, "cross_replica", "--reproducible")
    assert "the region is no known" in explain(tmp_path, capsys, "a region that is no monoid, in group order")
    assert "an operation of our own" in explain(tmp_path, capsys, "maximum with NaN")
    assert "MPI_Allgather, an unpacking pass" in explain(tmp_path, capsys, "all_gather")
    assert "MPI_Reduce_scatter_block, a packing pass" in explain(tmp_path, capsys, "reduce_scatter")


def test_operands_that_travel_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = explain(tmp_path, capsys, "variadic")
    assert "all_reduce add of 5 float32" in out and "2 operands travel as one message" in out
    assert "one message" not in explain(tmp_path, capsys, "variadic", "--combine-threshold", "0")


def test_collectives_in_loops_and_channels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "stablehlo.all_reduce, in a loop" in explain(tmp_path, capsys, "a collective in a loop")
    assert "stablehlo.send, channel 7" in explain(tmp_path, capsys, "send and recv with pairs, two in flight")
    assert "no collectives" in explain(tmp_path, capsys, "replica_id and partition_id")
