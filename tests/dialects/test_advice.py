"""What only the specification's text forbids: taken, and told as a warning with its label.

`BREAKS` has the constraints that frontends break as a matter of course: they accumulate in other types, or leave a
precision out. `test_no_element_type_is_free` looks for more of their kind: it changes the element type of each operand
and result of each op by itself, which is refused, told, or one of those that the specification leaves open.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import spmd
from spmd.compiler.pipeline.verify import warnings
from spmd.errors import SpmdError
from tests.dialects.cases import Change, OpCase, signature
from tests.dialects.test_constraints import CASES

_ADD = "(%x: tensor<f32>, %y: tensor<f32>): %s = stablehlo.add %x, %y : tensor<f32> stablehlo.return %s : tensor<f32>"
_NARROW = (_ADD, _ADD.replace("f32", "bf16"))
_SCALARS = ("tensor<f32>", "tensor<bf16>")
_SELECT = "(%u: tensor<f32>, %v: tensor<f32>): %c = stablehlo.compare GE, %u, %v : (tensor<f32>, tensor<f32>)"
_ONE = "[#stablehlo<precision DEFAULT>]"
_SOURCE = "tensor<2x2xf32>, tensor<f32>)"

#: Op, label, and the changes of its first case that break the constraint.
BREAKS: list[tuple[str, str, list[Change]]] = [
    ("dot_general", "C11", [("DEFAULT>, #stablehlo<precision DEFAULT>]", "DEFAULT>]")]),
    ("dot_general", "C11", [("[#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]", "[]")]),
    ("dot_general", "C13", [("tensor<4x2x5xf32>)", "tensor<4x2x5xbf16>)")]),
    ("dot_general", "C13", [("tensor<4x2x5xf32>)", "tensor<4x2x5xi32>)")]),
    ("convolution", "C24", [("[#stablehlo<precision DEFAULT>, #stablehlo<precision HIGH>]", _ONE)]),
    ("convolution", "C27", [("-> tensor<4x3x14x6xf32>", "-> tensor<4x3x14x6xf64>")]),
    ("dynamic_conv", "C24", [("[#stablehlo<precision DEFAULT>, #stablehlo<precision HIGH>]", _ONE)]),
    ("dynamic_conv", "C27", [("-> tensor<4x3x14x6xf32>", "-> tensor<4x3x14x6xf64>")]),
    ("reduce", "C2", [("tensor<f32>, tensor<i32>) ->", "tensor<f64>, tensor<i32>) ->")]),
    ("reduce", "C2", [("tensor<f32>, tensor<i32>) ->", "tensor<f32>, tensor<i8>) ->")]),
    ("reduce_window", "C3", [("tensor<f32>, tensor<i32>) ->", "tensor<bf16>, tensor<i32>) ->")]),
    ("reduce_window", "C3", [("tensor<f32>, tensor<i32>) ->", "tensor<f32>, tensor<i16>) ->")]),
    ("scatter", "C6", [("tensor<7x2x2x3xf32>)", "tensor<7x2x2x3xf64>)")]),
    ("scatter", "C6", [("tensor<7x2x2x3xf32>)", "tensor<7x2x2x3xf16>)")]),
    ("scatter", "C23", [_NARROW, ("-> tensor<2x4x5x6xf32>", "-> tensor<2x4x5x6xbf16>")]),
    ("select_and_scatter", "C1", [(_SOURCE, "tensor<2x2xf64>, tensor<f32>)")]),
    ("select_and_scatter", "C3", [(_SOURCE, "tensor<2x2xf32>, tensor<f64>)")]),
    ("select_and_scatter", "C9", [(_SELECT, _SELECT.replace("f32", "f64"))]),
    ("select_and_scatter", "C10", [_NARROW, ("-> tensor<4x2xf32>", "-> tensor<4x2xbf16>")]),
    ("all_reduce", "C5", [_SCALARS, ("-> tensor<2xf32>", "-> tensor<2xbf16>")]),
    ("reduce_scatter", "C7", [_SCALARS, ("-> tensor<2x3xf32>", "-> tensor<2x3xbf16>")]),
    ("rng_bit_generator", "I2", [("tensor<2xui64>", "tensor<4xui32>")]),
    ("rng_bit_generator", "I2", [("tensor<2xui64>", "tensor<2xi64>")]),
    ("rng_bit_generator", "I2", [("tensor<2xui64>", "tensor<1x2xui64>")]),
    ("rng", "I3", [("tensor<2xi64>", "tensor<2xi32>")]),
]

#: Operands and results (by number, in the order of the signature) whose element types the specification leaves open,
#: or lets widen: sources and targets of conversions, indices, sizes, and what regions accumulate in.
OPEN = {
    "all_reduce": [0], "collective_reduce": [0], "reduce_scatter": [0], "bitcast_convert": [0], "convert": [0, 1],
    "dot_general": [2], "dynamic_broadcast_in_dim": [1], "dynamic_conv": [2], "dynamic_iota": [0, 1],
    "dynamic_reshape": [1], "gather": [1], "get_dimension_size": [0], "get_tuple_element": [0], "infeed": [1],
    "iota": [0], "is_finite": [0], "recv": [1], "rng_bit_generator": [2], "scatter": [1, 2], "send": [0],
}  # fmt: skip
_OTHERS = {
    "f32": ("f64", "bf16", "i32"), "f64": ("f32",), "i8": ("i16",), "i32": ("i64", "ui32", "f32"),
    "i64": ("i32", "ui64"), "ui32": ("ui64",), "ui64": ("i64", "ui32"), "i1": ("i8",),
    "complex<f32>": ("complex<f64>",),
}  # fmt: skip
_ELEMENT = re.compile(rf"(?<=[<x])({'|'.join(map(re.escape, _OTHERS))})(?=[>,])")


@pytest.mark.parametrize(("op", "label", "changes"), BREAKS, ids=lambda value: value if isinstance(value, str) else "")
def test_what_only_the_text_forbids_is_a_warning(op: str, label: str, changes: list[Change]) -> None:
    case = next(case for case in CASES if case.op == op)
    module = spmd.parse(replace(case, breaks={label: changes}).broken(label))
    (warning,) = warnings(module)
    assert (warning.op, warning.label) == (f"stablehlo.{op}", label)
    assert not warnings(spmd.parse(case.text))


@pytest.mark.sampled(23)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_no_element_type_is_free(case: OpCase) -> None:
    if case.arguments is not None:
        return  # its operands are not the signature's alone
    declared = signature(case.body)
    attributes = case.body.removesuffix(declared)
    values = [match.start() for match in re.finditer(r"!?\b(tensor<|stablehlo\.token)", declared)]
    for match in _ELEMENT.finditer(declared):
        number = sum(start < match.start() for start in values) - 1
        for other in _OTHERS[match[0]]:
            changed = declared[: match.start()] + other + declared[match.end() :]
            try:
                module = spmd.parse(replace(case, body=attributes + changed).text)
            except SpmdError:
                continue
            assert warnings(module) or number in OPEN.get(case.op, ()), changed


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("func.func private @f(tensor<2x!quant.uniform<i32:f32, 1.0>>)", ["func.func"]),
        ("func.func @f(%a: tensor<2x!quant.uniform<i16:bf16, 1.0>>) { return }", ["func.func"]),
        ("func.func @f(%a: tensor<2x!quant.uniform<i8:f32, 1.0>>) { return }", []),
        (
            """func.func @f(%a: tensor<2xf32>) {
              %0 = stablehlo.uniform_quantize %a : (tensor<2xf32>) -> tensor<2x!quant.uniform<i32:f32, 1.0>>
              %1 = stablehlo.uniform_dequantize %0 : (tensor<2x!quant.uniform<i32:f32, 1.0>>) -> tensor<2xf32>
              return
            }""",
            ["stablehlo.uniform_quantize"],
        ),
    ],
)
def test_storage_as_wide_as_what_it_expresses_is_a_warning(text: str, places: list[str]) -> None:
    told = warnings(spmd.parse(text))
    assert [warning.op for warning in told] == places
    assert all(warning.label == "C1" and "num_bits(storage_type)" in warning.message for warning in told)
