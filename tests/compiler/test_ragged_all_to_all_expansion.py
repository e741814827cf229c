"""custom_call @ragged_all_to_all, as JAX writes jax.lax.ragged_all_to_all."""

import numpy as np
import pytest

import spmd
from tests.builder.test_hlo_ragged import OUTPUT, ROWS, drawn, expected

GROUPS = [[0, 2], [3, 1]]


def program(config: str, segments: int = 2, index: str = "i32", output: str = f"{OUTPUT}x2xf32") -> str:
    vector = f"tensor<{segments}x{index}>"
    operands = f"%x: tensor<{ROWS}x2xf32>, %y: tensor<{output}>"
    vectors = ", ".join(f"%v{number}: {vector}" for number in range(4))
    return f"""func.func @main({operands}, {vectors}) -> tensor<{output}> {{
  %r = stablehlo.custom_call @ragged_all_to_all(%x, %y, %v0, %v1, %v2, %v3)
    {{api_version = 4 : i32, backend_config = {{{config}}}}}
    : (tensor<{ROWS}x2xf32>, tensor<{output}>, {", ".join([vector] * 4)}) -> tensor<{output}>
  return %r : tensor<{output}>
}}"""


@pytest.mark.parametrize("mode", ["threads", "stacked"])
@pytest.mark.parametrize("channel", [True, False])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_rows_go_where_they_are_sent(index: str, channel: bool, mode: str) -> None:
    config = f"replica_groups = dense<{GROUPS}> : tensor<2x2xi64>" + ", channel_id = 1 : i64" * channel
    module = spmd.parse(program(config, 4, {"int32": "i32", "int64": "i64"}[index]))
    arguments = drawn(np.random.default_rng(7), GROUPS, 2, index)
    grid = spmd.ProcessGrid(1, 4) if channel else spmd.ProcessGrid(4, 1)
    results = spmd.run_parallel(module, grid, arguments, mode=mode, timeout=30)
    for (result,), correct in zip(results, expected(GROUPS, arguments, 2), strict=True):
        np.testing.assert_array_equal(result, correct)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (program("channel_id = 1 : i64"), "backend_config must have replica_groups"),
        (program("replica_groups = dense<0> : tensor<1x3xi64>"), "vectors of a multiple of 3 integers"),
        (
            program("replica_groups = dense<0> : tensor<1x1xi64>", output="7x3xf32"),
            "rows of operand and output must have",
        ),
        (
            program("replica_groups = dense<0> : tensor<1x1xi64>", output="7x2xf64"),
            "rows of operand and output must have",
        ),
    ],
)
def test_what_is_none_is_refused_at_its_place(text: str, fault: str) -> None:
    with pytest.raises(spmd.CompileError, match=rf"<string>:2:.*ragged_all_to_all: .*{fault}"):
        spmd.compile(spmd.parse(text))
