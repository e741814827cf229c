"""The folders know of each other only what the design allows: dependencies point one way."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Each layer and the layers it may import when it is loaded, beside itself.
BASE = {
    "collectives.errors",
    "spmd.arrays",
    "spmd.collecting",
    "spmd.depth",
    "spmd.errors",
    "spmd.types",
    "spmd.attributes",
    "spmd.ir",
    "spmd.machine",
}
ALLOWED = {
    "collectives": set(),
    "spmd.dialects": BASE,
    "spmd.syntax": BASE | {"spmd.dialects"},
    "spmd.builder": BASE | {"spmd.dialects", "spmd.syntax"},
    # The client of XLA's first edition runs what its builder built.
    "spmd.client": BASE | {"spmd.builder", "spmd.backends.numpy", "spmd.runtime", "collectives"},
    "spmd.artifacts": BASE | {"spmd.dialects", "spmd.syntax"},
    # A kernel that talks to other processes is given its Process, and finds its ranks: both know of collectives alone.
    "spmd.backends.numpy": BASE
    | {"spmd.dialects", "spmd.analysis", "collectives", "spmd.runtime.process", "spmd.runtime.world"},
    "spmd.analysis": BASE | {"spmd.dialects", "collectives"},
    "spmd.backends.llvm": BASE | {"spmd.dialects", "spmd.analysis", "spmd.compiler.schedule"},
    "partitioner": BASE | {"spmd.dialects", "spmd.analysis", "collectives"},
    "spmd.compiler": BASE
    | {
        "spmd.dialects",
        "spmd.analysis",
        "spmd.syntax",
        "spmd.backends.numpy",
        "partitioner",
        "collectives",
        "spmd.usage",
    },
    # It reads the schedule, prices it, and compares with what runs.
    "spmd.predict": BASE
    | {"spmd.analysis", "spmd.syntax", "spmd.backends.llvm", "spmd.compiler", "spmd.runtime"}
    | {"partitioner", "collectives"},
    "spmd.checkpoint": BASE | {"partitioner", "spmd.runtime.world"},
    "spmd.runtime": BASE
    | {"spmd.dialects", "spmd.analysis", "spmd.backends.numpy", "spmd.compiler", "partitioner", "collectives"}
    | {"spmd.usage"},
}
#: The one package that may import JAX, which not everybody has.
OF_JAX = ROOT / "spmd" / "jax"
OWN = ("spmd", "collectives", "partitioner", "launch", "tests", "benchmarks")


def imports_when_loaded(file: Path) -> set[str]:
    """Modules of this repository that ``file`` imports at its top level, for more than its type checker."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.partition(".")[0] in OWN}


def within(name: str, layers: set[str]) -> bool:
    return any(name == layer or name.startswith(layer + ".") for layer in layers)


@pytest.mark.parametrize("layer", ALLOWED)
def test_a_layer_imports_only_what_is_below_it(layer: str) -> None:
    wrong = {
        str(file.relative_to(ROOT)): above
        for file in (ROOT / layer.replace(".", "/")).rglob("*.py")
        if (above := {name for name in imports_when_loaded(file) if not within(name, ALLOWED[layer] | {layer})})
    }
    assert wrong == {}


def test_nothing_that_is_installed_imports_tests_or_benchmarks() -> None:
    files = [file for package in OWN[:4] for file in (ROOT / package).rglob("*.py")]
    assert [file for file in files if any(within(name, set(OWN[4:])) for name in imports_when_loaded(file))] == []


def test_only_spmd_jax_imports_jax() -> None:
    files = [file for package in OWN[:4] for file in (ROOT / package).rglob("*.py") if OF_JAX not in file.parents]
    assert [file for file in files if re.search(r"^\s*(import|from) jax\b", file.read_text(), re.MULTILINE)] == []
