"""The sdy dialect's text: it prints as it reads, and what it must obey is told at its place."""

from __future__ import annotations

import pytest

import spmd
from tests.partitioner.verifying import assert_verifies

_PROGRAM = """
sdy.mesh @mesh = <["x"=4, "y"=2]>
sdy.mesh @ordered = <["a"=8], device_ids=[1, 0, 2, 3, 4, 5, 6, 7]>
sdy.mesh @one = <[], device_ids=[3]>
sdy.mesh @none = <[]>
func.func @main(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2, ?}p1, {}], replicated={"y"}>},
    %m: tensor<8x8xf32>) -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<mesh<["z"=8]>, [{"z"}, {?}]>}) {
  %0 = sdy.sharding_constraint %a <@mesh, [{"x"}, {?}], unreduced={"y"}> : tensor<8x8xf32>
  %1 = sdy.sharding_constraint %m <@mesh, [{}, {}], unreduced=max{"y"}> : tensor<8x8xf32>
  sdy.sharding_group %0 group_id=21 : tensor<8x8xf32>
  %2 = sdy.propagation_barrier %0 allowed_direction=FORWARD : tensor<8x8xf32>
  %3 = sdy.manual_computation(%2) in_shardings=[<@mesh, [{"x"}, {"y", ?}]>] out_shardings=[<@mesh, [{"x"}, {}]>]
      manual_axes={"x"} (%b: tensor<2x8xf32>) {
    %n = sdy.manual_computation() in_shardings=[] out_shardings=[<@mesh, []>] manual_axes={"y"} () {
      %c = sdy.constant dense<1.0> : tensor<f32>
      sdy.return %c : tensor<f32>
    } : () -> tensor<f32>
    sdy.return %b : tensor<2x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = sdy.named_computation<"foo">(%3) in_shardings=[<@mesh, [{"x"}, {}]>] (%b: tensor<8x8xf32>) {
    sdy.return %b : tensor<8x8xf32>
  } : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %5 = stablehlo.add %4, %4 {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j], [i, j])->([i, j]) {i=8, j=8}
      need_replication={j} blocked_propagation={i}, custom>,
      sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : tensor<8x8xf32>
  %6 = sdy.all_gather [{"x"}, {}] %5 out_sharding=<@mesh, [{}, {}]> : tensor<8x8xf32>
  %7 = sdy.all_slice [{}, {"x"}] %6 out_sharding=<@mesh, [{}, {"x"}]> : tensor<8x8xf32>
  %8 = sdy.all_to_all [{"x"}: 1->0] %7 out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x8xf32>
  %9 = sdy.collective_permute %8 out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x8xf32>
  %10 = sdy.all_reduce max {"y"} %9 out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x8xf32>
  %11 = sdy.all_reduce {"y"} %10 out_sharding=<@mesh, [{"x"}, {}]> : tensor<8x8xf32>
  %12 = sdy.reduce_scatter [{}, {"y"}] %11 out_sharding=<@mesh, [{"x"}, {"y"}]> : tensor<8x8xf32>
  %13 = sdy.sharded_to_unreduced [{"x"}, {}] %12 out_sharding=<@mesh, [{}, {"y"}], unreduced={"x"}> : tensor<8x8xf32>
  %14 = sdy.replicated_to_unreduced {"x":(1)2} %6 out_sharding=<@mesh, [{}, {}], unreduced={"x":(1)2}> : tensor<8x8xf32>
  %15 = sdy.reshard %14 <@mesh, [{}, {}]> : tensor<8x8xf32>
  return %15 : tensor<8x8xf32>
}
"""


def test_the_print_reads_as_the_same_program() -> None:
    module = spmd.parse(_PROGRAM)
    pretty, generic = str(module), module.to_string(generic=True)
    assert str(spmd.parse(pretty)) == pretty
    assert str(spmd.parse(generic)) == pretty
    assert "sdy.manual_computation(%" in pretty
    assert '#sdy.sharding<mesh<["z"=8]>, [{"z"}, {?}]>' in pretty


def test_the_fold_of_a_collective_is_printed_where_it_is_no_sum() -> None:
    line = 'sdy.all_reduce KIND{"x"} %a out_sharding=<@mesh, [{}]> : tensor<4xf32>'
    program = 'sdy.mesh @mesh = <["x"=2]>\nfunc.func @main(%a: tensor<4xf32>) {\n%0 = LINE\nreturn\n}'
    for written, printed in (("", ""), ("sum ", ""), ("max ", "max "), ("min ", "min ")):
        text = str(spmd.parse(program.replace("LINE", line.replace("KIND", written))))
        assert f'sdy.all_reduce {printed}{{"x"}}' in text


def test_propagation_edges_read_and_print() -> None:
    text = '#sdy.propagation_edges<[{step-0 = [{"x" = operand-0 -> [operand-1, result-0]}]}]>'
    module = spmd.parse(f"func.func @main() attributes {{edges = {text}}} {{\nreturn\n}}")
    assert text in str(module)


_WRONG = {
    'sdy.mesh @m = <["x"=2, "x"=2]>': 'axis name "x" is used twice',
    'sdy.mesh @m = <["x"=0]>': "size of at least 1",
    'sdy.mesh @m = <["x"=2], device_ids=[0, 1]>': "must be left out",
    'sdy.mesh @m = <["x"=2], device_ids=[0, 0]>': "permutation",
    'sdy.mesh @m = <["x"=2], device_ids=[0, 1, 2]>': "there must be 2 device ids, got 3",
    "sdy.mesh @m = <[], device_ids=[0, 1]>": "at most one device id",
    "sdy.mesh @m = <[]>\nfunc.func @f(%a: tensor<4xf32>) {\n"
    "%b = sdy.propagation_barrier %a allowed_direction=BOTH : tensor<4xf32>\nreturn\n}": "must be NONE, FORWARD",
    'sdy.mesh @m = <["x"=2]>\nfunc.func @f(%a: tensor<4xf32>) {\n'
    "%b = sdy.sharding_constraint %a <@q, [{}]> : tensor<4xf32>\nreturn\n}": "unknown mesh @q",
    'sdy.mesh @m = <["x"=4]>\nfunc.func @f(%a: tensor<4xf32>) {\n'
    '%b = sdy.sharding_constraint %a <@m, [{"x":(1)2, "x":(2)2}]> : tensor<4xf32>\nreturn\n}': "must be merged",
    'sdy.mesh @m = <["x"=2, "y"=2]>\nfunc.func @f(%a: tensor<4xf32>) {\n'
    '%b = sdy.sharding_constraint %a <@m, [{}], replicated={"y", "x"}> : tensor<4xf32>\nreturn\n}': "order of the mesh",
    'sdy.mesh @m = <["x"=2]>\nfunc.func @f(%a: tensor<4xf32>) {\n'
    "%b = sdy.sharding_constraint %a <@m, [{}p1]> : tensor<4xf32>\nreturn\n}": "must not have a priority",
    'sdy.mesh @m = <["x"=2]>\nfunc.func @f(%a: tensor<5xf32>) {\n'
    '%b = sdy.manual_computation(%a) in_shardings=[<@m, [{"x"}]>] out_shardings=[<@m, [{"x"}]>] manual_axes={"x"}'
    " (%p: tensor<3xf32>) {\nsdy.return %p : tensor<3xf32>\n} : (tensor<5xf32>) -> tensor<5xf32>\nreturn\n}": (
        "not divisible by its manual axes"
    ),
    'sdy.mesh @m = <["x"=2]>\nfunc.func @f(%a: tensor<4xf32>) {\n'
    '%b = sdy.manual_computation(%a) in_shardings=[<@m, [{"x"}]>] out_shardings=[<@m, [{"x"}]>] manual_axes={"x"}'
    " (%p: tensor<4xf32>) {\nsdy.return %p : tensor<4xf32>\n} : (tensor<4xf32>) -> tensor<4xf32>\nreturn\n}": (
        "gives tensor<2xf32>"
    ),
    'sdy.mesh @m = <["x"=2, "y"=2]>\nfunc.func @f(%a: tensor<4xf32>) {\n'
    '%b = sdy.manual_computation(%a) in_shardings=[<@m, [{"y", "x"}]>] out_shardings=[<@m, [{"x"}]>] manual_axes={"x"}'
    " (%p: tensor<2xf32>) {\nsdy.return %p : tensor<2xf32>\n} : (tensor<4xf32>) -> tensor<4xf32>\nreturn\n}": (
        "manual axes must come before free ones"
    ),
    'func.func @f(%a: tensor<4xf32>) {\n%b = "sdy.propagation_barrier"(%a) {allowed_direction = 1 : i32} : '
    "(tensor<4xf32>) -> tensor<?xf32>\nreturn\n}": "must have the operand's type",
    'func.func @f(%a: tensor<4xf32>) {\n%b = "sdy.named_computation"(%a) <{name = "n"}> ({\n'
    "^bb0(%x: tensor<4xf32>):\n}) : (tensor<4xf32>) -> tensor<4xf32>\nreturn\n}": "ends with sdy.return, got nothing",
    'sdy.mesh @m = <["x"=2]>\nfunc.func @f(%a: tensor<4xf32>) {\n'
    '%b = "sdy.named_computation"(%a) <{name = "n", in_shardings = #sdy.sharding_per_value<[<@m, []>]>}> ({\n'
    "^bb0(%x: tensor<4xf32>):\nsdy.return %x : tensor<4xf32>\n}) : (tensor<4xf32>) -> tensor<4xf32>\nreturn\n}": (
        "must have the tensor's rank 1, got 0"
    ),
    "func.func @f(%a: tensor<4xf32>) {\n%b = stablehlo.sine %a {sdy.sharding_rule = "
    "#sdy.op_sharding_rule<([i])->([j]) {i=4, j=4} reduction={j}>} : tensor<4xf32>\nreturn\n}": "is in a result",
    "func.func @f(%a: tensor<4xf32>) {\n%b = stablehlo.sine %a {sdy.sharding_rule = "
    "#sdy.op_sharding_rule<([i])->([i]) {i=4, j=4}>} : tensor<4xf32>\nreturn\n}": "no operand or result has factor j",
}


@pytest.mark.parametrize("text", _WRONG)
def test_what_breaks_a_constraint(text: str) -> None:
    with pytest.raises((spmd.ParseError, spmd.VerificationError), match=_WRONG[text]):
        spmd.parse(text, "wrong.mlir")


#: A collective, the operand's sharding, the result's, and what is wrong; nothing for a sound one.
_COLLECTIVES = [
    ('all_gather [{"y"}, {"z"}]', '[{"x", "y"}, {"z"}]', '[{"x"}, {}]', ""),
    ('all_gather [{"z":(2)4}, {}]', '[{"z"}, {}]', '[{"z":(1)2}, {}]', ""),
    ('all_gather [{"x"}, {}]', '[{"x", "y"}, {}]', '[{"y"}, {}]', "most minor ones of dimension 0"),
    ('all_gather [{"y"}]', '[{"y"}, {}]', "[{}, {}]", "a list of axes for each of 2 dimensions, got 1"),
    ('all_gather [{"y"}, {"y"}]', '[{"y"}, {}]', "[{}, {}]", "used twice"),
    ('all_slice [{"y"}, {}]', '[{"x"}, {}]', '[{"x", "y"}, {}]', ""),
    ('all_slice [{"z":(2)4}, {}]', '[{"z":(1)2}, {}]', '[{"z"}, {}]', ""),
    ('all_slice [{"y"}, {}]', '[{"x"}, {}]', '[{"y"}, {}]', 'dimension 0 of the result must be sharded by {"x", "y"}'),
    ('reduce_scatter [{}, {"y"}]', '[{"x"}, {}]', '[{"x"}, {"y"}]', ""),
    ('reduce_scatter [{}, {"y"}]', '[{"x"}, {}]', '[{"x"}, {}]', "dimension 1 of the result"),
    ('all_to_all [{"y"}: 0->1]', '[{"x", "y"}, {"z"}]', '[{"x"}, {"z", "y"}]', ""),
    ('all_to_all [{"y"}: 0->1]', '[{"x", "y"}, {"z"}]', '[{"x"}, {"y", "z"}]', "dimension 1 of the result"),
    ("collective_permute", '[{"z"}, {}]', '[{"x", "y"}, {}]', ""),
    ("collective_permute", '[{"z"}, {}]', '[{"x"}, {}]', "equally many blocks before and after, got 8 and 2"),
    ('all_reduce {"x", "y"}', '[{"z"}, {}]', '[{"z"}, {}]', ""),
    ('all_reduce {"y", "x"}', '[{"z"}, {}]', '[{"z"}, {}]', "order of the mesh"),
    ('all_reduce {"z":(1)2}', '[{"z":(1)4}, {}]', '[{"z":(1)4}, {}]', "shard a dimension"),
    ('all_reduce {"x"}', '[{"z"}, {}]', '[{"y"}, {}]', "dimension 0 of the result"),
    ('all_reduce {"x"}', '[{}, {}], unreduced={"x"}', '[{}, {}], unreduced={"x"}', "stay unreduced"),
    ('sharded_to_unreduced [{"x"}, {}]', '[{"x"}, {}], unreduced={"y"}', '[{}, {}], unreduced={"x", "y"}', ""),
    ('sharded_to_unreduced [{"x"}, {}]', '[{"x"}, {}], unreduced={"y"}', '[{}, {}], unreduced={"x"}', "unreduced axes"),
    ('replicated_to_unreduced {"x"}', '[{"y"}, {}]', '[{"y"}, {}], unreduced={"x"}', ""),
    ('replicated_to_unreduced {"x"}', '[{"y"}, {}]', '[{"y"}, {}]', "unreduced axes"),
]


@pytest.mark.parametrize("where", ["argument", "constraint"])
@pytest.mark.parametrize(("op", "before", "after", "what"), _COLLECTIVES)
def test_a_collective_makes_the_sharding_that_it_says(where: str, op: str, before: str, after: str, what: str) -> None:
    on_argument = f" {{sdy.sharding = #sdy.sharding<@m, {before}>}}" if where == "argument" else ""
    constraint = "" if on_argument else f"%a = sdy.sharding_constraint %v <@m, {before}> : tensor<8x8xf32>\n"
    text = (
        'sdy.mesh @m = <["x"=2, "y"=4, "z"=8]>\n'
        f"func.func @f({'%a' if on_argument else '%v'}: tensor<8x8xf32>{on_argument}) {{\n{constraint}"
        f"%b = sdy.{op} %a out_sharding=<@m, {after}> : tensor<8x8xf32>\nreturn\n}}"
    )
    assert_verifies(text, what)


@pytest.mark.parametrize(
    "text",
    [
        '#sdy.sharding<@m, [{"x"}], replicated={}>',
        '#sdy.sharding<@m, [{"x"}p01]>',
        '#sdy.sharding<@m, [{?, "x"}]>',
        '#sdy.sharding<@m, [{"x"}], sharded={"y"}>',
        "#sdy.op_sharding_rule<([a])->([i]) {i=4}>",
        "#sdy.op_sharding_rule<([i])->([i]) {j=4}>",
    ],
)
def test_what_is_no_attribute(text: str) -> None:
    with pytest.raises(spmd.ParseError, match=r"wrong\.mlir:1:"):
        spmd.parse(f"func.func @f() attributes {{a = {text}}} {{\nreturn\n}}", "wrong.mlir")
