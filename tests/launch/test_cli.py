"""The command line: commands found by name, errors told in a line with status 1, programs run from files."""

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from launch import cli

ROOT = Path(__file__).parents[2]
ADD = """
func.func @main(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %a, %b : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
BF16 = "func.func @main(%a: tensor<2xbf16>) -> tensor<2xbf16> { return %a : tensor<2xbf16> }"
SUM_OF_FOUR = """
module attributes {mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 2 : i32} {
  func.func @main(%a: tensor<f32>) -> tensor<f32> {
    %0 = "stablehlo.all_reduce"(%a) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %1 = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %1 : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
}
"""
LOG = """
func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.log %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"add": ADD, "bf16": BF16, "sum": SUM_OF_FOUR, "log": LOG}.items():
        (tmp_path / f"{name}.mlir").write_text(text)
    np.save(tmp_path / "a.npy", np.array([1, 2], np.float32))
    np.save(tmp_path / "b.npy", np.array([10, 20], np.float32))
    np.savez(tmp_path / "both.npz", x=np.array([1, 2], np.float32), y=np.array([5, 5], np.float32))
    for rank in range(4):
        np.save(tmp_path / f"rank{rank}.npy", np.array(10.0**rank, np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def result(path: Path, name: str = "result0") -> np.ndarray:
    with np.load(path) as file:
        return file[name]


def test_commands_are_the_modules_of_the_package() -> None:
    files = {path.stem for path in (ROOT / "launch" / "commands").glob("[a-z]*.py")}
    assert set(cli.command_names()) == files
    assert {"launch", "run", "check", "print", "info"} <= files


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert exit.value.code == 0
    assert all(cli.load_command(name).HELP.split()[0] in text for name in cli.command_names())


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(["dance"])
    assert exit.value.code == 2
    assert "dance" in capsys.readouterr().err


def test_check_is_silent_on_a_sound_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "add.mlir", "log.mlir"]) == 0
    assert capsys.readouterr() == ("", "")


WRONG = {
    "wrong type": (ADD.replace("%b : tensor<2xf32>\n", "%b : tensor<3xf32>\n"), 3),
    "unknown op": (ADD.replace("stablehlo.add", "stablehlo.sum"), 3),
    "undefined value": (ADD.replace("%a, %b :", "%a, %c :"), 3),
    "missing brace": (ADD.rstrip().rstrip("}"), None),
    "short constant": (
        "func.func @main() -> tensor<3xi32> {\n"
        "  %0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>\n  return %0 : tensor<3xi32>\n}",
        2,
    ),
    "garbage": (bytes(range(256)), None),
    "empty": ("", 1),
}


@pytest.mark.parametrize("what", WRONG)
def test_check_tells_file_line_column_and_caret(folder: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    content, line = WRONG[what]
    Path("wrong.mlir").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert cli.main(["check", "wrong.mlir"]) == 1
    told = capsys.readouterr().err.splitlines()
    file, told_line, column, _ = told[0].split(":", 3)
    assert file == "wrong.mlir" and int(column) >= 1
    assert line is None or int(told_line) == line
    assert told[2].strip() == "^" and told[2].index("^") == int(column) + 1
    assert all(text.isprintable() for text in told)


def test_a_file_that_is_not_there_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("check", "print", "run"):
        assert cli.main([command, "absent.mlir"]) == 1
        told = capsys.readouterr().err
        assert "absent.mlir" in told and "No such file" in told and told.count("\n") == 1


def test_print_gives_what_parses_to_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import spmd

    for flags in ([], ["--generic"]):
        assert cli.main(["print", "add.mlir", *flags]) == 0
        text = capsys.readouterr().out
        assert str(spmd.parse(text)) == str(spmd.load("add.mlir"))
        assert ('"stablehlo.add"(' in text) == bool(flags)


@pytest.mark.parametrize(("files", "expected"), [(["a.npy", "b.npy"], [11, 22]), (["both.npz"], [6, 7])])
def test_run_takes_arrays_from_files(folder: Path, files: list[str], expected: list[float]) -> None:
    assert cli.main(["run", "add.mlir", *files, "--output", "out.npz"]) == 0
    assert result(folder / "out.npz").tolist() == expected


def test_run_prints_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "add.mlir", "both.npz"]) == 0
    assert capsys.readouterr().out == "result 0: 2xfloat32\n[6., 7.]\n"


def test_run_reads_low_precision_arrays_as_the_program_declares(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("x.npy", np.array([1.5, -2], ml_dtypes.bfloat16))
    assert cli.main(["run", "bf16.mlir", "x.npy"]) == 0
    assert capsys.readouterr().out == "result 0: 2xbfloat16\n[1.5, -2]\n"


def test_run_makes_arguments_of_the_signature(folder: Path) -> None:
    for name in ("one.npz", "two.npz"):
        assert cli.main(["run", "add.mlir", "--random", "3", "--output", name]) == 0
    assert result(folder / "one.npz").tolist() == result(folder / "two.npz").tolist()


def test_too_few_arrays_are_an_error_that_names_the_types(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "add.mlir", "a.npy"]) == 1
    assert "@main takes 2 arguments (tensor<2xf32>, tensor<2xf32>), got 1" in capsys.readouterr().err


def test_a_file_that_is_no_array_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "add.mlir", "add.mlir", "a.npy"]) == 1
    assert "add.mlir: not an array file" in capsys.readouterr().err


def test_a_grid_runs_inside_this_process(folder: Path) -> None:
    assert cli.main(["run", "sum.mlir", "rank{rank}.npy", "--grid", "2x2", "--output", "out.npz"]) == 0
    assert [float(result(folder / "out.npz", f"rank{rank}.result0")) for rank in range(4)] == [1111.0] * 4


def test_ranks_of_mpi_give_the_same(folder: Path) -> None:
    command = [sys.executable, "-m", "launch", "launch", "-n", "4", "--", sys.executable, "-m", "launch", "run"]
    command += ["sum.mlir", "rank{rank}.npy", "--output", "out.npz"]
    answer = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert [float(result(folder / "out.npz", f"rank{rank}.result0")) for rank in range(4)] == [1111.0] * 4


def test_nans_are_found_with_their_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("negative.npy", np.array([1, -1], np.float32))
    assert cli.main(["run", "log.mlir", "negative.npy", "--check-nans"]) == 1
    assert "log.mlir:3:" in capsys.readouterr().err


def test_a_profile_is_a_table_and_a_trace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "add.mlir", "both.npz", "--profile", "trace.json"]) == 0
    assert "stablehlo.add" in capsys.readouterr().err
    assert '"stablehlo.add"' in Path("trace.json").read_text()


@pytest.mark.parametrize(("name", "value"), [("COLLECTIVE_TIMEOUT", "abc"), ("COLLECTIVE_ABORT", "perhaps")])
def test_variables_that_cannot_be_read_are_told_before_anything_starts(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert cli.main(["launch", "-n", "2", "--", "true"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"spmd: {name}={value}: ") and said.err.count("\n") == 1
