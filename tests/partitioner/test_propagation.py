"""Propagation: what every value is laid out as, given what the program asks."""

from __future__ import annotations

import pytest

import partitioner
import spmd
from partitioner.program import import_program
from partitioner.propagation import propagate
from partitioner.reading import ShardingReader
from tests.partitioner.loops import THREE_TURNS


def _layouts(text: str, **options: object) -> dict[str, str]:
    """The layout of each named value of main."""
    module = spmd.parse('sdy.mesh @mesh = <["x"=2, "y"=2, "z"=2]>\n' + text)
    reader = ShardingReader(module)
    program = import_program(module, module.function("main"), reader)
    shardings_by_value = propagate(program, reader, **options)  # type: ignore[arg-type]
    return {value.name_hint: str(layout) for value, layout in shardings_by_value.items() if value.name_hint}


_MATMUL = """
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [LEFT]>},
                %b: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [RIGHT]>}) -> tensor<8x4xf32> {
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %d = stablehlo.tanh %c : tensor<8x4xf32>
  return %d : tensor<8x4xf32>
}
"""


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        (('{"x"}, {}', '{}, {"y"}'), '[{"x"}, {"y"}]'),
        (('{"x"}, {"y"}', '{"y"}, {}'), '[{"x"}, {}]'),
        (('{"x", "y"}, {}', "{}, {}"), '[{"x", "y"}, {}]'),
        # Both sides want x: the larger source has it.
        (('{"x"}, {}', '{}, {"x"}'), '[{"x"}, {}]'),
    ],
)
def test_a_dot_hands_on_its_free_dimensions(operands: tuple[str, str], expected: str) -> None:
    layouts = _layouts(_MATMUL.replace("LEFT", operands[0]).replace("RIGHT", operands[1]))
    assert layouts["c"] == layouts["d"] == expected


def test_backwards_and_sideways() -> None:
    layouts = _layouts(
        """
        func.func @main(%a: tensor<8x4xf32>, %b: tensor<8x4xf32>) -> tensor<4x8xf32> {
          %c = stablehlo.add %a, %b : tensor<8x4xf32>
          %d = stablehlo.transpose %c, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
          %e = sdy.sharding_constraint %d <@mesh, [{"x"}, {"y"}]> : tensor<4x8xf32>
          return %e : tensor<4x8xf32>
        }"""
    )
    assert layouts["a"] == layouts["b"] == layouts["c"] == '[{"y"}, {"x"}]'


def test_closed_dimensions_stay() -> None:
    layouts = _layouts(
        """
        func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>},
                        %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) -> tensor<8x4xf32> {
          %c = stablehlo.add %a, %b : tensor<8x4xf32>
          return %c : tensor<8x4xf32>
        }"""
    )
    assert layouts["b"] == '[{}, {"y"}]'
    assert layouts["a"] == layouts["c"] == '[{"x"}, {"y"}]'


def test_replicated_axes_do_not_cut() -> None:
    layouts = _layouts(
        """
        func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>},
                        %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {?}], replicated={"y"}>})
            -> tensor<8x4xf32> {
          %c = stablehlo.add %a, %b : tensor<8x4xf32>
          return %c : tensor<8x4xf32>
        }"""
    )
    assert layouts["b"] == '[{"x"}, {}]'


_PRIORITIES = """
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}pA, {?}]>},
                %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {"x"}pB]>}) -> tensor<8x8xf32> {
  %c = stablehlo.add %a, %b : tensor<8x8xf32>
  return %c : tensor<8x8xf32>
}
"""


@pytest.mark.parametrize(("first", "second", "expected"), [("0", "1", '[{"x"}, {}]'), ("1", "0", '[{}, {"x"}]')])
def test_user_priorities_decide_conflicts(first: str, second: str, expected: str) -> None:
    layouts = _layouts(_PRIORITIES.replace("pA", "p" + first).replace("pB", "p" + second))
    assert layouts["c"] == expected


def test_sub_axes_go_as_far_as_a_factor_holds() -> None:
    module = """
        sdy.mesh @m8 = <["w"=8]>
        func.func @main(%a: tensor<2x4x32xf32> {sdy.sharding = #sdy.sharding<@m8, [{"w":(1)2}, {"w":(2)4}, {}]>})
            -> tensor<8x32xf32> {
          %b = stablehlo.reshape %a : (tensor<2x4x32xf32>) -> tensor<8x32xf32>
          return %b : tensor<8x32xf32>
        }"""
    program = spmd.parse(module)
    reader = ShardingReader(program)
    shardings_by_value = propagate(import_program(program, program.function("main"), reader), reader)
    assert {value.name_hint: str(layout) for value, layout in shardings_by_value.items()}["b"] == '[{"w"}, {}]'


def test_loops_carry_one_layout() -> None:
    layouts = _layouts(
        """
        func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<8x4xf32> {
          %zero = stablehlo.constant dense<0> : tensor<i32>
          %r:2 = stablehlo.while(%i = %zero, %s = %a) : tensor<i32>, tensor<8x4xf32>
          THREE_TURNS
            %u = stablehlo.sine %s : tensor<8x4xf32>
            %w = sdy.sharding_constraint %u <@mesh, [{?}, {"y", ?}]> : tensor<8x4xf32>
            stablehlo.return %j, %w : tensor<i32>, tensor<8x4xf32>
          }
          return %r#1 : tensor<8x4xf32>
        }""".replace("THREE_TURNS", THREE_TURNS)
    )
    assert layouts["s"] == layouts["u"] == '[{"x"}, {"y"}]'


def test_calls_are_seen_through() -> None:
    layouts = _layouts(
        """
        func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
          %b = call @twice(%a) : (tensor<8xf32>) -> tensor<8xf32>
          %c = call @twice(%b) : (tensor<8xf32>) -> tensor<8xf32>
          return %c : tensor<8xf32>
        }
        func.func private @twice(%t: tensor<8xf32>) -> tensor<8xf32> {
          %u = stablehlo.add %t, %t : tensor<8xf32>
          return %u : tensor<8xf32>
        }"""
    )
    assert layouts["u"] == '[{"x"}]'


@pytest.mark.parametrize(
    ("direction", "before", "after"),
    [("NONE", "[{}]", "[{}]"), ("FORWARD", "[{}]", '[{"x"}]'), ("BACKWARD", '[{"y"}]', "[{}]")],
)
def test_barriers_bar_one_direction(direction: str, before: str, after: str) -> None:
    ahead = "{?}" if direction == "BACKWARD" else '{"x", ?}'
    behind = '{"y", ?}' if direction == "BACKWARD" else "{?}"
    layouts = _layouts(
        f"""
        func.func @main(%a: tensor<8xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{ahead}]>}}) -> tensor<8xf32> {{
          %b = stablehlo.sine %a : tensor<8xf32>
          %c = sdy.propagation_barrier %b allowed_direction={direction} : tensor<8xf32>
          %d = stablehlo.cosine %c : tensor<8xf32>
          %e = sdy.sharding_constraint %d <@mesh, [{behind}]> : tensor<8xf32>
          return %e : tensor<8xf32>
        }}"""
    )
    assert layouts["d"] == (after if direction != "BACKWARD" else before)
    if direction == "NONE":
        assert layouts["b"] == '[{"x"}]'
    if direction == "BACKWARD":
        assert layouts["b"] == '[{"y"}]'


def test_groups_share_a_layout() -> None:
    layouts = _layouts(
        """
        func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", ?}, {?}]>},
                        %b: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
          %c = stablehlo.sine %a : tensor<8x4xf32>
          %d = stablehlo.cosine %b : tensor<8x4xf32>
          sdy.sharding_group %c group_id=7 : tensor<8x4xf32>
          sdy.sharding_group %d group_id=7 : tensor<8x4xf32>
          return %c, %d : tensor<8x4xf32>, tensor<8x4xf32>
        }"""
    )
    assert layouts["d"] == layouts["b"] == '[{"x"}, {}]'


def test_axes_may_be_propagated_in_an_order() -> None:
    text = """
    func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {?}]>},
                    %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {?}]>}) -> tensor<8x8xf32> {
      %c = stablehlo.add %a, %b : tensor<8x8xf32>
      return %c : tensor<8x8xf32>
    }"""
    assert _layouts(text, axis_priority=["x"])["c"] == '[{"x"}, {}]'
    assert _layouts(text, axis_priority=["y"])["c"] == '[{"y"}, {}]'


def test_conservative_propagation_goes_along_nothing_that_moves() -> None:
    text = """
    func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}) -> tensor<8x4xf32> {
      %c = stablehlo.slice %a [0:8, 0:4] : (tensor<8x8xf32>) -> tensor<8x4xf32>
      return %c : tensor<8x4xf32>
    }"""
    assert _layouts(text)["c"] == '[{"x"}, {"y"}]'
    assert _layouts(text, conservative=True)["c"] == '[{"x"}, {}]'


def test_parts_of_axes_stay_where_they_are_in_conservative_propagation() -> None:
    module = spmd.parse("""sdy.mesh @mesh = <["x"=4, "y"=2]>
    func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2}]>},
                    %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y", "x":(2)2}]>})
        -> (tensor<8xf32>, tensor<8xf32>) {
      %c = stablehlo.tanh %a : tensor<8xf32>
      %d = stablehlo.tanh %b : tensor<8xf32>
      return %c, %d : tensor<8xf32>, tensor<8xf32>
    }""")
    reader = ShardingReader(module)
    for conservative, expected in ((False, ('[{"x":(1)2}]', '[{"y", "x":(2)2}]')), (True, ("[{}]", '[{"y"}]'))):
        program = import_program(module, module.function("main"), reader)
        layouts = propagate(program, reader, conservative=conservative)
        by_name = {value.name_hint: str(layout) for value, layout in layouts.items()}
        assert (by_name["c"], by_name["d"]) == expected


def test_without_propagation_the_rest_is_whole() -> None:
    layouts = _layouts(_MATMUL.replace("LEFT", '{"x"}, {}').replace("RIGHT", "{}, {}"), only_annotated=True)
    assert layouts["a"] == '[{"x"}, {}]'
    assert layouts["c"] == layouts["d"] == "[{}, {}]"


def test_constants_are_cut_as_each_use_wants() -> None:
    layouts = _layouts(
        """
        func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                        %b: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>})
            -> (tensor<8x8xf32>, tensor<8x8xf32>) {
          %one = stablehlo.constant dense<1.0> : tensor<8x8xf32>
          %c = stablehlo.add %a, %one : tensor<8x8xf32>
          %d = stablehlo.add %b, %one : tensor<8x8xf32>
          return %c, %d : tensor<8x8xf32>, tensor<8x8xf32>
        }"""
    )
    assert layouts["c"] == '[{"x"}, {}]'
    assert layouts["d"] == '[{}, {"y"}]'


@pytest.mark.parametrize("propagated", [True, False])
def test_what_nothing_is_propagated_along_is_laid_out_as_annotated(propagated: bool) -> None:
    """An argument that no op uses, of a later priority than any op's operand has."""
    text = """sdy.mesh @mesh = <["x"=2]>
func.func @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}p1]>}, %b: tensor<4xf32>)
    -> tensor<4xf32> {
  return %b : tensor<4xf32>
}"""
    parts = partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, 2), propagate_layouts=propagated)
    assert [str(layout.sharding) for layout in parts.in_shardings] == ['[{"x"}]', "[{}]"]
