"""What the README shows works as shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from launch import cli
from spmd.predict.machine import nominal

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


def test_the_exploration_and_the_comparison(tmp_path: Path) -> None:
    (example,) = [block for block in PYTHON if "spmd.explore" in block]
    (tmp_path / "explore.py").write_text(PYTHON[0] + example + "print(exploration)\n")
    assert run([sys.executable, "explore.py"], tmp_path).endswith("20 orders give the same\n")


def test_the_checks(tmp_path: Path) -> None:
    """As printed: a step that forgets its mean, two programs that send to each other, a program and its like."""
    commands = [
        line.partition("#")[0]
        for line in re.findall(r"^spmd ((?:check|compare) \S+\.mlir [^\[].*)$", README, re.MULTILINE)
    ]
    assert len(commands) == 3
    values = "(%w: tensor<2xf32>, %x: tensor<2xf32>) -> tensor<2xf32>"
    body = "%0 = stablehlo.subtract %w, %x : tensor<2xf32>\n return %0 : tensor<2xf32>"
    for name in ("step", "split", "first", "other"):
        (tmp_path / f"{name}.mlir").write_text(f"func.func @main{values} {{\n {body}\n}}\n")
    answers = [
        subprocess.run(
            [sys.executable, "-m", "launch", *command.split()],
            cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False,
        )
        for command in commands
    ]  # fmt: skip
    assert [answer.returncode for answer in answers] == [1, 0, 0]
    assert "result 0 is held for the same on all processes" in answers[0].stderr
    assert answers[2].stdout.startswith("they agree")


def test_the_example_from_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (example,) = [block for block in PYTHON if "spmd.jax.jit(" in block]
    assert len(example.splitlines()) == 5
    (tmp_path / "train.py").write_text(example + "print(w.round(6).tolist(), flush=True)\n")
    launch = [sys.executable, "-m", "launch", "launch", "-n", "2", "--"]
    first, second = run([*launch, sys.executable, "train.py"], tmp_path).splitlines()
    assert first == second != "[0.0, 0.0, 0.0]"


def test_the_predictions(tmp_path: Path) -> None:
    commands = re.findall(r"^spmd (predict step\.mlir .*?)$", README, re.MULTILINE)
    assert len(commands) == 2
    (levels,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "cluster.toml").write_text(levels)
    (tmp_path / "machine.toml").write_text(nominal().to_toml())
    groups = str([[8 * replica + place for replica in range(64)] for place in range(8)])
    program = PYTHON[0].split('"""')[1].replace("[[0, 1, 2, 3]]> : tensor<1x4xi64>", f"{groups}> : tensor<8x64xi64>")
    flags = ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}>"
    (tmp_path / "step.mlir").write_text(program.replace("tensor<8x64xi64>}>", "tensor<8x64xi64>" + flags))
    spmd = [sys.executable, "-m", "launch"]
    printed = run([*spmd, *commands[0].split()], tmp_path)
    assert "on a 64x8 grid of 512 processes" in printed and "sent over level cluster: " in printed
    (tmp_path / "step.mlir").write_text(PYTHON[0].split('"""')[1])
    printed = run([*spmd, *commands[1].split()], tmp_path)
    assert "each process has the same work" in printed and "4,096" in printed


def test_two_commands_do_all_from_a_fresh_clone() -> None:
    commands = re.findall(r"^python3 -m venv \.venv && \.venv/bin/pip install .*$", README, re.MULTILINE)
    assert [command.split(" && ")[-1].split()[0] for command in commands] == [".venv/bin/spmd", ".venv/bin/python"]


def test_every_command_is_listed() -> None:
    for name in cli.command_names():
        assert re.search(rf"^spmd {name}\b", README, re.MULTILINE)
