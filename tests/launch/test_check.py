"""`spmd check` tells what only the specification's text forbids, and with --strict refuses it."""

from pathlib import Path

import pytest

import spmd
from launch.cli import main

TEXT = """func.func @main(%a: tensor<f32>) -> tensor<i1> {
  %0 = stablehlo.compare EQ, %a, %a, SIGNED : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
"""


def test_what_the_text_alone_forbids_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.mlir"
    file.write_text(TEXT)
    assert main(["check", str(file)]) == 0
    told = f"{file}:2:8: stablehlo.compare: (C3) compare_type must match the element type, got SIGNED for f32"
    assert f"warning: {told}" in capfd.readouterr().err
    assert main(["check", "--strict", str(file)]) == 1
    shown = capfd.readouterr().err
    assert told in shown and "warning:" not in shown
    (got,) = spmd.compile(spmd.load(file))(1.5)
    assert got


UNKNOWN = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "other.op"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
SOME = """func.func @main(%x: tensor<2xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}>
    : (tensor<2xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
#: Programs that `run --grid 4x1` refuses, what it says, and whether the command warns of it without --strict.
REFUSED = {
    "op": (UNKNOWN, "other.op: no kernel runs this op", True),
    "target": (UNKNOWN.replace('"other.op"', "stablehlo.custom_call @absent"), "no custom call target named", True),
    # Processes 2 and 3 are in no group: either is the first to say so.
    "groups": (SOME, " is in none of the process groups [[0, 1]]", False),
    "mesh": (
        'sdy.mesh @mesh = <["x"=2]>\n'
        + SOME.replace("%x: tensor<2xf32>", '%x: tensor<2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'),
        "the mesh's 2 devices",
        True,
    ),
}


@pytest.mark.parametrize(("text", "told", "is_warning"), REFUSED.values(), ids=REFUSED)
def test_what_run_refuses_is_told(
    text: str, told: str, is_warning: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.mlir"
    file.write_text(text)
    assert main(["run", str(file), "--grid", "4x1", "--random", "0"]) != 0
    assert told in capfd.readouterr().err
    assert main(["check", str(file), "--grid", "4x1", "--strict"]) == 1
    shown = capfd.readouterr().err
    assert told in shown and shown.startswith("error: ")
    assert main(["check", str(file), "--grid", "4x1"]) == int(not is_warning)
    assert told in capfd.readouterr().err
    assert main(["check", "--strict", "4", str(file), ":", "1", str(file)]) == 1
