"""Programs of a mesh's devices inside of global ones, as `shard_map` writes them, are checked as those of processes."""

import pytest

import spmd
from spmd.analysis.varying.check import check_processes

SUM = """({ ^bb0(%l: tensor<f32>, %r: tensor<f32>): %s = stablehlo.add %l, %r : tensor<f32>
  stablehlo.return %s : tensor<f32> })"""


def program(body: str, sharding: str) -> spmd.Module:
    return spmd.parse(f"""
sdy.mesh @mesh = <["data"=2, "model"=2]>
func.func @main(%w: tensor<4xf32>, %x: tensor<8x4xf32>) -> tensor<4xf32> {{
  %0 = sdy.manual_computation(%w, %x)
    in_shardings=[<@mesh, [{{}}]>, <@mesh, [{{"data"}}, {{}}]>] out_shardings=[<@mesh, [{{{sharding}}}]>]
    manual_axes={{"data", "model"}} (%v: tensor<4xf32>, %y: tensor<4x4xf32>) {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %own = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
{body}
    }} : (tensor<4xf32>, tensor<8x4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}""", name="step.mlir")  # fmt: skip


def all_reduce(groups: str) -> str:
    return f"""      %g = "stablehlo.all_reduce"(%own) <{{replica_groups = dense<{groups}> : tensor<2x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}}> {SUM}
        : (tensor<4xf32>) -> tensor<4xf32>
"""


LAST = "      %r = stablehlo.subtract %v, %{} : tensor<4xf32>\n      sdy.return %r : tensor<4xf32>"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (LAST.format("own"), (True, 10, "it is a partial sum: stablehlo.reduce at step.mlir:8")),
        (all_reduce("[[0, 1], [2, 3]]") + LAST.format("g"), (True, 14, 'replicated along "data"')),
        (all_reduce("[[0, 2], [1, 3]]") + LAST.format("g"), None),
    ],
)
def test_what_is_said_to_be_replicated(body: str, found: tuple[bool, int, str] | None) -> None:
    """A sum over the axis "data" alone makes the same what differs along it."""
    findings = [each for each in check_processes(program(body, "")) if each.kind.value == "varying-result"]
    if found is None:
        assert findings == []
        return
    certain, line, text = found
    assert [(each.certain, each.diagnostic.location.line) for each in findings] == [(certain, line)]
    assert text in str(findings[0])
