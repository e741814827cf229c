"""What Shardy's dialect demands of ops in their place: each condition broken, and a sound module beside it."""

from __future__ import annotations

import pytest

import spmd
from tests.partitioner.verifying import assert_verifies

_MESHES = """
sdy.mesh @m = <["x"=2, "y"=4]>
sdy.mesh @same = <["x"=2, "y"=4]>
sdy.mesh @turned = <["x"=2, "y"=4], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>
sdy.mesh @three = <["z"=3]>
sdy.mesh @one = <[], device_ids=[5]>
sdy.mesh @none = <[]>
"""
_T = "tensor<8x8xf32>"
_LOOP = """%i = stablehlo.constant dense<0> : tensor<i32>
  %w:2 = stablehlo.while(%c = %a, %k = %i) : tensor<8x8xf32>, tensor<i32> attributes {SHARDING}
  cond {
    %p = stablehlo.compare LT, %k, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %s = stablehlo.sine %c : tensor<8x8xf32>
    stablehlo.return %s, %k : tensor<8x8xf32>, tensor<i32>
  }
"""


def _module(body: str, sharding: str = '<@m, [{"x"}, {"y"}]>') -> str:
    sharding_text = f" {{sdy.sharding = #sdy.sharding{sharding}}}" if sharding else ""
    return f"{_MESHES}func.func @f(%a: {_T}{sharding_text}) {{\n  {body}\n  return\n}}"


def _constraint(sharding: str, then: str, first: str = "%b = sdy.sharding_constraint") -> str:
    return f"{first} %a <{sharding}> : {_T}\n  {then}"


#: What is put in a function of an argument %a laid out as [{"x"}, {"y"}] on @m; what is wrong with it.
_WRONG = [
    (f'%0 = sdy.sharding_constraint %a <@nobody, [{{"x"}}, {{}}]> : {_T}', "unknown mesh @nobody"),
    (f'%0 = sdy.sharding_constraint %a <mesh<["w"=0]>, [{{}}, {{}}]> : {_T}', "size of at least 1"),
    (f"%0 = sdy.sharding_constraint %a <@one, [{{}}, {{}}]> : {_T}", "maximal mesh"),
    (f'%0 = sdy.sharding_constraint %a <@three, [{{"x"}}, {{}}]> : {_T}', 'unknown axis "x"'),
    (f'%0 = sdy.sharding_constraint %a <@m, [{{}}, {{}}], unreduced=max{{"x"}}> : {_T}', "new unreduced axes"),
    (
        _constraint(
            '@m, [{}, {}], unreduced={"x"}', f'%0 = sdy.reshard %b <@m, [{{}}, {{}}], unreduced=min{{"x"}}> : {_T}'
        ),
        "cannot stay unreduced of min",
    ),
    (
        "%0 = sdy.constant dense<1.0> : tensor<f32>\n  %1 = sdy.all_gather [] %0 out_sharding=<@m, []> : tensor<f32>",
        "operand has no sharding",
    ),
    (f'%0 = sdy.all_gather [{{"x"}}, {{}}] %a out_sharding=<@same, [{{}}, {{"z"}}]> : {_T}', 'unknown axis "z"'),
    (
        f'%0 = sdy.all_gather [{{"z"}}, {{}}] %a out_sharding=<@three, [{{}}, {{}}]> : {_T}',
        "sharded over the result's mesh",
    ),
    (
        f'%0 = sdy.all_gather [{{"x"}}, {{}}] %a out_sharding=<@turned, [{{}}, {{"y"}}]> : {_T}',
        "sharded over the result's mesh",
    ),
    (f"%0 = sdy.collective_permute %a out_sharding=<@three, [{{}}, {{}}]> : {_T}", "sharded over the result's mesh"),
    (
        f'%0 = sdy.collective_permute %a out_sharding=<@same, [{{"x"}}, {{"y"}}]> : {_T}',
        "one name for the same device order",
    ),
    (f'%0 = sdy.all_reduce {{}} %a out_sharding=<@same, [{{"x"}}, {{"y"}}]> : {_T}', "sharded over one mesh"),
    (
        _constraint(
            '@m, [{}, {}], replicated={"x"}', f'%0 = sdy.all_reduce {{"x"}} %b out_sharding=<@m, [{{}}, {{}}]> : {_T}'
        ),
        "are replicated in the operand",
    ),
    (
        _constraint(
            '@m, [{}, {}], unreduced={"x"}',
            f'%0 = sdy.all_reduce max {{"x"}} %b out_sharding=<@m, [{{}}, {{}}]> : {_T}',
        ),
        "cannot be reduced by max",
    ),
    (
        f'%0 = sdy.all_reduce {{}} %a out_sharding=<@m, [{{"x"}}, {{"y":(1)2}}]> : {_T}',
        'dimension 1 of the result must be sharded by {"y"}',
    ),
    (
        _constraint(
            "@m, [{}, {}]", f'%0 = sdy.all_reduce {{}} %b out_sharding=<@m, [{{}}, {{}}], unreduced={{"x"}}> : {_T}'
        ),
        "become unreduced",
    ),
    (
        f'%0 = sdy.reduce_scatter [{{}}, {{"x"}}] %a out_sharding=<@m, [{{"x"}}, {{"y"}}]> : {_T}',
        "dimension 1 of the result",
    ),
    (
        _constraint(
            '@m, [{}, {}], unreduced={"x"}',
            f'%0 = sdy.reduce_scatter max [{{"x"}}, {{}}] %b out_sharding=<@m, [{{"x"}}, {{}}]> : {_T}',
        ),
        "cannot be reduced by max",
    ),
    (
        '%0 = sdy.sharded_to_unreduced [{"x"}, {}] %a out_sharding=<@m, [{}, {"y"}], unreduced=max{"x"}> : ' + _T,
        "must have the reduction sum",
    ),
    (
        _constraint(
            "@m, [{}, {?}]",
            '%0 = sdy.replicated_to_unreduced {"x"} %b out_sharding=<@m, [{}, {}], unreduced={"x"}> : ' + _T,
        ),
        "same dimension shardings",
    ),
    (
        '%0 = sdy.replicated_to_unreduced {"x"} %a out_sharding=<@m, [{"x"}, {"y"}], unreduced={"x"}> : ' + _T,
        "used twice",
    ),
    (f"%0 = sdy.data_flow_edge %a : {_T}\n  %1 = stablehlo.sine %a : {_T}", "must have one use"),
    (
        _constraint("@m, [{}, {}]", f"%0 = sdy.data_flow_edge %b : {_T}"),
        "op with data-flow edges",
    ),
    (
        f'%b = stablehlo.sine %a : {_T}\n  %0 = sdy.data_flow_edge %b sharding=<@m, [{{"z"}}, {{}}]> : {_T}',
        "unknown axis",
    ),
    (f"%0 = sdy.func_data_flow_edge %a : {_T}\n  %1 = stablehlo.sine %a : {_T}", "must have one use"),
    (f"%b = stablehlo.sine %a : {_T}\n  %0 = sdy.func_data_flow_edge %b : {_T}", "result of a call"),
    (f"%0 = stablehlo.sine %a {{sdy.sharding = #sdy.sharding<@m, [{{}}, {{}}]>}} : {_T}", "sharding_per_value"),
    (f"%0 = stablehlo.sine %a {{sdy.sharding_rule = 1 : i64}} : {_T}", "must be a #sdy.op_sharding_rule"),
    (f"%0 = stablehlo.sine %a {{sdy.propagation_edges = 1 : i64}} : {_T}", "must be #sdy.propagation_edges"),
    (f"%0 = stablehlo.sine %a {{sdy.result_propagation_edges = [1]}} : {_T}", "array of #sdy.propagation_edges"),
    (f"%0 = stablehlo.sine %a {{sdy.block_arg_propagation_edges = 1 : i64}} : {_T}", "array of #sdy.propagation_edges"),
    (
        "%0 = stablehlo.sine %a {sdy.propagation_edges = #sdy.propagation_edges<[{step-0 = "
        f'[{{"q" = operand-0 -> [result-0]}}]}}]>}} : {_T}',
        'no axis "q"',
    ),
    (
        "%0 = stablehlo.sine %a {sdy.propagation_edges = #sdy.propagation_edges<[{step-0 = "
        f'[{{"x" = operand-0 -> [result-1]}}]}}]>}} : {_T}',
        "result-1 must be one of",
    ),
    (
        "%0 = stablehlo.sine %a {sdy.propagation_edges = #sdy.propagation_edges<[{step-0 = "
        f'[{{"x" = result-0 -> [operand-3]}}]}}]>}} : {_T}',
        "none of the referenced values",
    ),
    (
        "%0 = stablehlo.sine %a {sdy.propagation_edges = #sdy.propagation_edges<[{step-0 = "
        f'[{{"x" = operand-0 -> [operand-0]}}]}}]>}} : {_T}',
        "both source and target",
    ),
    (
        "%0 = stablehlo.sine %a {sdy.propagation_edges = #sdy.propagation_edges<[{step-0 = []}, {step-0 = []}]>} : "
        + _T,
        "defined twice",
    ),
    (
        "%0 = sdy.manual_computation(%a) in_shardings=[<@m, [{}, {}]>] out_shardings=[<@three, [{}, {}]>]"
        f' manual_axes={{"x"}} (%b: {_T}) {{\n  sdy.return %b : {_T}\n  }} : ({_T}) -> {_T}',
        "on one mesh",
    ),
    (
        "%0 = sdy.manual_computation(%a) in_shardings=[<@none, [{}, {}]>] out_shardings=[<@none, [{}, {}]>]"
        f' manual_axes={{"x"}} (%b: {_T}) {{\n  sdy.return %b : {_T}\n  }} : ({_T}) -> {_T}',
        'unknown manual axis "x"',
    ),
    (
        _LOOP.replace("SHARDING", 'sdy.sharding = #sdy.sharding_per_value<[<@m, [{"x"}, {}]>, <@m, []>]>')
        + f'  %e = sdy.all_gather [{{"y"}}, {{}}] %w#0 out_sharding=<@m, [{{}}, {{}}]> : {_T}',
        "most minor ones of dimension 0",
    ),
    (
        _LOOP.replace("SHARDING", "a = 1 : i64")
        + f'  %e = sdy.data_flow_edge %w#0 sharding=<@m, [{{"y"}}, {{}}]> : {_T}\n'
        + f'  %g = sdy.all_gather [{{"x"}}, {{}}] %e out_sharding=<@m, [{{}}, {{}}]> : {_T}',
        "most minor ones of dimension 0",
    ),
]


@pytest.mark.parametrize("index", range(len(_WRONG)))
def test_a_broken_condition_is_told(index: int) -> None:
    body, what = _WRONG[index]
    with pytest.raises((spmd.ParseError, spmd.VerificationError)) as refused:
        spmd.parse(_module(body))
    assert what in str(refused.value)


_SOUND = [
    f"%0 = sdy.sharding_constraint %a <@one, []> : {_T}",
    f'%0 = sdy.sharding_constraint %a <@three, [{{"z"}}, {{}}]> : {_T}',
    f'%0 = sdy.collective_permute %a out_sharding=<@turned, [{{"x"}}, {{"y"}}]> : {_T}',
    f"%0 = stablehlo.sine %a {{sdy.propagation_edges = #sdy.propagation_edges<[{{step-1 = "
    f'[{{"x" = operand-0 -> [result-0]}}]}}]>}} : {_T}',
    f"%b = stablehlo.sine %a : {_T}\n  %0 = sdy.data_flow_edge %b sharding=<@m, [{{}}, {{}}]> : {_T}",
    f"%0 = sdy.func_data_flow_edge %a : {_T}",
    "%0 = sdy.manual_computation(%a) in_shardings=[<@none, [{}, {}]>] out_shardings=[<@three, [{}, {}]>]"
    f" manual_axes={{}} (%b: {_T}) {{\n  sdy.return %b : {_T}\n  }} : ({_T}) -> {_T}",
    "%0 = stablehlo.constant dense<1.0> : tensor<8x8xf32>\n"
    f'  %1 = sdy.all_slice [{{"x"}}, {{}}] %0 out_sharding=<@m, [{{"x"}}, {{}}]> : {_T}',
    _constraint(
        '@m, [{}, {}], unreduced=max{"x"}',
        f"%c = sdy.propagation_barrier %b allowed_direction=NONE : {_T}\n"
        f"  %0 = sdy.reshard %c <@m, [{{}}, {{}}]> : {_T}",
        "%b = sdy.sharding_constraint",
    ).replace("%a <", "%free <"),
    _LOOP.replace("SHARDING", "a = 1 : i64")
    + f'  %e = sdy.data_flow_edge %w#0 sharding=<@m, [{{"y"}}, {{}}]> : {_T}\n'
    + f'  %g = sdy.all_gather [{{"y"}}, {{}}] %e out_sharding=<@m, [{{}}, {{}}]> : {_T}',
]


@pytest.mark.parametrize("index", range(len(_SOUND)))
def test_sound_modules_pass(index: int) -> None:
    text = _module(_SOUND[index])
    if "%free" in text:
        text = text.replace(f"%a: {_T}", f"%free: {_T}, %a: {_T}")
    module = spmd.parse(text)
    assert str(spmd.parse(str(module))) == str(module)


def test_a_fault_is_told_once_at_its_place() -> None:
    body = (
        f'%b = sdy.sharding_constraint %a <@m, [{{"nope"}}, {{}}]> : {_T}\n'
        f'  %c = sdy.reshard %b <@m, [{{"x"}}, {{}}]> : {_T}\n'
        f'  %d = sdy.all_gather [{{"x"}}, {{}}] %b out_sharding=<@m, [{{}}, {{}}]> : {_T}'
    )
    with pytest.raises(spmd.VerificationError) as refused:
        spmd.parse(_module(body))
    assert len(refused.value.diagnostics) == 1


def test_a_mesh_stands_in_a_module() -> None:
    with pytest.raises(spmd.VerificationError, match=r"a mesh stands in a module, got one in func\.func"):
        spmd.parse(_module('sdy.mesh @inner = <["a"=2]>'))


def test_a_function_has_no_values_to_shard() -> None:
    wrong = '#sdy.sharding_per_value<[<@m, [{"x"}]>]>'
    with pytest.raises(spmd.VerificationError, match="1 shardings for 0 results"):
        spmd.parse(f"{_MESHES}func.func @f() attributes {{sdy.sharding = {wrong}}} {{\nreturn\n}}")


def _sharded(type: str, dimensions: str) -> str:
    return f"{_MESHES}func.func @f(%a: {type} {{sdy.sharding = #sdy.sharding<@m, [{dimensions}]>}}) {{\n  return\n}}"


@pytest.mark.parametrize(
    ("type", "dimensions"),
    [
        ("!stablehlo.token", ""),
        ("tuple<tensor<8xf32>>", '{"x"}'),
        ("tensor<?x8xf32>", '{"x"}, {"y"}'),
        ("memref<8xf32>", '{"x"}'),
    ],
)
def test_what_has_a_sharding(type: str, dimensions: str) -> None:
    assert_verifies(_sharded(type, dimensions), "")


@pytest.mark.parametrize(
    ("type", "dimensions", "what"),
    [
        ("tensor<*xf32>", "", "only a ranked tensor may have a sharding"),
        ("!stablehlo.token", "{}", "a sharding of rank 0"),
        ("tuple<tensor<8xf32>, tensor<8xf32>>", "", "a tuple of one value"),
        ("memref<8xf32>", "", "the tensor's rank 1, got 0"),
    ],
)
def test_what_has_not_that_sharding(type: str, dimensions: str, what: str) -> None:
    assert_verifies(_sharded(type, dimensions), what)


@pytest.mark.parametrize(
    "long",
    [
        '%0 = stablehlo.sine %a {sdy.sharding = #sdy.sharding_per_value<[#sdy.sharding<@m, [{"x"}, {}]>]>} : ' + _T,
        f"%0 = stablehlo.sine %a {{sdy.sharding = #sdy.sharding_per_value<[#s]>}} : {_T}",
        f'%0 = sdy.sharding_constraint %a #sdy.sharding<@m, [{{"x"}}, {{}}]> : {_T}',
        f'%0 = sdy.all_gather [{{}}, {{"y"}}] %a out_sharding=#s : {_T}',
        f'%0 = sdy.all_reduce #sdy<axis_ref_list{{}}> %a out_sharding=<@m, [{{"x"}}, {{"y"}}]> : {_T}',
        '%0 = sdy.named_computation<"n">(%a) in_shardings=[#s] out_shardings=#sdy.sharding_per_value<[#s]>'
        f" (%b: {_T}) {{\n  sdy.return %b : {_T}\n  }} : ({_T}) -> {_T}",
    ],
)
def test_long_forms_and_aliases_stand_for_stripped_ones(long: str) -> None:
    module = spmd.parse('#s = #sdy.sharding<@m, [{"x"}, {}]>\n' + _module(long))
    assert '<@m, [{"x"}, {}]>' in str(module) or "all_reduce {}" in str(module)
    assert str(spmd.parse(str(module))) == str(module)
