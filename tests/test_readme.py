"""What the README shows works as shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from launch import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(command: list[str], folder: Path) -> str:
    answer = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_the_first_program(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(PYTHON[0])
    printed = run([sys.executable, "first.py"], tmp_path)
    assert printed.count("[6., 6.]") == 4


def test_the_first_program_on_ranks(tmp_path: Path) -> None:
    shared = PYTHON[0][: PYTHON[0].index("grid =")]
    (tmp_path / "sum.py").write_text(shared + PYTHON[1] + "print(total.tolist(), flush=True)\n")
    launch = [sys.executable, "-m", "launch", "launch", "-n", "4", "--"]
    assert run([*launch, sys.executable, "sum.py"], tmp_path).splitlines() == ["[6.0, 6.0]"] * 4


def test_the_simulation(tmp_path: Path) -> None:
    (example,) = [block for block in PYTHON if "spmd.simulate" in block]
    shown = "print(totals.tolist(), total.tolist())\n"
    (tmp_path / "simulation.py").write_text(PYTHON[0][: PYTHON[0].index("grid =")] + example + shown)
    printed = run([sys.executable, "simulation.py"], tmp_path)
    assert printed == f"{[[12.0, 16.0]] * 4} {[[4.0, 4.0]]}\n"


def test_the_example_from_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (example,) = [block for block in PYTHON if "spmd.jax.jit(" in block]
    assert len(example.splitlines()) == 5
    (tmp_path / "train.py").write_text(example + "print(w.round(6).tolist(), flush=True)\n")
    launch = [sys.executable, "-m", "launch", "launch", "-n", "2", "--"]
    first, second = run([*launch, sys.executable, "train.py"], tmp_path).splitlines()
    assert first == second != "[0.0, 0.0, 0.0]"


def test_it_is_one_screen_or_two() -> None:
    assert len(README.splitlines()) <= 150


def test_two_commands_do_all_from_a_fresh_clone() -> None:
    commands = re.findall(r"^python3 -m venv \.venv && \.venv/bin/pip install .*$", README, re.MULTILINE)
    assert [command.split(" && ")[-1].split()[0] for command in commands] == [".venv/bin/spmd", ".venv/bin/python"]


def test_every_command_is_listed() -> None:
    for name in cli.command_names():
        assert re.search(rf"^spmd {name}\b", README, re.MULTILINE)
