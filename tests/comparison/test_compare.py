"""Two programs are compared value by value: what parts is named by op and line, and what only rounds passes."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partitioner
import spmd
from launch.cli import main
from spmd.comparison.distance import distance
from spmd.comparison.search import Difference
from tests.effort import examples

MODEL = """
sdy.mesh @mesh = <["data"=2, "model"=2]>
func.func @main(%w1: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>},
                %w2: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>},
                %x: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}) -> tensor<6x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %floor = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<6x16xf32>
  %h = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0]
    : (tensor<6x8xf32>, tensor<8x16xf32>) -> tensor<6x16xf32>
  %a = stablehlo.maximum %h, %floor : tensor<6x16xf32>
  %s = stablehlo.sine %a : tensor<6x16xf32>
  %m = stablehlo.multiply %s, %a : tensor<6x16xf32>
  %y = stablehlo.dot_general %m, %w2, contracting_dims = [1] x [0]
    : (tensor<6x16xf32>, tensor<16x4xf32>) -> tensor<6x4xf32>
  %e = stablehlo.multiply %y, %y : tensor<6x4xf32>
  %r = stablehlo.add %y, %e : tensor<6x4xf32>
  %t = stablehlo.tanh %r : tensor<6x4xf32>
  return %t : tensor<6x4xf32>
}
"""
GRID = spmd.ProcessGrid(1, 4)
#: What an op may become: another of the same types.
OTHERS = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "add",
    "sine": "cosine",
    "tanh": "logistic",
    "maximum": "add",
}


@pytest.fixture(scope="module")
def split() -> str:
    return str(partitioner.partition(spmd.parse(MODEL), GRID).module)


def lines_of(text: str) -> list[int]:
    """The lines whose op may become another, outside of regions."""
    return [
        number
        for number, line in enumerate(text.split("\n"), 1)
        if (match := re.search(r"= stablehlo\.(\w+) ", line)) and match[1] in OTHERS and line.startswith("    %")
    ]


def mutated(text: str, number: int) -> str:
    lines = text.split("\n")
    lines[number - 1] = re.sub(r"stablehlo\.(\w+) ", lambda match: f"stablehlo.{OTHERS[match[1]]} ", lines[number - 1])
    return "\n".join(lines)


def test_a_program_and_what_the_partitioner_makes_of_it(split: str) -> None:
    assert spmd.compare(spmd.parse(MODEL), spmd.parse(split), grid=GRID).equal


def test_a_mutation_of_a_partitioned_program_is_found_where_it_is(split: str) -> None:
    lines = lines_of(split)
    assert len(lines) >= 5
    for number in lines:
        found = spmd.compare(
            spmd.parse(MODEL), spmd.parse(mutated(split, number), name="split.mlir"), grid=GRID, seed=1
        )
        assert isinstance(found.first, Difference), split.split("\n")[number - 1]
        assert found.first.right is not None and found.first.right.location.line == number
        assert f"split.mlir:{number}" in str(found)


def test_a_collective_that_combines_otherwise(split: str) -> None:
    assert "stablehlo.all_reduce" in split
    text = re.sub(r"(all_reduce.*?)stablehlo\.add", r"\1stablehlo.maximum", split, count=1, flags=re.DOTALL)
    found = spmd.compare(spmd.parse(MODEL), spmd.parse(text), grid=GRID)
    assert found.first is not None and found.first.right is not None
    assert found.first.right.name == "stablehlo.all_reduce"


LOOP = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %end, %r = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %next = stablehlo.add %i, %one : tensor<i32>
    %late = stablehlo.compare GE, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %z = "stablehlo.if"(%late) ({
      %s = stablehlo.sine %y : tensor<4xf32>
      stablehlo.return %s : tensor<4xf32>
    }, {
      %c = stablehlo.add %y, %x : tensor<4xf32>
      stablehlo.return %c : tensor<4xf32>
    }) : (tensor<i1>) -> tensor<4xf32>
    stablehlo.return %next, %z : tensor<i32>, tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
"""


def test_a_difference_inside_of_a_loop() -> None:
    """The first iteration in which the bodies part, and the op in the branch that is taken there."""
    left, right = spmd.parse(LOOP), spmd.parse(LOOP.replace("stablehlo.sine", "stablehlo.cosine"))
    inputs = [np.float32([0.1, 0.2, 0.3, 0.4]), np.int32(5)]
    found = spmd.compare(left, right, inputs)
    assert found.first is not None and found.first.left is not None
    assert (found.first.left.name, found.first.iterations) == ("stablehlo.sine", (3,))
    assert spmd.compare(left, right, [inputs[0], np.int32(3)]).equal


def test_one_program_by_two_back_ends() -> None:
    assert spmd.compare(spmd.parse(LOOP), inputs=[np.ones(4, np.float32), np.int32(7)]).equal


def test_a_peer_that_is_wrong() -> None:
    module = spmd.parse("func.func @main(%x: tensor<3xi32>) -> tensor<3xi32> { return %x : tensor<3xi32> }")
    found = spmd.compare(module, (module, lambda _, arrays: [arrays[0] + np.int32([0, 0, 1])]))
    assert found.first is not None and found.first.distance.index == (2,)


def test_what_does_not_take_the_same_arguments() -> None:
    left = spmd.parse("func.func @main(%x: tensor<3xi32>) -> tensor<3xi32> { return %x : tensor<3xi32> }")
    right = spmd.parse("func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> { return %x : tensor<4xi32> }")
    with pytest.raises(spmd.UsageError, match="different arguments"):
        spmd.compare(left, right)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@settings(max_examples=examples(50))
@given(st.floats(-1000, 1000), st.integers(1, 40))
def test_distances_are_in_units_of_the_last_place(dtype: type, value: float, steps: int) -> None:
    x = np.array([value], dtype)
    if abs(x[0]) < 1e-3:
        return
    y = x.copy()
    y[0] += steps * np.spacing(np.abs(x[0])) * np.sign(x[0])
    found = distance(x, y)
    assert found is not None and steps / 2 <= found.ulps <= steps


def test_nan_and_infinity_are_no_rounding() -> None:
    one = np.float32([1, np.nan, np.inf, -0.0])
    assert distance(one, np.float32([1, np.nan, np.inf, 0.0])) is None
    for other in ([1, 1, np.inf, 0], [1, np.nan, -np.inf, 0], [1, np.nan, np.nan, 0]):
        found = distance(one, np.float32(other))
        assert found is not None and found.relative == np.inf


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right = tmp_path / "a.mlir", tmp_path / "b.mlir"
    left.write_text(LOOP)
    right.write_text(LOOP.replace("add %y, %x", "subtract %y, %x"))
    assert main(["compare", str(left), str(left)]) == 0
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, np.ones(4, np.float32), np.int32(2))
    assert main(["compare", str(left), str(right), "--inputs", str(inputs)]) == 1
    assert "b.mlir:17" in capsys.readouterr().out


OTHER_LAYOUT = MODEL.replace('[{}, {"model"}]', '[{"data"}, {}]', 1).replace('[{"data"}, {}]>}) ->', "[{}, {}]>}) ->")


def test_two_layouts_of_one_program() -> None:
    """Each side's blocks are cut of the same whole arrays, and whole results are compared."""
    assert OTHER_LAYOUT != MODEL
    assert spmd.compare(spmd.parse(MODEL), spmd.parse(OTHER_LAYOUT), grid=GRID).equal
    wrong = spmd.parse(OTHER_LAYOUT.replace("stablehlo.sine", "stablehlo.cosine"))
    assert not spmd.compare(spmd.parse(MODEL), wrong, grid=GRID)


def test_whole_inputs_are_cut(split: str) -> None:
    shapes = ((8, 16), (16, 4), (6, 8))
    inputs = [np.linspace(-1, 1, a * b, dtype=np.float32).reshape(a, b) for a, b in shapes]
    assert spmd.compare(spmd.parse(MODEL), spmd.parse(split), inputs, GRID).equal
