"""What a caller is given: arrays of its own, which it can write to."""

from collections.abc import Iterator

import numpy as np
import pytest

import spmd
from tests.backends.modules import here

GRID = spmd.ProcessGrid(num_replicas=2, num_partitions=1)
GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
#: By name, what is returned of %x, an array of four floats: the body of the program, and the types of its results.
BODIES = {
    "an argument": ("return %x", "4xf32"),
    "an argument twice": ("return %x, %x", "4xf32", "4xf32"),
    "a constant": ("%r = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>\n return %r", "2xf32"),
    "a constant of equal elements": ("%r = stablehlo.constant dense<1.0> : tensor<9xf32>\n return %r", "9xf32"),
    "repeated rows": (
        "%y = stablehlo.negate %x : tensor<4xf32>\n"
        "%r = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>\n return %r",
        "3x4xf32",
    ),
    "repeated rows, cut": (
        "%y = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>\n"
        "%r = stablehlo.slice %y [0:2, 1:3] : (tensor<3x4xf32>) -> tensor<2x2xf32>\n return %r",
        "2x2xf32",
    ),
    "positions": ("%r = stablehlo.iota dim = 1 : tensor<3x4xi32>\n return %r", "3x4xi32"),
    "two views": (
        "%y = stablehlo.negate %x : tensor<4xf32>\n"
        "%r = stablehlo.slice %y [0:3] : (tensor<4xf32>) -> tensor<3xf32>\n"
        "%s = stablehlo.reshape %y : (tensor<4xf32>) -> tensor<2x2xf32>\n return %r, %s",
        "3xf32", "2x2xf32",
    ),
    "a loop without turns": (
        "%i = stablehlo.constant dense<0> : tensor<i32>\n"
        "%r:2 = stablehlo.while(%a = %i, %b = %x) : tensor<i32>, tensor<4xf32> cond {\n"
        "  %p = stablehlo.compare LT, %a, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "  stablehlo.return %p : tensor<i1>\n"
        "} do { stablehlo.return %a, %b : tensor<i32>, tensor<4xf32> }\n return %r#0, %r#1",
        "i32", "4xf32",
    ),
}  # fmt: skip
#: The same of what processes exchange.
EXCHANGES = {
    "collective_broadcast": (
        f'%r = "stablehlo.collective_broadcast"(%x) {{{GROUPS}}} : (tensor<4xf32>) -> tensor<4xf32>\n return %r',
        "4xf32",
    ),
    "all_gather": (
        f'%r = "stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, {GROUPS}}} '
        ": (tensor<4xf32>) -> tensor<8xf32>\n return %r",
        "8xf32",
    ),
    "collective_permute": (
        '%r = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} '
        ": (tensor<4xf32>) -> tensor<4xf32>\n return %r",
        "4xf32",
    ),
}


def program(body: str, *results: str) -> str:
    types = ", ".join(f"tensor<{result}>" for result in results)
    return f"func.func @main(%x: tensor<4xf32>) -> ({types}) {{\n {body} : {types}\n}}"


def check_owned(results: list[np.ndarray], arguments: list[np.ndarray]) -> None:
    """Each of `results` can be written to, and shares its memory with none of the others."""
    for number, result in enumerate(results):
        assert result.flags.writeable
        assert not any(np.shares_memory(result, other) for other in (*arguments, *results[:number]))


@pytest.fixture(params=[("llvm", "numpy"), ("numpy",)], ids=["native", "numpy"])
def backends(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    yield request.param


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("is_frozen", [False, True], ids=["", "of an argument that is read-only"])
def test_results_are_the_callers_own(name: str, is_frozen: bool, backends: tuple[str, ...]) -> None:
    x = np.arange(4, dtype=np.float32)
    x.flags.writeable = not is_frozen
    executable = spmd.compile(spmd.parse(program(*BODIES[name])), backends=backends)
    check_owned([*executable(x), *executable(x)], [x])
    assert [array.tolist() for array in executable(x)] == [array.tolist() for array in here(program(*BODIES[name]), x)]


@pytest.mark.parametrize("name", [*BODIES, *EXCHANGES])
@pytest.mark.parametrize("mode", ["threads", "stacked"])
def test_results_of_each_process_are_its_own(name: str, mode: str, backends: tuple[str, ...]) -> None:
    text = program(*{**BODIES, **EXCHANGES}[name])
    inputs = [[np.arange(4, dtype=np.float32) + process] for process in range(2)]
    results = spmd.run_parallel(spmd.parse(text), GRID, inputs, mode=mode, backends=backends)
    check_owned([array for process in results for array in process], [array for (array,) in inputs])
