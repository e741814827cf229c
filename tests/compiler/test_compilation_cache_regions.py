"""Property: what the compilation cache gives is what compiling anew gives, whatever regions a module has.

Drawn modules hold regions of every kind that is applied to elements, several to a function, whose bodies have a loop
(and are then stacked), call functions, capture values or constants, or hold neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.compiler.pipeline.options import default_backends
from spmd.support.arrays import Array
from tests.effort import examples

if "llvm" not in default_backends():
    pytest.skip("native code alone is kept", allow_module_level=True)

SIZE = 12
ROW, SCALAR, TRUTH = f"tensor<{SIZE}xf32>", "tensor<f32>", "tensor<i1>"

#: Bodies of a combiner of %a and %b; K is drawn, so that no two need be alike. Each gives %r.
COMBINERS = {
    "pointwise": "%k = stablehlo.constant dense<K> : F\n%m = stablehlo.multiply %b, %k : F\n"
    "%r = stablehlo.add %a, %m : F",
    "loop": """%i0 = stablehlo.constant dense<0> : tensor<i32>
      %end = stablehlo.constant dense<2> : tensor<i32>
      %k = stablehlo.constant dense<K> : F
      %w:2 = stablehlo.while(%i = %i0, %s = %a) : tensor<i32>, F cond {
        %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %n = stablehlo.add %i, %one : tensor<i32>
        %m = stablehlo.multiply %b, %k : F
        %t = stablehlo.add %s, %m : F
        stablehlo.return %n, %t : tensor<i32>, F
      }
      %r = stablehlo.add %w#1, %k : F""",
    "captured": "%m = stablehlo.multiply %b, %outer : F\n%r = stablehlo.add %a, %m : F",
    "captured loop": """%i0 = stablehlo.constant dense<0> : tensor<i32>
      %end = stablehlo.constant dense<1> : tensor<i32>
      %w:2 = stablehlo.while(%i = %i0, %s = %a) : tensor<i32>, F cond {
        %c = stablehlo.compare LE, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %n = stablehlo.add %i, %end : tensor<i32>
        %m = stablehlo.multiply %b, %fixed : F
        %t = stablehlo.add %s, %m : F
        stablehlo.return %n, %t : tensor<i32>, F
      }
      %r = stablehlo.multiply %w#1, %outer : F""",
    "call": "%r = func.call @combine(%a, %b) : (F, F) -> F",
}
#: Ops that apply the combiner to the row %x, and give a row.
USES = {
    "reduce": """%s_N = "stablehlo.reduce"(%x, %outer) ({ ^bb0(%a: F, %b: F): BODY stablehlo.return %r : F })
        {dimensions = array<i64: 0>} : (R, F) -> F
      %y_N = stablehlo.broadcast_in_dim %s_N, dims = [] : (F) -> R""",
    "reduce_window": """%y_N = "stablehlo.reduce_window"(%x, %outer) ({ ^bb0(%a: F, %b: F):
        BODY stablehlo.return %r : F }) {window_dimensions = array<i64: 3>, window_strides = array<i64: 1>,
        padding = dense<[[1, 1]]> : tensor<1x2xi64>} : (R, F) -> R""",
    "scatter": """%y_N = "stablehlo.scatter"(%x, %places, %part) ({ ^bb0(%a: F, %b: F): BODY stablehlo.return %r : F })
        {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (R, tensor<5x1xi32>, tensor<5xf32>) -> R""",
    "select_and_scatter": """%y_N = "stablehlo.select_and_scatter"(%x, %third, %outer) ({ ^bb0(%p: F, %q: F):
        %t = stablehlo.compare GE, %p, %q : (F, F) -> tensor<i1> stablehlo.return %t : tensor<i1>
      }, { ^bb0(%a: F, %b: F): BODY stablehlo.return %r : F }) {window_dimensions = array<i64: 3>,
        window_strides = array<i64: 3>} : (R, tensor<4xf32>, F) -> R""",
    "sort": """%y_N = "stablehlo.sort"(%x) ({ ^bb0(%a: F, %b: F): BODY
        %t = stablehlo.compare LT, %r, %outer : (F, F) -> tensor<i1> stablehlo.return %t : tensor<i1> })
        {dimension = 0 : i64} : (R) -> R""",
    "map": """%y_N = "stablehlo.map"(%x, %x) ({ ^bb0(%a: F, %b: F): BODY stablehlo.return %r : F })
        {dimensions = array<i64: 0>} : (R, R) -> R""",
    "all_reduce": """%y_N = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: F, %b: F): BODY stablehlo.return %r : F })
        {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (R) -> R""",
    "reduce_scatter": """%u_N = stablehlo.concatenate %x, %x, dim = 0 : (R, R) -> tensor<24xf32>
      %y_N = "stablehlo.reduce_scatter"(%u_N) ({ ^bb0(%a: F, %b: F): BODY stablehlo.return %r : F })
        {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<24xf32>) -> R""",
    "custom_call": """%y_N = stablehlo.custom_call @tests.twice(%x) {called_computations = [@combine]} : (R) -> R""",
    "branch": """%o_N = stablehlo.compare GT, %outer, %fixed : (F, F) -> tensor<i1>
      %y_N = "stablehlo.if"(%o_N) ({ SECOND stablehlo.return %z : R }, { stablehlo.return %x : R })
        : (tensor<i1>) -> R""",
}
COLLECTIVES = ("all_reduce", "reduce_scatter")
#: Combiners that a collective may have: processes differ in what they would capture.
OF_COLLECTIVES = ("pointwise", "loop", "call")
COMBINE = """func.func private @combine(%a: F, %b: F) -> F {
  %k = stablehlo.constant dense<K> : F
  %m = stablehlo.multiply %b, %k : F
  %r = stablehlo.subtract %m, %a : F
  return %r : F
}"""

Use = tuple[str, str, str]


def written(uses: Sequence[Use], factor: str) -> str:
    """A program whose main gives a row for each use: an op, a combiner, and the number in it."""
    lines = []
    for number, (op, combiner, k) in enumerate(uses):
        chosen = combiner if op not in COLLECTIVES or combiner in OF_COLLECTIVES else "loop"
        text = USES[op].replace("SECOND", USES["reduce_window"].replace("%y_N", "%z"))
        lines.append(text.replace("BODY", COMBINERS[chosen].replace("K", k) + "\n").replace("_N", str(number)))
    results = ", ".join(f"%y{number}" for number in range(len(uses)))
    types = ", ".join(["R"] * len(uses))
    main = f"""func.func @main(%x: R, %outer: F) -> ({types}) {{
  %fixed = stablehlo.constant dense<0.75> : F
  %places = stablehlo.constant dense<[[1], [3], [1], [11], [0]]> : tensor<5x1xi32>
  %part = stablehlo.slice %x [2:7] : (R) -> tensor<5xf32>
  %third = stablehlo.slice %x [0:12:3] : (R) -> tensor<4xf32>
  {chr(10).join(lines)}
  return {results} : {types}
}}"""
    text = f"module {{ {main}\n{COMBINE.replace('K', factor)} }}"
    return text.replace("F", SCALAR).replace("R", ROW)


def outcome(text: str) -> list[bytes]:
    inputs = [[np.linspace(-2 - rank, 3, SIZE, dtype=np.float32), np.float32(0.5 + rank)] for rank in range(2)]
    results = spmd.run_parallel(spmd.parse(text), spmd.ProcessGrid(2, 1), inputs)
    return [np.asarray(array).tobytes() for rank in results for array in rank]


def twice(x: Array, attributes: object) -> Array:
    return np.asarray(x * 2, np.float32)


spmd.register_custom_call("tests.twice", twice)

uses_drawn = st.tuples(
    st.sampled_from(list(USES)), st.sampled_from(list(COMBINERS)), st.sampled_from(["0.5", "2.0", "-1.0"])
)


@settings(max_examples=examples(40))
@given(drawn=st.lists(uses_drawn, min_size=1, max_size=4), factor=st.sampled_from(["1.0", "3.0"]))
def test_what_the_cache_gives_is_what_compiling_anew_gives(drawn: list[Use], factor: str) -> None:
    text = written(drawn, factor)
    cold, warm = outcome(text), outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPMD_CACHE_DIR", "")
        anew = outcome(text)
    assert cold == anew and warm == anew
