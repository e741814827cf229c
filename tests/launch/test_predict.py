"""`spmd predict` and `spmd calibrate` on the command line."""

import json
from pathlib import Path

import pytest

from launch.cli import main
from launch.values import counts
from spmd.predict import calibrate
from spmd.predict.machine import RATES, read_machine
from tests.predict.programs import DATA_PARALLEL, SHARDED

LEVELS = '[[level]]\nname = "node"\nlatency = 1e-6\nbandwidth = 1e10\nalgorithm = "ring"\n'


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "step.mlir").write_text(DATA_PARALLEL)
    (tmp_path / "cluster.toml").write_text(LEVELS)
    return str(tmp_path / "step.mlir")


def test_a_page(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", program, "--grid", "4x1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{program} on a 4x1 grid of 4 processes, a nominal core\n")
    for line in ("a step  ", "  computing  ", "  communicating  ", "  waiting for others  ", "memory of a process: "):
        assert f"\n{line}" in out
    assert "sent over level machine: 12.3 kB a process, 49.2 kB in all" in out and f"({program}:" in out


def test_json_and_trace(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    cluster = str(tmp_path / "cluster.toml")
    assert main(["predict", program, "--json", "--trace", str(trace), "--topology", cluster]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["grid"] == [4, 1] and set(report["levels"]) == {"node"}
    events = json.loads(trace.read_text())["traceEvents"]
    ends = [entry["ts"] + entry["dur"] for entry in events if entry["ph"] == "X"]
    assert max(ends) == pytest.approx(1e6 * report["seconds"]) and {entry["pid"] for entry in events} == {0, 1, 2, 3}


def test_a_sweep(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", program, "--sweep", "1,2,...,64", "--topology", str(tmp_path / "cluster.toml")]) == 0
    out = capsys.readouterr().out
    assert "where each process has the same work:" in out and "       64" in out and ". ideal" in out
    (tmp_path / "whole.mlir").write_text(SHARDED)
    assert main(["predict", str(tmp_path / "whole.mlir"), "--sweep", "1,2,4", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert not report["problem_grows"] and [point["processes"] for point in report["points"]] == [1, 2, 4]


def test_numbers_with_dots_between() -> None:
    assert counts("1,2,4,...,32") == [1, 2, 4, 8, 16, 32] and counts("3") == [3]
    assert counts("1, 10, ..., 500") == [1, 10, 100, 500]


@pytest.mark.parametrize("text", ["1,...", "...,4", "1,3,2", "1,1", "0,1", "1,2,...,3,...", "2,3,...,9", "one", ""])
def test_numbers_that_are_none(program: str, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["predict", program, "--sweep", text])
    assert ended.value.code == 2 and "--sweep" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--machine", "none.toml"], "none.toml: cannot be read: No such file"),
        (["--topology", "none.toml"], "none.toml: cannot be read: No such file"),
        (["--check", "--topology", "x.toml"], "--check runs on this machine: it takes no --topology"),
        (["--function", "step"], "has no function @step"),
    ],
)
def test_what_is_wrong_is_a_usage_error(
    program: str, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["predict", program, *options]) == 2
    assert said in capsys.readouterr().err


def test_a_machine_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "_ROUND", 1e-5)
    monkeypatch.setattr(calibrate, "_ROUNDS", 2)
    file = tmp_path / "machine.toml"
    assert main(["calibrate", str(file), "--name", "mine"]) == 0
    machine = read_machine(file)  # which takes positive figures alone
    assert machine.name == "mine" and set(machine.rates) == set(RATES) and not machine.curves
    assert "measuring products" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(tmp_path / "none" / "machine.toml")]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err


def test_predicted_beside_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "alone.mlir"
    file.write_text(SHARDED.replace('"data"=4', '"data"=1'))
    assert main(["predict", str(file), "--check", "--json", "--trace", str(tmp_path / "t.json")]) == 0
    report = json.loads(capsys.readouterr().out)
    whole, apart = report["step"]["measured"], sum(each["measured"] for each in report["units"])
    assert whole > 0 and len(report["units"]) >= 3
    assert report["between"]["measured"] == pytest.approx(max(0.0, whole - apart))
    assert sum(each["share"] for each in (*report["units"], report["between"])) == pytest.approx(1)
    assert all(each["measured"] > 0 and each["predicted"] >= 0 for each in report["units"])
    names = {entry["args"].get("name") for entry in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert {"rank 0, predicted", "rank 0, measured"} <= names
    assert main(["predict", str(file), "--check"]) == 0
    out = capsys.readouterr().out
    assert "predicted  measured  ratio   share\n" in out and out.splitlines()[-1].endswith("  between the units")


def test_the_partitioner_s_table_tells_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "whole.mlir"
    file.write_text(SHARDED)
    (tmp_path / "cluster.toml").write_text(LEVELS)
    assert main(["partition", str(file), "--table"]) == 0
    bare = capsys.readouterr().out
    assert "microseconds" not in bare
    assert main(["partition", str(file), "--table", "--topology", str(tmp_path / "cluster.toml")]) == 0
    told = capsys.readouterr().out
    (row,) = [line.split() for line in told.splitlines() if line.startswith("all_reduce")]
    # A ring of four: six messages of a quarter of the 8,192 bytes, three of them folded; and what calls cost.
    assert float(row[4]) == pytest.approx(1e6 * (6 * (1e-6 + 2048 / 1e10) + 3 * 2048 / 5e9 + 5e-6), abs=0.1)
    assert "microseconds  source" in told
