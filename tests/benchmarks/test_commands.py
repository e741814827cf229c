"""The benchmarks run from the command line and write what they measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SOFTMAX = str(ROOT / "benchmarks" / "peers" / "softmax.mlir")


def benchmark(folder: Path, *arguments: str) -> tuple[str, dict]:
    command = [sys.executable, "-m", "benchmarks", *arguments, "--json", str(folder / "out.json")]
    answer = subprocess.run(
        command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout, json.loads((folder / "out.json").read_text())


def test_programs(tmp_path: Path) -> None:
    table, content = benchmark(tmp_path, SOFTMAX, "--seconds", "0.01")
    (result,) = content["programs"]
    assert "softmax" in table
    assert result["spmd"]["median"] > 0
    assert result["memory"] is None or result["memory"]["peak"] > result["memory"]["start"]
    if result["xla"] is not None:
        assert result["ratio"] == pytest.approx(result["spmd"]["median"] / result["xla"]["median"])
        assert result["difference"] < 1e-5
        assert (result["memory"] is None) == (result["xla_memory"] is None)


def test_ops(tmp_path: Path) -> None:
    table, content = benchmark(tmp_path, "ops", "stablehlo.add", "--seconds", "0.001")
    assert "stablehlo.add" in table
    assert content["ops"][0]["nanoseconds"] > 0


def test_hlo(tmp_path: Path) -> None:
    pytest.importorskip("jaxlib")
    text = "HloModule m\nENTRY e {{\n  x = f32[3] parameter(0)\n  ROOT r = f32[3] {}(x)\n}}\n"
    for name, opcode in (("tanh", "tanh"), ("nothing", "nothing"), ("call", "custom-call")):
        (tmp_path / f"{name}.hlo").write_text(text.format(opcode))
    command = [sys.executable, "-m", "benchmarks", "hlo", str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "equal" in answer.stdout and "both refuse it" in answer.stdout


def test_results_are_held_to_their_types() -> None:
    from benchmarks.hlo import compared

    one = np.float32([1, np.nan, np.inf])
    assert compared([one], [one + np.float32(1e-6)])[0] == "equal"
    assert compared([one], [np.float32([1.01, np.nan, np.inf])])[0] == "differs"
    assert compared([one], [np.float32([1, 2, np.inf])])[0] == "differs"
    assert compared([np.int32([1])], [np.int32([2])])[0] == "differs"
    assert compared([one], [one.astype(np.float64)])[0] == "differs"
