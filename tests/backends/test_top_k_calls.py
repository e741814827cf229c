"""XLA's custom call @TopK, in StableHLO and HLO text: the first of rows in the order of a comparator that it calls."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import spmd

#: An order: its comparator of two elements in StableHLO, the same in HLO, and the order of an array's elements.
ORDERS = {
    "largest": ("GT, %a, %b", "(a, b), direction=GT", lambda x: np.argsort(-x, -1, "stable")),
    "least": ("LT, %a, %b", "(a, b), direction=LT", lambda x: np.argsort(x, -1, "stable")),
    "largest, the other way round": ("LT, %b, %a", "(b, a), direction=LT", lambda x: np.argsort(-x, -1, "stable")),
    "least, the other way round": ("GT, %b, %a", "(b, a), direction=GT", lambda x: np.argsort(x, -1, "stable")),
}
X = np.array([[1, 5, 5, 2, -3, 7], [0, -1, -2, 9, 3, 3]])
TYPES = {"bf16": "bf16", "f32": "f32", "f64": "f64", "i32": "s32", "ui8": "u8"}
K = 4


def stablehlo(element: str, compared: str, *, total: bool, places: bool = True, tupled: bool = True) -> str:
    kind = ", TOTALORDER" if total and "f" in element else ""
    more = ", %i: tensor<i32>, %j: tensor<i32>" if places else ""
    types = f"tensor<2x{K}x{element}>, tensor<2x{K}xi32>"
    call = f"stablehlo.custom_call @TopK(%x) {{called_computations = [@cmp]}} : (tensor<2x6x{element}>)"
    if tupled:
        body = f"""%t = {call} -> tuple<{types}>
    %v = stablehlo.get_tuple_element %t[0] : (tuple<{types}>) -> tensor<2x{K}x{element}>
    %p = stablehlo.get_tuple_element %t[1] : (tuple<{types}>) -> tensor<2x{K}xi32>
    return %v, %p : {types}"""
    else:
        body = f"%t:2 = {call} -> ({types})\n    return %t#0, %t#1 : {types}"
    return f"""module {{
  func.func @main(%x: tensor<2x6x{element}>) -> ({types}) {{
    {body}
  }}
  func.func private @cmp(%a: tensor<{element}>, %b: tensor<{element}>{more}) -> tensor<i1> {{
    %0 = stablehlo.compare {compared}{kind} : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
    return %0 : tensor<i1>
  }}
}}"""


def hlo(element: str, compared: str, *, total: bool, places: bool = True) -> str:
    element = TYPES[element]
    kind = ", type=TOTALORDER" if total and "f" in element else ""
    more = "\n  i = s32[] parameter(2)\n  j = s32[] parameter(3)" if places else ""
    return f"""HloModule m

cmp {{
  a = {element}[] parameter(0)
  b = {element}[] parameter(1){more}
  ROOT c = pred[] compare{compared}{kind}
}}

ENTRY e {{
  x = {element}[2,6] parameter(0)
  ROOT t = ({element}[2,{K}], s32[2,{K}]) custom-call(x), custom_call_target="TopK", called_computations={{cmp}}
}}"""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("element", TYPES)
def test_the_first_in_either_order_and_their_places(element: str, order: str, total: bool) -> None:
    """Of equals the one at the lower place; with a comparator of elements alone, and of their places, too."""
    text, text_of_hlo, ordered = ORDERS[order]
    x = np.abs(X) if element == "ui8" else X
    places = ordered(x.astype(np.float64))[:, :K]
    given = x.astype(ml_dtypes.bfloat16 if element == "bf16" else spmd.types.ELEMENT_TYPES[element].dtype)
    for program in (
        stablehlo(element, text, total=total, tupled=total, places=element != "f64"),
        hlo(element, text_of_hlo, total=total, places=element != "f64"),
    ):
        for backends in (("llvm", "numpy"), ("numpy",)):
            values, found = spmd.compile(spmd.parse(program), backends=backends)(given)
            np.testing.assert_array_equal(found, places)
            np.testing.assert_array_equal(values, np.take_along_axis(given, places, -1))


def test_nan_is_the_largest_in_total_order_and_minus_nan_the_least() -> None:
    x = np.array([[1, np.nan, np.inf, -np.nan, 0.0, -0.0], [-np.inf, 2, -0.0, 0.0, np.nan, -1]], np.float32)
    x[0, 3] = np.copysign(np.nan, -1)
    for program in (stablehlo, hlo):
        compared = {stablehlo: ("GT, %a, %b", "LT, %a, %b"), hlo: ("(a, b), direction=GT", "(a, b), direction=LT")}
        largest, least = (
            spmd.compile(spmd.parse(program("f32", each, total=True)))(x)[1].tolist() for each in compared[program]
        )
        assert largest == [[1, 2, 0, 4], [4, 1, 3, 2]] and least == [[3, 5, 4, 0], [0, 5, 2, 3]]


def test_a_call_without_a_comparator_gives_the_largest() -> None:
    text = stablehlo("f32", "GT, %a, %b", total=True).replace(" {called_computations = [@cmp]}", "")
    values, places = spmd.compile(spmd.parse(text))(X.astype(np.float32))
    assert places.tolist() == [[5, 1, 2, 3], [3, 4, 5, 0]] and values.tolist() == [[7, 5, 5, 2], [9, 3, 3, 0]]


def test_it_is_the_same_on_several_processes() -> None:
    module = spmd.parse(stablehlo("f32", "LT, %a, %b", total=True))
    x = np.stack([X, X[::-1] + 1]).astype(np.float32)
    stacked = spmd.simulate(module, spmd.ProcessGrid(2, 1))(x)
    for rank in range(2):
        for mine, other in zip(spmd.compile(module)(x[rank]), stacked, strict=True):
            np.testing.assert_array_equal(mine, other[rank])


@pytest.mark.parametrize("total", [True, False])
def test_written_as_hlo_it_is_read_back(total: bool) -> None:
    from spmd.builder.hlo import print_hlo

    module = spmd.parse(stablehlo("f32", "LT, %a, %b", total=total, tupled=False))
    again = spmd.parse(print_hlo(module, "m"))
    for mine, other in zip(spmd.compile(module)(X.astype("f")), spmd.compile(again)(X.astype("f")), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("%i: tensor<i32>, %j: tensor<i32>", "%i: tensor<i64>, %j: tensor<i64>", "@cmp compares two elements and"),
        (f"tensor<2x{K}xi32>", f"tensor<2x{K}xf32>", "the first of its last dimension in order, and their places"),
        (f"tensor<2x{K}x", "tensor<2x7x", "the first of its last dimension in order, and their places"),
        ("[@cmp]", "[@none]", "@none"),
        ("2x6x", "2x2147483649x", "the places of 2147483649 elements do not fit i32"),
    ],
)  # fmt: skip
def test_what_it_does_not_take_is_told_with_its_line(old: str, new: str, said: str) -> None:
    text = stablehlo("f32", "GT, %a, %b", total=True, tupled=False)
    assert old in text
    with pytest.raises(spmd.SpmdError, match=f"(?s)^p.mlir:3:.*{said}"):
        spmd.compile(spmd.parse(text.replace(old, new), "p.mlir"))
