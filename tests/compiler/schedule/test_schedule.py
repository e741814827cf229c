"""What is computed together, and over which loops."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spmd
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.prepare import prepare
from spmd.compiler.schedule.arena import ALIGNMENT, Arena
from spmd.compiler.schedule.collapse import collapse
from spmd.compiler.schedule.costs import cost_of_unit
from spmd.compiler.schedule.fusion import Unit, fuse
from spmd.compiler.schedule.rows import row_groups
from spmd.compiler.schedule.units import nests_of

HEAD = "func.func @main(%x: tensor<6x40xf32>, %y: tensor<6x40xf32>) -> "
SUM = """reduce({0} init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<6x40xf32>, tensor<f32>) -> tensor<6xf32>"""
#: Exponentials of %x, and the sum of each row of them.
EXPONENTIALS = f"""%zero = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<6x40xf32>
  %s = stablehlo.{SUM.format("%e")}"""


def units_of(text: str) -> list[Unit]:
    prepared = prepare(spmd.parse(text))
    body = ModuleLowering(prepared.module, prepared.options).flatten(prepared.function).body
    return fuse(body, body.terminator.operands)


def names(units: list[Unit]) -> list[list[str]]:
    return [sorted(op.name.removeprefix("stablehlo.") for op in unit.ops) for unit in units]


def test_a_chain_is_one_nest_over_one_loop() -> None:
    (unit,) = units_of(
        HEAD
        + """tensor<6x40xf32> {
  %0 = stablehlo.add %x, %y : tensor<6x40xf32>
  %1 = stablehlo.exponential %0 : tensor<6x40xf32>
  %2 = stablehlo.multiply %1, %x : tensor<6x40xf32>
  return %2 : tensor<6x40xf32>
}"""
    )
    (nest,) = nests_of(unit)
    assert nest.extents == (6, 40) and collapse(nest).extents == (6, 240)
    assert collapse(nest).stages[0].loops == (1,)
    assert cost_of_unit(unit).read == 2 * 960 and cost_of_unit(unit).written == 960


def read_twice(name: str, other: str) -> list[Unit]:
    """The units of a program that adds the transpose, %1, of %0, which op `name` gives, and `other` of it."""
    return units_of(
        HEAD
        + f"""tensor<40x6xf32> {{
  %0 = stablehlo.{name} %x : tensor<6x40xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<6x40xf32>) -> tensor<40x6xf32>
  %2 = stablehlo.{other}
  %3 = stablehlo.add %1, %2 : tensor<40x6xf32>
  return %3 : tensor<40x6xf32>
}}"""
    )


def test_what_is_dear_and_read_twice_is_written_once() -> None:
    units = read_twice("exponential", "reshape %0 : (tensor<6x40xf32>) -> tensor<40x6xf32>")
    assert names(units)[0] == ["exponential"]
    assert "exponential" not in names(units)[1]


def test_a_cheap_value_is_computed_wherever_it_is_read() -> None:
    units = read_twice("negate", "reverse %1, dims = [0] : tensor<40x6xf32>")
    assert len(units) == 1


def test_a_value_that_is_cheap_only_at_its_end_is_not_computed_again() -> None:
    """Each op of a stencil is one operation; all of them are more than writing it and reading it back."""
    shifted = "\n".join(
        f"  %{k} = stablehlo.slice %x [0:6, {k}:{k + 30}] : (tensor<6x40xf32>) -> tensor<6x30xf32>" for k in range(10)
    )
    sums = "\n".join(
        f"  %s{k} = stablehlo.add %{k if k == 1 else f's{k - 1}'}, %{0 if k == 1 else k} : tensor<6x30xf32>"
        for k in range(1, 10)
    )
    units = units_of(
        HEAD
        + f"""(tensor<30x6xf32>, tensor<6x30xf32>) {{
{shifted}
{sums}
  %b = stablehlo.slice %y [0:6, 0:30] : (tensor<6x40xf32>) -> tensor<6x30xf32>
  %r = stablehlo.multiply %s9, %b : tensor<6x30xf32>
  %t = stablehlo.transpose %r, dims = [1, 0] : (tensor<6x30xf32>) -> tensor<30x6xf32>
  %u = stablehlo.reverse %r, dims = [1] : tensor<6x30xf32>
  return %t, %u : tensor<30x6xf32>, tensor<6x30xf32>
}}"""
    )
    assert names(units) == [["add"] * 9 + ["multiply"] + ["slice"] * 11, ["transpose"], ["reverse"]]


def test_reductions_of_one_array_share_a_pass() -> None:
    (unit,) = units_of(
        HEAD
        + f"""(tensor<6xf32>, tensor<6xf32>) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.{SUM.format("%x")}
  %1 = stablehlo.multiply %x, %x : tensor<6x40xf32>
  %2 = stablehlo.{SUM.format("%1")}
  return %0, %2 : tensor<6xf32>, tensor<6xf32>
}}"""
    )
    assert len(unit.outputs) == 2 and unit.reduced == (1,)


LOOKUP = """
  %row{0} = stablehlo.broadcast_in_dim %i{0}, dims = [0] : (tensor<500xi32>) -> tensor<500x1xi32>
  %column{0} = stablehlo.broadcast_in_dim %j{0}, dims = [0] : (tensor<500xi32>) -> tensor<500x1xi32>
  %start{0} = stablehlo.concatenate %row{0}, %column{0}, dim = 1
    : (tensor<500x1xi32>, tensor<500x1xi32>) -> tensor<500x2xi32>
  %found{0} = "stablehlo.gather"(%x, %start{0}) <{{dimension_numbers = #stablehlo.gather<
      collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 1>}}> : (tensor<9x9xi32>, tensor<500x2xi32>) -> tensor<500xi32>"""
DOUBLE = "\n  %{0} = stablehlo.{2} %{1}, %{1} : tensor<500xi32>"


def lookups(between: str, after: str) -> tuple[list[Unit], list[np.ndarray]]:
    """The units of two lookups, the second of the places %i2 and %j2, that `between` gives, and then of `after`, which
    gives %r; arguments and the result."""
    text = f"""func.func @main(%x: tensor<9x9xi32>, %i1: tensor<500xi32>, %j1: tensor<500xi32>) -> tensor<500xi32> {{
  {LOOKUP.format(1)}{between}{LOOKUP.format(2)}{after}
  return %r : tensor<500xi32>
}}"""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(1, 9, (9, 9)), rng.integers(0, 9, 500), rng.integers(0, 9, 500)]
    (result,) = spmd.compile(spmd.parse(text))(*(array.astype(np.int32) for array in arrays))
    return units_of(text), [*arrays, result]


def test_start_indices_are_computed_where_they_are_read() -> None:
    between = DOUBLE.format("i2", "i1", "multiply") + DOUBLE.format("j2", "j1", "add")
    after = "\n  %sum = stablehlo.add %found1, %found2 : tensor<500xi32>"
    units, (x, i, j, result) = lookups(between, after + "\n  %r = stablehlo.multiply %sum, %i2 : tensor<500xi32>")
    assert len(units) == 1
    expected = (x[i, j] + x[np.minimum(i * i, 8), np.minimum(j + j, 8)]) * i * i
    np.testing.assert_array_equal(result, expected)


def test_lookups_that_wait_for_each_other_are_apart() -> None:
    between = DOUBLE.format("i2", "found1", "divide") + DOUBLE.format("j2", "found1", "add")
    units, (x, i, j, result) = lookups(between, DOUBLE.format("r", "found2", "add"))
    assert len(units) > 1
    np.testing.assert_array_equal(result, 2 * x[1, np.minimum(2 * x[i, j], 8)])


def test_a_unit_never_waits_for_what_waits_for_it() -> None:
    # The sum and the product read %e; the product also waits for the dot, which waits for the sum.
    text = (
        HEAD
        + f"""tensor<6x40xf32> {{
  {EXPONENTIALS}
  %d = stablehlo.dot_general %s, %y, contracting_dims = [0] x [0] : (tensor<6xf32>, tensor<6x40xf32>) -> tensor<40xf32>
  %b = stablehlo.broadcast_in_dim %d, dims = [1] : (tensor<40xf32>) -> tensor<6x40xf32>
  %r = stablehlo.multiply %e, %b : tensor<6x40xf32>
  return %r : tensor<6x40xf32>
}}"""
    )
    units = units_of(text)
    place = {value: number for number, unit in enumerate(units) for op in unit.outputs for value in op.results}
    for number, unit in enumerate(units):
        for op in unit.ops:
            assert all(place.get(operand, -1) <= number for operand in op.operands)
    x, y = np.random.default_rng(0).standard_normal((2, 6, 40), np.float32)
    (got,) = spmd.compile(spmd.parse(text))(x, y)
    np.testing.assert_allclose(got, np.exp(x) * (np.exp(x).sum(1) @ y), rtol=2e-5)


def test_a_softmax_runs_row_by_row() -> None:
    softmax = (
        HEAD
        + f"""tensor<6x40xf32> {{
  {EXPONENTIALS}
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<6xf32>) -> tensor<6x40xf32>
  %r = stablehlo.divide %e, %b : tensor<6x40xf32>
  return %r : tensor<6x40xf32>
}}"""
    )
    units = units_of(softmax)
    assert [len(group) for group in row_groups(units)] == [len(units)]


def test_buffers_that_are_needed_at_one_time_lie_apart_and_others_share() -> None:
    arena = Arena()
    first, second = arena.allocate(100), arena.allocate(200)
    arena.release(first)
    third = arena.allocate(60)
    arena.release(second)
    last = arena.allocate(320)
    offsets, size = (placement := arena.place()).offsets, placement.size
    assert all(offset % ALIGNMENT == 0 for offset in offsets) and size == 384  # the third and the last
    rooms = {first: 128, second: 256, third: 64, last: 320}
    for one, other in ((first, second), (second, third), (third, last)):
        assert offsets[one] + rooms[one] <= offsets[other] or offsets[other] + rooms[other] <= offsets[one]


def test_lent_memory_serves_what_the_arena_would_have_to_grow_for() -> None:
    """The first buffer fits where the large one lies later, and leaves the lent block to those beside the large one."""
    arena = Arena()
    first = arena.allocate(128)
    second = arena.allocate(128)
    arena.release(first)
    arena.allocate(1024)
    arena.release(second)
    arena.offer(3, 128)
    placement = arena.place()
    assert placement.size == 1024
    assert placement.blocks == [None, 3, None]


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 6)), max_size=40))
def test_the_arena_holds_what_is_needed_at_one_time(blocks: list[tuple[int, int]]) -> None:
    """Each buffer is released after some more were allocated; none may overlap one that is needed meanwhile."""
    arena = Arena()
    alive: dict[int, int] = {}
    together: list[set[int]] = []
    for moment, (nbytes, stays) in enumerate(blocks):
        for number in [number for number, end in alive.items() if end <= moment]:
            arena.release(number)
            del alive[number]
        alive[arena.allocate(nbytes)] = moment + 1 + stays
        together.append(set(alive))
    placement = arena.place()
    for numbers in together:
        spans = sorted((placement.offsets[number], placement.offsets[number] + blocks[number][0]) for number in numbers)
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
        assert all(end <= placement.size for _, end in spans)


@pytest.mark.parametrize("name", ["inlining", "simplification", "all"])
def test_passes_print_programs_that_run(name: str, capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    from launch.cli import main

    program = tmp_path / "program.mlir"
    program.write_text(
        """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    )
    assert main(["print", str(program), "--after", name]) == 0
    parts = capsys.readouterr().out.split("// ----- after ")
    texts = [part.partition("\n")[2] for part in parts[1:]] if name == "all" else parts
    assert texts
    for text in texts:
        (got,) = spmd.compile(spmd.parse(text))(np.ones(4, np.float32))
        np.testing.assert_array_equal(got, np.full(4, 2, np.float32))


@pytest.mark.parametrize(
    ("line", "operations"),
    [
        (
            "%r = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], "
            "window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
            ": (tensor<2x16x8xf32>, tensor<3x8x5xf32>) -> tensor<2x16x5xf32>",
            2 * (2 * 16 * 5) * (3 * 8),
        ),
        ("%r, %i = chlo.top_k(%x, k = 4) : tensor<2x16x8xf32> -> (tensor<2x16x4xf32>, tensor<2x16x4xi32>)", 256 * 2),
        (
            '%r = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 1, 16, 1>, '
            "padding = dense<[[0, 0], [15, 0], [0, 0]]> : tensor<3x2xi64>}> ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): "
            "%s = stablehlo.add %a, %b : tensor<f32> stablehlo.return %s : tensor<f32> }) "
            ": (tensor<2x16x8xf32>, tensor<f32>) -> tensor<2x16x8xf32>",
            256,
        ),
    ],
    ids=["convolution", "top_k", "running total"],
)
def test_what_is_no_loop_nest_costs_its_operations(line: str, operations: int) -> None:
    result = line.rpartition("-> ")[2].strip("()").split(", ")[0]
    head = f"func.func @main(%x: tensor<2x16x8xf32>, %k: tensor<3x8x5xf32>) -> {result}"
    zero = "%zero = stablehlo.constant dense<0.0> : tensor<f32>"
    units = units_of(f"{head} {{\n{zero}\n{line}\nreturn %r : {result}\n}}")
    (unit,) = (unit for unit in units if unit.outputs[0].name in line)
    assert cost_of_unit(unit).operations == operations


def test_elements_that_lie_inside_are_read_without_a_mask() -> None:
    """Of a concatenation each part is read only where it stands, unless its elements are there at every point."""
    (unit,) = units_of(
        HEAD
        + """tensor<6x2xf32> {
  %a = stablehlo.slice %x [0:6, 7:8] : (tensor<6x40xf32>) -> tensor<6x1xf32>
  %b = stablehlo.slice %y [0:6, 3:4] : (tensor<6x40xf32>) -> tensor<6x1xf32>
  %n = stablehlo.negate %b : tensor<6x1xf32>
  %c = stablehlo.concatenate %a, %n, dim = 1 : (tensor<6x1xf32>, tensor<6x1xf32>) -> tensor<6x2xf32>
  %r = stablehlo.exponential %c : tensor<6x2xf32>
  return %r : tensor<6x2xf32>
}"""
    )
    (nest,) = nests_of(unit)
    assert [load.mask for load in nest.loads()] == [None, None]


def test_sizes_of_one_are_no_reason_to_divide() -> None:
    """The parts of a roll are asked for beyond their ends, where no quotient is affine."""
    (unit,) = units_of(
        HEAD
        + """tensor<40xf32> {
  %row = stablehlo.slice %x [2:3, 0:40] : (tensor<6x40xf32>) -> tensor<1x40xf32>
  %flat = stablehlo.reshape %row : (tensor<1x40xf32>) -> tensor<40xf32>
  %a = stablehlo.slice %flat [39:40] : (tensor<40xf32>) -> tensor<1xf32>
  %b = stablehlo.slice %flat [0:39] : (tensor<40xf32>) -> tensor<39xf32>
  %c = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1xf32>, tensor<39xf32>) -> tensor<40xf32>
  %r = stablehlo.exponential %c : tensor<40xf32>
  return %r : tensor<40xf32>
}"""
    )
    (nest,) = nests_of(unit)
    assert not any(load.address.dynamic for load in nest.loads())


@given(st.data())
def test_who_waits_for_whom_is_known(data: st.DataObject) -> None:
    """Whatever joins which unit: `waiting` tells all that wait for a unit, be it by way of others."""
    lines, values = [], ["%x", "%y"]
    for number in range(data.draw(st.integers(1, 25), label="ops")):
        left, right = (data.draw(st.sampled_from(values)) for _ in range(2))
        if data.draw(st.booleans()):
            lines.append(f"%s{number} = stablehlo.{SUM.format(left)}")
            lines.append(
                f"%v{number} = stablehlo.broadcast_in_dim %s{number}, dims = [0] : (tensor<6xf32>) -> tensor<6x40xf32>"
            )
        else:
            lines.append(f"%v{number} = stablehlo.add {left}, {right} : tensor<6x40xf32>")
        values.append(f"%v{number}")
    zero = "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
    units = units_of(
        HEAD + "tensor<6x40xf32> {\n" + zero + "\n".join(lines) + f"\nreturn {values[-1]} : tensor<6x40xf32> }}"
    )
    for unit in reversed(units):  # in an order in which they may run
        waiting = 0
        for reader in unit.users:
            waiting |= reader.transitive_users | 1 << reader.number
        assert unit.transitive_users == waiting
