"""Profiles of scripts: what runs on all ranks is in one trace."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spmd
from launch import mpirun
from launch.cli import main
from tests.clocks import WATCHDOG_SECONDS

ROOT = Path(__file__).parents[2]
SPMD = [sys.executable, "-m", "launch"]
PROGRAM = """module attributes {mhlo.num_replicas = 4 : i32} {
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %s = stablehlo.sine %x : tensor<2xf32>
  %y = "stablehlo.cross-replica-sum"(%s) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
    : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
}"""


def events(path: Path) -> list[dict[str, object]]:
    found = json.loads(path.read_bytes())["traceEvents"]
    assert all(event["ts"] >= 0 for event in found if event["ph"] == "X")
    return list(found)


def ran(path: Path, name: str) -> dict[object, int]:
    """How often each track has an event of the name."""
    tracks: dict[object, int] = {}
    for event in events(path):
        if event["ph"] == "X" and event["name"] == name:
            tracks[event["pid"]] = tracks.get(event["pid"], 0) + 1
    return tracks


@pytest.mark.skipif(mpirun.find() is None, reason="no MPI")
def test_all_ranks_are_in_one_file_that_tells_who_waits_for_whom(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = str(Path(__file__).with_name("profile_worker.py"))
    command = [*SPMD, "launch", "-n", "2", "--", sys.executable, worker, str(tmp_path / "part.json")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=WATCHDOG_SECONDS)
    path = tmp_path / "part.json"
    assert ran(path, "stablehlo.cross-replica-sum") == ran(path, "stablehlo.sine") == ran(path, "@main") == {0: 2, 1: 2}
    waits = [event for event in events(path) if event.get("cat") == "wait" and event["dur"] > 5e5]  # type: ignore[operator]
    assert (0, "wait for rank 1") in [(event["pid"], event["name"]) for event in waits]
    assert main(["diagnose", str(path)]) == 0
    told = capfd.readouterr().out
    assert "stablehlo.cross-replica-sum  step.mlir:4" in told
    assert "Rank 1 is the straggler: " in told and "of the others outside of programs." in told
    assert main(["diagnose", "--json", str(path)]) == 0
    straggler = json.loads(capfd.readouterr().out)["straggler"]
    assert straggler["rank"] == 1 and f"{straggler['share']:.0%} of the waiting" in told


@pytest.mark.skipif(mpirun.find() is None, reason="no MPI")
def test_a_whole_script_is_traced_without_a_word_of_it_in_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import numpy as np, spmd\n"
        f"program = {PROGRAM.replace('= 4 :', '= 2 :').replace('[[0, 1, 2, 3]]', '[[0, 1]]').replace('1x4', '1x2')!r}\n"
        "step = spmd.compile(spmd.parse(program, name='step.mlir'))\n"
        "for _ in range(4): step(np.ones(2, np.float32))\n"
    )
    command = [
        *SPMD,
        "launch",
        "-n",
        "2",
        "--profile",
        "trace.json",
        "--profile-steps",
        "1:3",
        "--",
        sys.executable,
        str(script),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=WATCHDOG_SECONDS)
    assert ran(tmp_path / "trace.json", "stablehlo.cross-replica-sum") == {0: 2, 1: 2}


@pytest.mark.parametrize("mode", ["threads", "stacked"])
def test_processes_of_one_computer_have_tracks(tmp_path: Path, mode: str) -> None:
    module, grid = spmd.parse(PROGRAM, name="p.mlir"), spmd.ProcessGrid(4, 1)
    inputs = [(np.full(2, rank, np.float32),) for rank in range(4)]
    plain = spmd.run_parallel(module, grid, inputs, mode=mode)
    with spmd.profile(tmp_path / "trace.json"):
        profiled = spmd.run_parallel(module, grid, inputs, mode=mode)
    assert np.array_equal(plain, profiled)
    tracks = {event["pid"] for event in events(tmp_path / "trace.json") if event["ph"] == "X"}
    assert tracks == {0, 1, 2, 3}


@pytest.mark.parametrize("mode", ["threads", "stacked"])
def test_a_program_is_run_for_as_many_steps_as_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.mlir").write_text(PROGRAM)
    line = [
        "run",
        "p.mlir",
        "--random",
        "0",
        "--grid",
        "4x1",
        "--mode",
        mode,
        "--output",
        "out.npz",
        "--profile",
        "t.json",
    ]
    assert main([*line, "--profile-steps", "2:5"]) == 0
    assert "in steps 2-4" in capsys.readouterr().err
    assert ran(Path("t.json"), "stablehlo.sine") == dict.fromkeys(range(4), 3)
    assert ran(Path("t.json"), "@main") == dict.fromkeys(range(4), 5)
    assert main(["run", "p.mlir", "--random", "0", "--grid", "4x1", "--output", "plain.npz"]) == 0
    with np.load("out.npz") as profiled, np.load("plain.npz") as plain:
        assert all(np.array_equal(profiled[name], plain[name]) for name in plain)
    assert main([*line[:-2], "--profile-steps", "2:5"]) == 2
    assert main([*line, "--profile-steps", "2:5", "--infeed", "f.npz"]) == 2
    with pytest.raises(SystemExit):
        main([*line, "--profile-steps", "5:2"])


def test_each_program_counts_its_own_steps(tmp_path: Path) -> None:
    text = """func.func @{0}(%x: tensor<2xf32>) -> tensor<2xf32> {{
      %y = stablehlo.{0} %x : tensor<2xf32>
      return %y : tensor<2xf32>
    }}"""
    sine, cosine = (spmd.compile(spmd.parse(text.format(name)), function=name) for name in ("sine", "cosine"))
    x = np.ones(2, np.float32)
    with spmd.profile(tmp_path / "trace.json", steps=range(1, 3)):
        for _ in range(4):
            sine(x)
        cosine(x)
    numbers = {(e["name"], e["cat"], e["args"]["step"]) for e in events(tmp_path / "trace.json") if "step" in e["args"]}
    assert numbers == {
        ("@sine", "left out", 0), ("@sine", "program", 1), ("@sine", "program", 2), ("@sine", "left out", 3),
        ("@cosine", "left out", 0),
    }  # fmt: skip
    assert ran(tmp_path / "trace.json", "stablehlo.sine") == {0: 2}
    assert ran(tmp_path / "trace.json", "stablehlo.cosine") == {}
    for steps in (range(0), range(-1, 2), range(0, 9, 2), (1, 2)):
        with pytest.raises(spmd.UsageError, match="steps must be a range"), spmd.profile("t.json", steps=steps):  # type: ignore[arg-type]
            pass


def test_a_simulation_made_before_is_profiled_and_runs_on_as_it_was(tmp_path: Path) -> None:
    simulation = spmd.simulate(spmd.parse(PROGRAM, name="p.mlir"), spmd.ProcessGrid(4, 1))
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    results = [simulation(x)]
    for number in range(2):
        with spmd.profile(tmp_path / f"{number}.json"):
            results += [simulation(x), simulation(x)]
        results.append(simulation(x))
    assert all(np.array_equal(result, results[0]) for result in results)
    counts = {rank for number in range(2) for rank in {e["pid"] for e in events(tmp_path / f"{number}.json")}}
    assert counts == {0, 1, 2, 3}


def test_one_profile_at_a_time_and_none_of_what_fails(tmp_path: Path) -> None:
    module = spmd.parse("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    exe, x = spmd.compile(module), np.ones(2, np.float32)
    with spmd.profile(tmp_path / "outer.json"):
        exe(x)
        with pytest.raises(spmd.UsageError, match="a profile is being taken already"), spmd.profile("inner.json"):
            pass
    with pytest.raises(ZeroDivisionError), spmd.profile(tmp_path / "failed.json"):
        raise ZeroDivisionError
    assert ran(tmp_path / "outer.json", "@main") == {0: 1}
    assert not (tmp_path / "failed.json").exists()
    assert np.array_equal(exe(x)[0], x)
    (tmp_path / "no.json").write_text('{"traceEvents": [{"ph": "X"}]}')
    assert main(["diagnose", str(tmp_path / "no.json")]) == 2
