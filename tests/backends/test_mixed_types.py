"""Programs that StableHLO's verifier takes and its text forbids have a meaning, the same under both back ends."""

import re
from dataclasses import replace

import numpy as np
import pytest

import spmd
from tests.dialects.cases import Change
from tests.dialects.test_advice import BREAKS
from tests.dialects.test_constraints import CASES

_ALONE = [entry for entry in BREAKS if entry[0] not in ("all_reduce", "reduce_scatter", "rng")]
_WINDOW = """func.func @main(%a: tensor<3x2xINPUT>, %b: tensor<INITIAL>) -> tensor<4x2xSUM> {
  %r = "stablehlo.reduce_window"(%a, %b) ({
  ^bb0(%x: tensor<SUM>, %y: tensor<SUM>):
    %s = stablehlo.FOLD %x, %y : tensor<SUM>
    stablehlo.return %s : tensor<SUM>
  }) {window_dimensions = array<i64: 2, 1>, padding = dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>} :
    (tensor<3x2xINPUT>, tensor<INITIAL>) -> tensor<4x2xSUM>
  return %r : tensor<4x2xSUM>
}"""


def _results(text: str, *arguments: np.ndarray) -> list[list[np.ndarray]]:
    module = spmd.parse(text)
    function = module.functions[0].symbol
    return [
        [np.asarray(result) for result in spmd.compile(module, function=function, backends=backends)(*arguments)]
        for backends in (("llvm", "numpy"), ("numpy",))
    ]


@pytest.mark.parametrize(("op", "label", "changes"), _ALONE, ids=lambda value: value if isinstance(value, str) else "")
def test_what_only_the_text_forbids_runs(op: str, label: str, changes: list[Change]) -> None:
    case = next(case for case in CASES if case.op == op)
    text = replace(case, breaks={label: changes}).broken(label)
    (last,) = spmd.parse(text).functions[0].body.ops[-2:-1]
    names = ", ".join(f"%r#{index}" for index in range(len(last.results))) if len(last.results) > 1 else "%r"
    types = ", ".join(map(str, last.result_types))
    text = text.replace("func.return\n", f"func.return {names} : {types}\n").replace(") {\n", f") -> ({types}) {{\n", 1)
    inputs = [value.tensor for value in spmd.parse(text).functions[0].body.arguments]
    arguments = [
        (np.arange(type.size) % 3).reshape(type.static_shape).astype(type.element_type.dtype) for type in inputs
    ]
    native, numpy = _results(text, *arguments)
    for left, right in zip(native, numpy, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left.astype(np.float64), right.astype(np.float64))


@pytest.mark.parametrize("fold", ["add", "maximum", "subtract"])
@pytest.mark.parametrize(
    ("types", "initial"),
    [
        (("i8", "i32", "i32"), 1000),
        (("i32", "i8", "i32"), -7),
        (("f32", "f64", "f64"), 0.1),
        (("f16", "f32", "f32"), 0.1),
    ],
)
def test_padding_holds_the_initial_value_as_it_is_folded(
    types: tuple[str, str, str], initial: float, fold: str
) -> None:
    text = re.sub("INPUT|INITIAL|SUM", lambda name: types[("INPUT", "INITIAL", "SUM").index(name[0])], _WINDOW)
    given, start, sums = (np.dtype({"i": "int", "f": "float"}[type[0]] + type[1:]) for type in types)
    values = np.arange(6).reshape(3, 2).astype(given)
    begin = np.asarray(initial, start).astype(sums)
    padded = np.full((5, 2), begin)
    padded[1:4] = values
    ufunc = getattr(np, fold)
    expected = ufunc(ufunc(begin, padded[:-1]), padded[1:])
    for (got,) in _results(text.replace("FOLD", fold), values, np.asarray(initial, start)):
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        assert got.dtype == sums
