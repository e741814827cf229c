"""Two programs are compared value by value: what parts is named by op and line, and what only rounds passes."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partitioner
import spmd
from launch.cli import main
from spmd.comparison.distance import farthest
from spmd.comparison.search import Difference
from tests.effort import examples, some_slow

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
    for number in lines[:: len(lines) // examples(len(lines))]:
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
    x = np.array([[value]], dtype)
    if abs(x[0, 0]) < 1e-3:
        return
    y = x + steps * np.spacing(np.abs(x)) * np.sign(x)
    found = farthest(x, y, 1.0)
    assert found is not None and steps / 2 <= found[1].ulps <= steps
    assert found[1].share == abs(float(x[0, 0]) - float(y[0, 0]))


def test_the_largest_number_has_a_last_place() -> None:
    x = np.array([[np.finfo(np.float64).max]])
    found = farthest(x, np.nextafter(x, 0), 1.0)
    assert found is not None and found[1].ulps == 1


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), float("inf")])
def test_a_tolerance_that_judges_nothing_is_refused(tolerance: float) -> None:
    module = spmd.parse(MASKED)
    with pytest.raises(spmd.UsageError, match="tolerance must be a non-negative number, got"):
        spmd.compare(module, spmd.parse(MASKED.replace("add %x", "subtract %x")), tolerance=tolerance)


def test_nan_and_infinity_are_no_rounding() -> None:
    one = np.float32([[1, np.nan, np.inf, -0.0]])
    assert farthest(one, np.float32([[1, np.nan, np.inf, 0.0]]), 1e30) is None
    for other in ([1, 1, np.inf, 0], [1, np.nan, -np.inf, 0], [1, np.nan, np.nan, 0]):
        found = farthest(one, np.float32([other]), 1e30)
        assert found is not None and found[1].share == np.inf


MASKED = """func.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %far = stablehlo.constant dense<[-1.0e9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]> : tensor<8xf32>
  %s = stablehlo.add %x, %y : tensor<8xf32>
  %t = stablehlo.tanh %s : tensor<8xf32>
  %r = stablehlo.add %t, %far : tensor<8xf32>
  return %r : tensor<8xf32>
}"""


def test_one_large_element_hides_nothing() -> None:
    found = spmd.compare(spmd.parse(MASKED), spmd.parse(MASKED.replace("add %x", "subtract %x")))
    assert found.first is not None and found.first.left is not None and found.first.left.name == "stablehlo.add"
    exact = spmd.compare(spmd.parse(MASKED), spmd.parse(MASKED.replace("add %x", "subtract %x")), exact=True)
    assert not exact and "the difference is not rounding" in str(exact)


def test_what_one_program_lacks_is_named() -> None:
    extra = "%a = stablehlo.abs %t : tensor<8xf32>\n  %r = stablehlo.add %a"
    more = MASKED.replace("%r = stablehlo.add %t", extra)
    for left, right in ((MASKED, more), (more, MASKED)):
        found = spmd.compare(spmd.parse(left), spmd.parse(right))
        assert found.first is not None
        (op,) = [op for op in (found.first.left, found.first.right) if op is not None]
        assert op.name == "stablehlo.abs"
        assert f"which the {'left' if right == more else 'right'} program lacks" in str(found)


def test_what_is_let_pass_is_said() -> None:
    divided = MASKED.replace("tanh %s", "divide %s, %y")
    inverse = "%i = stablehlo.divide %one, %y : tensor<8xf32>\n  %t = stablehlo.multiply %s, %i"
    one = "%one = stablehlo.constant dense<1.0> : tensor<8xf32>\n  %s ="
    found = spmd.compare(
        spmd.parse(divided), spmd.parse(MASKED.replace("%s =", one).replace("%t = stablehlo.tanh %s", inverse))
    )
    assert found and found.farthest is not None and 0 < found.farthest.distance.share <= 1
    assert "what differs most, by rounding, is result 0 (stablehlo.add at" in str(found)
    assert "they agree in every bit" in str(spmd.compare(spmd.parse(MASKED), spmd.parse(MASKED)))


def test_words_status_and_json_are_of_one_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / f"{number}.mlir") for number in range(3)]
    for path, text in zip(paths, (MASKED, MASKED.replace("add %x", "subtract %x"), LOOP), strict=True):
        Path(path).write_text(text)
    for first, second, options in ((0, 0, []), (0, 1, []), (0, 1, ["--exact"]), (0, 0, ["--exact"])):
        command = ["compare", paths[first], paths[second], *options]
        status = main(command)
        words = capsys.readouterr().out
        assert main([*command, "--json"]) == status == int(first != second)
        told = json.loads(capsys.readouterr().out)
        assert told["equal"] == (status == 0) and words.startswith(told["verdict"])
        assert told["verdict"].startswith("they agree" if told["equal"] else "they part")
        assert told["equal"] or (told["first"]["left"]["op"], told["first"]["distance"]["index"]) == (
            "stablehlo.add",
            [0],
        )
    for other, what in ((2, "arguments"), (None, "results")):
        if other is None:
            Path(paths[1]).write_text(
                MASKED.replace("return %r :", "return %r, %t : tensor<8xf32>,").replace(
                    "-> tensor<8xf32> {", "-> (tensor<8xf32>, tensor<8xf32>) {"
                )
            )
        assert main(["compare", paths[0], paths[other or 1]]) == 2
        assert f"the programs {'take' if other else 'give'} different {what}: " in capsys.readouterr().err


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


#: MODEL without a word of shardings: the program of one process.
PLAIN = re.sub(r" \{sdy.sharding = [^\n]*?>\}", "", MODEL.replace("\nsdy.mesh", "\n//"))
#: A product of sizes that no mesh divides, over other meshes.
PRODUCT = """
func.func @main(%x: tensor<9x18xf32>{}, %w: tensor<18x33xf32>{}, %v: tensor<33x18xf32>{}) -> tensor<9x18xf32> {{
  %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<9x18xf32>, tensor<18x33xf32>) -> tensor<9x33xf32>
  %y = stablehlo.dot_general %h, %v, contracting_dims = [1] x [0]
    : (tensor<9x33xf32>, tensor<33x18xf32>) -> tensor<9x18xf32>
  return %y : tensor<9x18xf32>
}}
"""
LAYOUTS = [
    ('"data"=2, "model"=4', '[{"data"}, {}]', '[{}, {"model"}]', '[{"model"}, {}]'),
    ('"data"=2, "model"=3', '[{"data"}, {"model"}]', "[{}, {}]", '[{}, {"data"}]'),
    ('"x"=5', '[{"x"}, {}]', "[{}, {}]", "[{}, {}]"),
    ('"x"=2, "y"=2, "z"=2', '[{"z", "x"}, {}]', '[{}, {"y"}]', '[{"y"}, {"x"}]'),
    ('"x"=6', "[{}, {}]", '[{}, {"x":(1)2}]', '[{"x":(2)3}, {}]'),
    ('"x"=3', "[{}, {}]", "[{}, {}]", "[{}, {}]"),
]


def sharded(mesh: str, *specs: str) -> str:
    shardings = [f" {{sdy.sharding = #sdy.sharding<@mesh, {spec}>}}" for spec in specs]
    return f"sdy.mesh @mesh = <[{mesh}]>" + PRODUCT.format(*shardings)


@pytest.mark.parametrize("layout", some_slow(LAYOUTS, 1), ids=str)
def test_every_two_forms_of_a_program_agree(layout: tuple[str, ...]) -> None:
    """Whole on one process, with shardings, and partitioned, whose text does not say how arrays are cut."""
    laid = sharded(*layout)
    texts = PRODUCT.format("", "", ""), laid, str(partitioner.partition(spmd.parse(laid)).module)
    for left, right in itertools.permutations(texts, 2):
        assert spmd.compare(spmd.parse(left), spmd.parse(right)).equal


@pytest.mark.parametrize("layout", some_slow(LAYOUTS[:3], 1), ids=str)
def test_a_wrong_form_parts_where_it_is_wrong(layout: tuple[str, ...]) -> None:
    laid = sharded(*layout)
    plain = PRODUCT.format("", "", "")
    wrong = laid.replace("  return %y", "  %z = stablehlo.negate %y : tensor<9x18xf32>\n  return %z")
    also = plain.replace("  return %y", "  %z = stablehlo.abs %y : tensor<9x18xf32>\n  return %z")
    found = spmd.compare(spmd.parse(wrong, "wrong.mlir"), spmd.parse(also, "also.mlir"))
    assert found.first is not None and found.first.left is not None and found.first.right is not None
    assert (found.first.left.name, found.first.right.name) == ("stablehlo.negate", "stablehlo.abs")
    split = str(partitioner.partition(spmd.parse(wrong)).module).replace("stablehlo.negate", "stablehlo.abs")
    where = next(number for number, line in enumerate(split.split("\n"), 1) if "stablehlo.abs" in line)
    for sides in ((wrong, split), (also.replace("stablehlo.abs", "stablehlo.negate"), split)):
        found = spmd.compare(*(spmd.parse(side, name) for side, name in zip(sides, ("a", "b"), strict=True)))
        assert found.first is not None and found.first.right is not None
        assert (found.first.right.name, found.first.right.location.line) == ("stablehlo.abs", where)


@pytest.mark.parametrize(
    "layout",
    some_slow(
        [
            LAYOUTS[3],
            ('"x"=2, "y"=2, "z"=2', '[{"x"}, {}]', '[{}, {"z", "y"}]', '[{"z", "y"}, {}]'),
            ('"x"=2, "y"=2, "z"=2', '[{"y"}, {}]', '[{}, {"z", "x"}]', '[{"z", "x"}, {}]'),
        ],
        1,
    ),
    ids=str,
)
def test_a_wrong_sum_of_shares_is_blamed_in_whatever_order_axes_are_named(layout: tuple[str, ...]) -> None:
    """No layout gives the right values, and that of the program is found by what it says of where arrays are cut."""
    laid = sharded(*layout)
    split = str(partitioner.partition(spmd.parse(laid)).module)
    wrong = re.sub(r"(all_reduce.*?)stablehlo\.add", r"\1stablehlo.subtract", split, count=1, flags=re.DOTALL)
    where = next(number for number, line in enumerate(wrong.split("\n"), 1) if "stablehlo.all_reduce" in line)
    for other in (PRODUCT.format("", "", ""), laid):
        found = spmd.compare(spmd.parse(wrong), spmd.parse(other), seed=1)
        assert found.first is not None and found.first.left is not None
        assert (found.first.left.name, found.first.left.location.line) == ("stablehlo.all_reduce", where)


def test_mutations_of_a_partitioned_program_beside_the_whole_one(split: str) -> None:
    assert spmd.compare(spmd.parse(PLAIN), spmd.parse(split), grid=GRID).equal
    lines = lines_of(split)
    for number in lines[1 :: len(lines) // examples(len(lines))]:
        found = spmd.compare(spmd.parse(mutated(split, number)), spmd.parse(PLAIN), grid=GRID, seed=1)
        assert found.first is not None and found.first.left is not None, split.split("\n")[number - 1]
        assert found.first.left.location.line == number


def test_what_the_partitioner_does_wrong_is_found_in_the_whole_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op whose inner value differs, partitioned, from what one process computes."""
    right = partitioner.partition

    def wrong(*given: Any, **how: Any) -> Any:
        split = right(*given, **how)
        return replace(split, module=spmd.parse(str(split.module).replace("stablehlo.sine", "stablehlo.cosine")))

    monkeypatch.setattr(partitioner, "partition", wrong)
    found = spmd.compare(spmd.parse(MODEL), spmd.parse(PLAIN), grid=GRID)
    assert found.first is not None and found.first.left is not None
    assert found.first.left.name == "stablehlo.sine"


def test_what_pads_blocks_is_not_compared() -> None:
    """Of the last block of nine rows in two, one row is of no array."""
    laid = (
        'sdy.mesh @mesh = <["x"=2]>'
        + """
func.func @main(%x: tensor<9xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<9xf32> {
  %y = stablehlo.add %x, %x : tensor<9xf32>
  return %y : tensor<9xf32>
}"""
    )
    block = """module attributes {mhlo.num_partitions = 2 : i32} {
func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
  %one = stablehlo.constant dense<[0.0, 0.0, 0.0, 0.0, 1.0]> : tensor<5xf32>
  %p = stablehlo.partition_id : tensor<ui32>
  %f = stablehlo.convert %p : (tensor<ui32>) -> tensor<f32>
  %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<5xf32>
  %m = stablehlo.multiply %b, %one : tensor<5xf32>
  %d = stablehlo.add %x, %x : tensor<5xf32>
  %y = stablehlo.add %d, %m : tensor<5xf32>
  return %y : tensor<5xf32>
}}"""
    assert spmd.compare(spmd.parse(laid), spmd.parse(block)).equal
    wrong = block.replace("0.0, 1.0]", "1.0, 0.0]")
    assert not spmd.compare(spmd.parse(laid), spmd.parse(wrong))


LAYER = """  %h{0} = stablehlo.dot_general %x{1}, %w, contracting_dims = [1] x [0]
    : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %t{0} = stablehlo.tanh %h{0} : tensor<8x32xf32>
  %x{0} = stablehlo.dot_general %t{0}, %v, contracting_dims = [1] x [0]
    : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
"""


def layered(count: int, mesh: str = "", *specs: str) -> str:
    """A model of so many layers, with shardings over a mesh or without."""
    laid = [f" {{sdy.sharding = #sdy.sharding<@mesh, {spec}>}}" if mesh else "" for spec in specs or ("",) * 3]
    layers = "".join(LAYER.format(number + 1, number) for number in range(count))
    return f"""{f"sdy.mesh @mesh = <[{mesh}]>" if mesh else ""}
func.func @main(%x0: tensor<8x16xf32>{laid[0]}, %w: tensor<16x32xf32>{laid[1]}, %v: tensor<32x16xf32>{laid[2]})
    -> tensor<8x16xf32> {{
{layers}  return %x{count} : tensor<8x16xf32>
}}"""


#: Data and model, data alone, model alone, the axes the other way, and fewer devices.
MESHES = {
    "2x4": ('"data"=2, "model"=4', '[{"data"}, {}]', '[{}, {"model"}]', '[{"model"}, {}]'),
    "8x1": ('"data"=8', '[{"data"}, {}]', "[{}, {}]", "[{}, {}]"),
    "1x8": ('"model"=8', "[{}, {}]", '[{}, {"model"}]', '[{"model"}, {}]'),
    "4x2": ('"model"=4, "data"=2', '[{"data"}, {}]', '[{}, {"model"}]', '[{"model"}, {}]'),
    "2x2": ('"data"=2, "model"=2', '[{"data"}, {}]', '[{}, {"model"}]', '[{"model"}, {}]'),
}


def forms(count: int) -> dict[str, str]:
    """The model whole, over each mesh, and as what the partitioner makes of it there."""
    laid = {name: layered(count, *mesh) for name, mesh in MESHES.items()}
    split = {f"{name}, split": str(partitioner.partition(spmd.parse(laid[name])).module) for name in MESHES}
    return {"plain": layered(count), **laid, **split}


FORMS = [*itertools.permutations((*MESHES, "plain", *(f"{mesh}, split" for mesh in MESHES)), 2)]
ORDINARY = [("2x4", "8x1"), ("2x2", "2x4, split")]


@pytest.mark.parametrize("pair", [*ORDINARY, *some_slow([each for each in FORMS if each not in ORDINARY], 0)], ids=str)
def test_layers_and_grids_that_differ(pair: tuple[str, str]) -> None:
    """Over any mesh a model is the same; one of another number of layers is not, and what it lacks is named."""
    left, right, longer = forms(2)[pair[0]], forms(2)[pair[1]], forms(3)[pair[1]]
    assert spmd.compare(spmd.parse(left), spmd.parse(right))
    found = spmd.compare(spmd.parse(left), spmd.parse(longer))
    assert not found and found.first is not None
    assert str(found).startswith("they part at ") and "stablehlo." in str(found)


def test_two_partitioned_programs_whose_blocks_are_padded() -> None:
    """Neither text says what the whole arrays are; of 9 rows, and of 33, the last blocks are not full."""
    odd = [
        ('"x"=2, "y"=2', '[{"x"}, {}]', '[{}, {"y"}]', '[{"y"}, {}]'),
        ('"x"=3', '[{"x"}, {}]', "[{}, {}]", "[{}, {}]"),
    ]
    assert spmd.compare(*(partitioner.partition(spmd.parse(sharded(*each))).module for each in odd))


@pytest.mark.slow
def test_a_fault_in_one_of_two_partitioned_programs() -> None:
    text, other = (forms(1)[f"{mesh}, split"] for mesh in ("2x4", "2x2"))
    found = spmd.compare(spmd.parse(text), spmd.parse(other), exact=True)
    assert found and found.exact is not None and found.exact.same_formula
    wrong = spmd.compare(spmd.parse(text), spmd.parse(other.replace("stablehlo.tanh", "stablehlo.sine")), exact=True)
    assert not wrong and wrong.first is not None and wrong.first.result == 0


def test_programs_of_two_grids_run_each_on_its_own() -> None:
    """A sum over eight replicas, and one over eight partitions."""
    over = """module attributes {{mhlo.num_{0} = 8 : i32}} {{
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %y = "stablehlo.all_reduce"(%x) <{{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>{1}}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.{2} %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }}) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}}}}"""
    channel = ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids"
    replicas, partitions = over.format("replicas", "", "add"), over.format("partitions", channel, "add")
    assert spmd.compare(spmd.parse(replicas), spmd.parse(partitions))
    found = spmd.compare(spmd.parse(replicas), spmd.parse(over.format("partitions", channel, "maximum")))
    assert found.first is not None and found.first.left is not None
    assert found.first.left.name == "stablehlo.all_reduce"
    four = replicas.replace("= 8", "= 4").replace(", 4, 5, 6, 7", "").replace("1x8", "1x4")
    assert not spmd.compare(spmd.parse(replicas), spmd.parse(four))
    rows = [[np.zeros(4, np.float32)] for _ in range(8)]
    with pytest.raises(spmd.UsageError, match="grids of different sizes: 8x1 of 8 processes and 4x1 of 4 processes"):
        spmd.compare(spmd.parse(replicas), spmd.parse(four), rows)
