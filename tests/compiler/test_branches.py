"""Branches that a constant chooses are the program; the others leave it, whatever they hold."""

import numpy as np
import pytest

import spmd

CASE = """func.func @main(%a: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {{
  %i = stablehlo.constant dense<{index}> : tensor<i32>
  %j = stablehlo.add %i, %i : tensor<i32>
  %r:2 = "stablehlo.case"(%j) ({{
    %0 = stablehlo.add %a, %a : tensor<2xf32>
    stablehlo.return %a, %0 : tensor<2xf32>, tensor<2xf32>
  }}, {{
    %0 = stablehlo.custom_call @nobody(%a) : (tensor<2xf32>) -> tensor<2xf32>
    stablehlo.return %0, %a : tensor<2xf32>, tensor<2xf32>
  }}, {{
    %p = stablehlo.constant dense<true> : tensor<i1>
    %0 = "stablehlo.if"(%p) ({{
      %1 = stablehlo.multiply %a, %a : tensor<2xf32>
      stablehlo.return %1 : tensor<2xf32>
    }}, {{
      %1 = stablehlo.custom_call @nobody(%a) : (tensor<2xf32>) -> tensor<2xf32>
      stablehlo.return %1 : tensor<2xf32>
    }}) : (tensor<i1>) -> tensor<2xf32>
    stablehlo.return %0, %0 : tensor<2xf32>, tensor<2xf32>
  }}) : (tensor<i32>) -> (tensor<2xf32>, tensor<2xf32>)
  return %r#0, %r#1 : tensor<2xf32>, tensor<2xf32>
}}"""


@pytest.mark.parametrize(("index", "kept"), [(0, ([3, 4], [6, 8])), (1, ([9, 16],) * 2), (-1, ([9, 16],) * 2)])
def test_of_a_case_the_chosen_branch_is_left(index: int, kept: tuple[list[int], list[int]]) -> None:
    got = spmd.compile(spmd.parse(CASE.format(index=index)))(np.float32([3, 4]))
    assert tuple(result.tolist() for result in got) == kept


def test_a_branch_that_an_argument_may_choose_must_run_here() -> None:
    text = CASE.format(index=0).replace("(%a: tensor<2xf32>)", "(%a: tensor<2xf32>, %j: tensor<i32>)")
    with pytest.raises(spmd.CompileError, match="no custom call target named 'nobody'"):
        spmd.compile(spmd.parse(text.replace("  %j = stablehlo.add %i, %i : tensor<i32>\n", "")))
