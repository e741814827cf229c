"""Values that are unreduced over an axis: each process holds its own share, across calls, control flow and regions."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from tests.partitioner.running import run_module, run_parts

UNREDUCED = '<@mesh, [{}], unreduced={"x"}>'
#: A manual computation whose result is a share of a sum, of %arg0.
SHARE = f"""sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{{"x"}}]>] out_shardings=[{UNREDUCED}]
    manual_axes={{"x"}} (%arg2: tensor<2xf32>) {{
  %1 = stablehlo.add %arg2, %arg2 : tensor<2xf32>
  sdy.return %1 : tensor<2xf32>
}} : (tensor<4xf32>) -> tensor<2xf32>"""
FUNCTION = f"""func.func private @f(%arg0: tensor<4xf32>) -> tensor<2xf32> {{
  %0 = {SHARE}
  return %0 : tensor<2xf32>
}}"""
ONE = "tensor<2xf32>"
#: The first branch of two, of which the other gives zeros.
BRANCH = f"""%i = stablehlo.constant dense<0> : tensor<i32>
%r = "stablehlo.case"(%i) ({{
  INSIDE
  stablehlo.return %s : {ONE}
}}, {{
  %z = stablehlo.constant dense<0.0> : {ONE}
  stablehlo.return %z : {ONE}
}}) : (tensor<i32>) -> {ONE}"""
#: One turn of a loop, whose state begins as %z and is %s after it.
LOOP = f"""%i = stablehlo.constant dense<0> : tensor<i32>
%one = stablehlo.constant dense<1> : tensor<i32>
%w:2 = stablehlo.while(%k = %i, %c = %z) : tensor<i32>, {ONE}
cond {{
  %t = stablehlo.compare LT, %k, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %t : tensor<i1>
}} do {{
  %n = stablehlo.add %k, %one : tensor<i32>
  INSIDE
  stablehlo.return %n, %s : tensor<i32>, {ONE}
}}
%r = stablehlo.optimization_barrier %w#1 : {ONE}"""
#: Bodies of @main, whose result %r is 2 * x as shares of a sum.
BODIES = {
    "inline": (f"%r = {SHARE}", ""),
    "call": ("%r = call @f(%arg0) : (tensor<4xf32>) -> tensor<2xf32>", FUNCTION),
    "call in call": (
        "%r = call @g(%arg0) : (tensor<4xf32>) -> tensor<2xf32>",
        """func.func private @g(%arg0: tensor<4xf32>) -> tensor<2xf32> {
             %0 = call @f(%arg0) : (tensor<4xf32>) -> tensor<2xf32>
             return %0 : tensor<2xf32>
           }"""
        + FUNCTION,
    ),
    "a branch": (BRANCH.replace("INSIDE", f"%s = {SHARE}"), ""),
    "before a branch": (f"%s = {SHARE}\n{BRANCH}".replace("INSIDE", ""), ""),
    "a call in a branch": (
        BRANCH.replace("INSIDE", "%s = func.call @f(%arg0) : (tensor<4xf32>) -> tensor<2xf32>"),
        FUNCTION,
    ),
    "a loop": (f"%z = stablehlo.constant dense<0.0> : {ONE}\n{LOOP}".replace("INSIDE", f"%s = {SHARE}"), ""),
    "a loop's state": (f"%z = {SHARE}\n{LOOP}".replace("INSIDE", "").replace("%n, %s", "%n, %c"), ""),
    "behind another op": (f"%s = {SHARE}\n%r = stablehlo.add %s, %s : tensor<2xf32>", ""),
    "into a computation": (
        f"%s = {SHARE}\n%r = sdy.manual_computation(%s) in_shardings=[{UNREDUCED}] out_shardings=[{UNREDUCED}] "
        'manual_axes={"x"} (%b: tensor<2xf32>) {\n%2 = stablehlo.add %b, %b : tensor<2xf32>\n'
        "sdy.return %2 : tensor<2xf32>\n} : (tensor<2xf32>) -> tensor<2xf32>",
        "",
    ),
}


def program(name: str, result: str) -> str:
    body, functions = BODIES[name]
    return f"""sdy.mesh @mesh = <["x"=2]>
func.func public @main(%arg0: tensor<4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}})
    -> (tensor<2xf32> {{sdy.sharding = #sdy.sharding{result}}}) {{
  {body}
  return %r : tensor<2xf32>
}}
{functions}"""


def factor(name: str) -> int:
    return 4 if name in ("behind another op", "into a computation") else 2


INPUTS = [[np.array([1, 2], np.float32)], [np.array([10, 20], np.float32)]]


@pytest.mark.parametrize("name", [name for name in BODIES if name != "behind another op"])
def test_each_process_keeps_its_share(name: str) -> None:
    results = spmd.run_parallel(spmd.parse(program(name, UNREDUCED)), spmd.ProcessGrid(1, 2), INPUTS)
    for (share,), (block,) in zip(results, INPUTS, strict=True):
        np.testing.assert_array_equal(share, factor(name) * block)


def test_shares_behind_another_op_add_up() -> None:
    results = spmd.run_parallel(spmd.parse(program("behind another op", UNREDUCED)), spmd.ProcessGrid(1, 2), INPUTS)
    np.testing.assert_array_equal(results[0][0] + results[1][0], np.array([44, 88], np.float32))


@pytest.mark.parametrize("name", BODIES)
def test_a_result_that_is_not_unreduced_is_the_sum(name: str) -> None:
    x = np.array([1, 2, 10, 20], np.float32)
    (result,) = run_parts(program(name, "<@mesh, [{}]>"), [x], 2)
    np.testing.assert_array_equal(result, factor(name) * (x[:2] + x[2:]))


def test_an_argument_that_is_unreduced_enters_a_computation_as_shares() -> None:
    text = f"""sdy.mesh @mesh = <["x"=2]>
func.func @main(%arg0: tensor<2xf32> {{sdy.sharding = #sdy.sharding{UNREDUCED}}})
    -> (tensor<4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}}) {{
  %0 = stablehlo.negate %arg0 : tensor<2xf32>
  %1 = sdy.manual_computation(%0) in_shardings=[{UNREDUCED}] out_shardings=[<@mesh, [{{"x"}}]>] manual_axes={{"x"}}
      (%a: tensor<2xf32>) {{
    %2 = stablehlo.add %a, %a : tensor<2xf32>
    sdy.return %2 : tensor<2xf32>
  }} : (tensor<2xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}}"""
    results = spmd.run_parallel(spmd.parse(text), spmd.ProcessGrid(1, 2), INPUTS)
    total = np.sum([block for (block,) in results], axis=0)
    np.testing.assert_array_equal(total, -2 * np.array([11, 22], np.float32))


@pytest.mark.parametrize("mode", ["threads", "stacked"])
@pytest.mark.parametrize("cuts", ["[{}, {}]", '[{"y"}, {}]', '[{}, {"x"}]'])
def test_shares_of_which_there_are_copies_are_terms_of_the_sum_once(cuts: str, mode: str) -> None:
    """Devices that differ along an axis that neither cuts nor is unreduced hold the same share."""
    text = f"""sdy.mesh @mesh = <["x"=2, "y"=2, "z"=3]>
func.func @main(%a: tensor<2x6xi32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"y"}}, {{"z"}}]>}})
    -> (tensor<2x6xi32> {{sdy.sharding = #sdy.sharding<@mesh, {cuts}, unreduced={{"z"}}>}}) {{
  %0 = stablehlo.negate %a : tensor<2x6xi32>
  return %0 : tensor<2x6xi32>
}}"""
    a = np.arange(12, dtype=np.int32).reshape(2, 6)
    (result,) = run_module(spmd.parse(text), [a], 12, mode=mode)
    np.testing.assert_array_equal(result, -a)


@pytest.mark.parametrize("fold", ["and", "or", "xor", "multiply", "maximum", "minimum", "add"])
@pytest.mark.parametrize("element", ["i1", "i32"])
def test_results_that_stay_partial_are_joined_by_their_fold(fold: str, element: str) -> None:
    """The result's layout comes from propagation, along the dimension that is folded away."""
    identity = {"and": -1, "multiply": 1, "minimum": 2**31 - 1, "maximum": -(2**31)}.get(fold, 0)
    if element == "i1":
        identity = int(fold in ("and", "multiply", "minimum"))
    text = f"""func.func @main(%a: tensor<6x4x{element}> MARK) -> tensor<4x{element}> {{
  %c = stablehlo.constant dense<{identity}> : tensor<{element}>
  %r = stablehlo.reduce(%a init: %c) applies stablehlo.{fold} across dimensions = [0]
    : (tensor<6x4x{element}>, tensor<{element}>) -> tensor<4x{element}>
  return %r : tensor<4x{element}>
}}"""
    a = np.random.default_rng(3).integers(0, 2 if element == "i1" else 9, (6, 4))
    argument = a.astype(bool if element == "i1" else np.int32)
    sharded = 'sdy.mesh @mesh = <["x"=3]>\n' + text.replace(
        "MARK", '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
    )
    (whole,) = spmd.compile(spmd.parse(text.replace("MARK", "")))(argument)
    (result,) = run_parts(sharded, [argument], 3)
    np.testing.assert_array_equal(result, whole)


def test_a_partial_conjunction_beside_a_cut_result() -> None:
    text = """sdy.mesh @mesh = <["x"=5]>
func.func @main(%a: tensor<1x4xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, %b: tensor<1x4xi32>)
    -> (tensor<4xi32>, tensor<4xi1>) {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %c = stablehlo.constant dense<true> : tensor<i1>
  %s = stablehlo.reduce(%a init: %z) applies stablehlo.maximum across dimensions = [0]
    : (tensor<1x4xi32>, tensor<i32>) -> tensor<4xi32>
  %1 = sdy.sharding_constraint %s <@mesh, [{"x"}]> : tensor<4xi32>
  %3 = stablehlo.compare GT, %a, %b, SIGNED : (tensor<1x4xi32>, tensor<1x4xi32>) -> tensor<1x4xi1>
  %4 = stablehlo.reduce(%3 init: %c) applies stablehlo.and across dimensions = [0]
    : (tensor<1x4xi1>, tensor<i1>) -> tensor<4xi1>
  return %1, %4 : tensor<4xi32>, tensor<4xi1>
}"""
    a, b = np.array([[1, 5, 2, 7]], np.int32), np.full((1, 4), 3, np.int32)
    largest, above = run_parts(text, [a, b], 5)
    assert largest.tolist() == [1, 5, 2, 7]
    assert above.tolist() == [False, True, False, True]


def test_a_postponed_op_does_not_read_what_a_branch_has_made() -> None:
    """Of two slices before a branch, which it alone reads, the second is written where it stands."""
    text = f"""sdy.mesh @mesh = <["x"=2]>
func.func @main(%arg0: tensor<4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}}, %i: tensor<i32>)
    -> tensor<2xf32> {{
  %r = {SHARE}
  %q = stablehlo.slice %r [1:2] : (tensor<2xf32>) -> tensor<1xf32>
  %b = "stablehlo.case"(%i) ({{
    stablehlo.return %r : tensor<2xf32>
  }}, {{
    %h = stablehlo.slice %r [0:1] : (tensor<2xf32>) -> tensor<1xf32>
    %c = stablehlo.concatenate %h, %q, dim = 0 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
    stablehlo.return %c : tensor<2xf32>
  }}) : (tensor<i32>) -> tensor<2xf32>
  return %b : tensor<2xf32>
}}"""
    x = np.array([1, 2, 10, 20], np.float32)
    for taken in (0, 1):
        (result,) = run_parts(text, [x, np.int32(taken)], 2)
        np.testing.assert_array_equal(result, 2 * (x[:2] + x[2:]))
