"""The folders know of each other only what the design allows: dependencies point one way."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Each layer and the layers it may import when it is loaded, beside itself.
BASE = {
    "collectives.arrays",
    "collectives.errors",
    "collectives.system",
    "collectives.record.recorder",
    "spmd.support.amounts",
    "spmd.support.array_files",
    "spmd.support.arrays",
    "spmd.support.c_names",
    "spmd.support.collecting",
    "spmd.support.context",
    "spmd.support.editions",
    "spmd.support.control_groups",
    "spmd.support.pictures",
    "spmd.support.recursion_guard",
    "spmd.errors",
    "spmd.support.files",
    "spmd.support.registry",
    "spmd.support.rounding",
    "spmd.support.signal_handlers",
    "spmd.types",
    "spmd.ir",
    "spmd.support.machine",
    "spmd.support.processor",
    "spmd.support.protobuf",
}
ALLOWED = {
    "collectives": set(),
    # Records are read and written without MPI.
    "collectives.record": {f"collectives.{name}" for name in ("arrays", "errors", "failure", "operations")}
    | {"collectives.shapes", "collectives.states"},
    "spmd.dialects": BASE,
    "spmd.syntax": BASE | {"spmd.dialects"},
    # Functions that XLA has no opcodes for are written as HLO text of what they compute.
    "spmd.builder": BASE
    | {"spmd.dialects", "spmd.syntax", "spmd.analysis.scalar", "collectives.operations", "collectives.shapes"},
    # The client of XLA's first edition runs what its builder built.
    "spmd.client": BASE | {"spmd.builder", "spmd.backends.custom_calls", "spmd.runtime", "collectives"},
    "spmd.artifacts": BASE | {"spmd.dialects", "spmd.syntax"},
    # A kernel that talks to other processes is given its Process, and finds its ranks: both know of collectives alone.
    "spmd.backends.numpy": BASE
    | {"spmd.dialects", "spmd.analysis", "collectives", "spmd.backends.kernels", "spmd.backends.custom_calls"}
    | {"spmd.runtime.endpoints", "spmd.runtime.process", "spmd.runtime.world"},
    "spmd.backends.kernels": BASE | {"spmd.analysis", "collectives"},
    "spmd.backends.custom_calls": BASE
    | {"spmd.analysis", "collectives", "spmd.backends.kernels", "spmd.backends.c_targets"},
    # What a call of a function of C is: kernels and native code make the same.
    "spmd.backends.c_targets": BASE
    | {"spmd.dialects", "spmd.analysis", "spmd.compiler.schedule", "collectives", "spmd.backends.kernels"},
    "spmd.analysis": BASE | {"spmd.dialects", "collectives"},
    "spmd.backends.llvm": BASE
    | {
        "spmd.dialects",
        "spmd.analysis",
        "spmd.compiler.schedule",
        "spmd.backends.native",
        "spmd.backends.refusals",
        "spmd.backends.c_targets",
        "spmd.support.compiled_cache",
    },
    "spmd.backends.c": BASE
    | {"spmd.analysis", "spmd.compiler.schedule", "spmd.backends.native", "spmd.backends.refusals"}
    | {"spmd.backends.c_header", "spmd.backends.c_targets", "spmd.support.c_compiler", "spmd.dialects"},
    "spmd.support.c_compiler": BASE | {"spmd.support.compiled_cache"},
    "spmd.backends.refusals": BASE | {"spmd.analysis", "spmd.compiler.schedule"},
    "spmd.backends.native": BASE | {"spmd.compiler.schedule"},
    "spmd.backends.c_header": BASE | {"spmd.backends.native"},
    # The schedule knows no back end: the compiler around it hands its units to them.
    "spmd.compiler.schedule": BASE | {"spmd.dialects", "spmd.analysis"},
    "partitioner": BASE | {"spmd.dialects", "spmd.analysis", "collectives"},
    "spmd.compiler": BASE
    | {
        "spmd.dialects",
        "spmd.analysis",
        "spmd.syntax",
        "spmd.backends",
        "partitioner",
        "collectives",
        "spmd.support.usage",
        "spmd.support.compiled_cache",
    },
    # It reads the schedule, prices it, and compares with what runs.
    "spmd.predict": BASE
    | {"spmd.analysis", "spmd.syntax", "spmd.compiler", "spmd.runtime"}
    | {"partitioner", "collectives"},
    # It shows what all the others make of a program.
    "spmd.viewing": BASE
    | {"spmd.dialects", "spmd.analysis", "spmd.compiler", "spmd.runtime", "spmd.predict", "spmd.io"}
    | {"partitioner", "collectives", "spmd.support.usage", "spmd.version"},
    # The search for layouts proper is the partitioner's; this prices what it finds.
    "spmd.sharding_search": BASE
    | {"spmd.dialects", "spmd.analysis", "spmd.compiler", "spmd.predict", "partitioner", "collectives"}
    | {"spmd.support.usage"},
    "spmd.checkpoint": BASE | {"partitioner", "spmd.runtime.world"},
    "spmd.elastic": BASE | {"collectives", "spmd.checkpoint", "spmd.runtime", "collectives.processes"},
    # What runs programs, for frontends that speak PJRT.
    "spmd.pjrt": BASE
    | {"spmd.analysis", "spmd.compiler.pipeline", "spmd.compiler.plan.donation", "spmd.compiler.plan.native_program"}
    | {"spmd.io.reading", "spmd.runtime"}
    | {"spmd.version", "spmd.predict", "partitioner", "collectives"}
    | {"spmd.backends.custom_calls", "spmd.backends.kernels", "spmd.backends.machine_code"},
    "spmd.runtime": BASE
    | {"spmd.dialects", "spmd.analysis", "spmd.backends", "spmd.compiler", "partitioner", "collectives"}
    | {"spmd.support.step_range", "spmd.support.usage"},
}
#: The folders of back ends.
INSIDES = {f"spmd.backends.{folder.parent.name}" for folder in (ROOT / "spmd" / "backends").glob("*/__init__.py")}
#: The one package that may import JAX, which not everybody has.
OF_JAX = ROOT / "spmd" / "jax"
OWN = ("spmd", "collectives", "partitioner", "launch", "tests", "benchmarks")


#: Every module of this repository that is installed, by name, with its file.
MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for package in OWN[:4]
    for file in (ROOT / package).rglob("*.py")
}


@dataclass(frozen=True)
class Import:
    """An import statement: what it names, its first and last line, and where it stands."""

    names: tuple[str, ...]
    line: int
    last_line: int
    is_late: bool
    is_for_types: bool


@cache
def imports(file: Path) -> list[Import]:
    """All imports of a file, in their order, those in functions (late ones) and for types included."""
    found: list[Import] = []

    def visit(node: ast.AST, is_late: bool, is_for_types: bool) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = tuple(prefix + alias.name for alias in node.names)
            found.append(Import(names, node.lineno, node.end_lineno or node.lineno, is_late, is_for_types))
        is_late |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        is_for_types |= isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):  # imports stand in no expression
            for child in getattr(node, field, ()):
                visit(child, is_late, is_for_types)

    visit(ast.parse(file.read_text()), False, False)
    return found


def imported(file: Path, for_types: bool = False) -> set[str]:
    """Modules of this repository that ``file`` imports, inside its functions too; `for_types`: for types alone, too."""
    names = {name for each in imports(file) if for_types or not each.is_for_types for name in each.names}
    return {name for name in names if name.partition(".")[0] in OWN}


def module_of(name: str) -> str:
    """The module that an imported name is, or stands in."""
    return name if name in MODULES else name.rpartition(".")[0]


def files_of(layer: str) -> list[Path]:
    """The file of a module, or those of a package."""
    path = ROOT / layer.replace(".", "/")
    return list(path.rglob("*.py")) or [path.with_suffix(".py")]


def within(name: str, layers: set[str]) -> bool:
    return any(name == layer or name.startswith(layer + ".") for layer in layers)


@pytest.mark.parametrize("layer", ALLOWED)
def test_a_layer_imports_only_what_is_below_it(layer: str) -> None:
    wrong = {
        str(file.relative_to(ROOT)): above
        for file in files_of(layer)
        if (above := {name for name in imported(file) if not within(name, ALLOWED[layer] | {layer})})
    }
    assert wrong == {}


def test_nothing_that_is_installed_imports_tests_or_benchmarks() -> None:
    files = [file for package in OWN[:4] for file in (ROOT / package).rglob("*.py")]
    assert [file for file in files if any(within(name, set(OWN[4:])) for name in imported(file))] == []


def test_only_back_ends_import_the_inside_of_a_back_end() -> None:
    files = [file for package in OWN[:4] for file in (ROOT / package).rglob("*.py")]
    outside = [file for file in files if ROOT / "spmd" / "backends" not in file.parents]
    assert [file for file in outside if any(within(name, INSIDES) for name in imported(file, True))] == []


def test_only_spmd_jax_imports_jax() -> None:
    files = [file for package in OWN[:4] for file in (ROOT / package).rglob("*.py") if OF_JAX not in file.parents]
    assert [file for file in files if re.search(r"^\s*(import|from) jax\b", file.read_text(), re.MULTILINE)] == []


def test_no_files_import_each_other_in_a_circle() -> None:
    waiting = {name: {module_of(other) for other in imported(file)} - {name} for name, file in MODULES.items()}
    while free := {name for name, others in waiting.items() if not others & waiting.keys()}:
        for name in free:
            del waiting[name]
    assert waiting == {}, "these import in a circle, or what does"


def test_no_types_of_the_compiler_and_its_back_ends_need_each_other() -> None:
    inside = {name: file for name, file in MODULES.items() if within(name, {"spmd.compiler", "spmd.backends"})}
    waiting = {name: {module_of(other) for other in imported(file, True)} - {name} for name, file in inside.items()}
    while free := {name for name, others in waiting.items() if not others & waiting.keys()}:
        for name in free:
            del waiting[name]
    assert waiting == {}, "these import in a circle, for types or more"


def test_an_import_in_a_function_counts(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text("if TYPE_CHECKING:\n    import spmd.ir\ndef f():\n    from spmd import types\n")
    assert imported(file) == {"spmd.types"}


def silent_imports(file: Path) -> list[str]:
    """The imports in functions of ``file`` that do not say why they are late: imports in a row say it once."""
    lines = file.read_text().splitlines()
    silent = []
    told = 0  # the last line of an import that says why, or stands below one that does
    for each in imports(file):
        if each.is_late:
            above, own = lines[each.line - 2].strip(), lines[each.line - 1]
            if told == each.line - 1 or above.startswith("#") or "#" in own:
                told = each.last_line
            else:
                silent.append(f"{file.relative_to(ROOT)}:{each.line}: {own.strip()}")
    return silent


def test_a_late_import_says_why() -> None:
    """Those of the command line do so once for all, in launch/cli.py."""
    files = [file for package in OWN[:3] for file in (ROOT / package).rglob("*.py")]
    assert [place for file in files for place in silent_imports(file)] == []
