"""Constraints on types: StableHLO specification, "Types" (quantized types C1 to C13), bounds and futures.

C2, C4, C8 and C9 hold by construction: a storage type's bounds, scales and zero points are numbers that the type's
fields hold one beside the other.
"""

from __future__ import annotations

import gc
import math
import re

import pytest

import spmd
from spmd.dialects.type_rules import type_fault, value_fault
from spmd.errors import SpmdError
from spmd.types import F32, I8, UI8, FutureType, QuantizedType, TensorType, TokenType
from spmd.types.base import _Interned
from tests.dialects.test_constraints import CASES


def _quantized(**changes: object) -> QuantizedType:
    fields: dict[str, object] = {
        "storage": I8, "expressed": F32, "storage_min": -128, "storage_max": 127, "scales": (0.5,), "zero_points": (3,),
    }  # fmt: skip
    return QuantizedType(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("label", "changes"),
    [
        ("C3", {"storage_min": -129}),
        ("C3", {"storage_max": 128}),
        ("C3", {"storage_min": 5, "storage_max": 5}),
        ("C5", {"scales": (0.0,)}),
        ("C5", {"scales": (-1.0,)}),
        ("C6", {"scales": (math.inf,)}),
        ("C6", {"scales": (math.nan,)}),
        ("C9", {"zero_points": (1, 2), "quantization_dimension": 0}),
        ("C10", {"scales": (0.5, 0.5), "zero_points": (0, 0)}),
        ("C11", {"quantization_dimension": -1}),
    ],
)
def test_a_quantized_type_is_refused_wherever_it_stands(label: str, changes: dict[str, object]) -> None:
    fault = type_fault(TensorType((2,), _quantized(**changes)))
    assert fault is not None and fault[0] == label


@pytest.mark.parametrize(
    ("label", "shape", "changes"),
    [
        ("C7", (2,), {"zero_points": (128,)}),
        ("C7", (2,), {"storage": UI8, "storage_min": 0, "storage_max": 255, "zero_points": (-1,)}),
        ("C12", (2,), {"scales": (0.5, 0.5), "zero_points": (0, 0), "quantization_dimension": 1}),
        ("C13", (3,), {"scales": (0.5, 0.5), "zero_points": (0, 0), "quantization_dimension": 0}),
    ],
)
def test_no_value_has_a_quantized_type_that_contradicts_itself(
    label: str, shape: tuple[int, ...], changes: dict[str, object]
) -> None:
    type = TensorType(shape, _quantized(**changes))
    fault = value_fault(type)
    assert fault is not None and fault[0] == label
    assert type_fault(type) is None


def test_a_dynamic_quantized_dimension_may_have_any_number_of_scales() -> None:
    element = _quantized(scales=(0.5, 0.5), zero_points=(0, 0), quantization_dimension=0)
    assert value_fault(TensorType((None,), element)) is None


def test_a_value_of_a_broken_type_is_refused_where_an_op_takes_it() -> None:
    text = """func.func @f(%a: tensor<3x!quant.uniform<i8:f32:0, {0.5, 0.5}>>) {
      %0 = stablehlo.uniform_dequantize %a : (tensor<3x!quant.uniform<i8:f32:0, {0.5, 0.5}>>) -> tensor<3xf32>
      func.return
    }"""
    with pytest.raises(spmd.VerificationError) as refused:
        spmd.parse(text)
    (diagnostic,) = refused.value.diagnostics
    assert (diagnostic.label, diagnostic.location.line) == ("C13", 2)


def test_a_broken_type_in_a_signature_that_nothing_uses_is_refused_too() -> None:
    with pytest.raises(spmd.VerificationError, match="C12"):
        spmd.parse("func.func private @f(%a: tensor<!quant.uniform<i8:f32:0, {0.5, 0.5}>>)")


@pytest.mark.parametrize(
    ("type", "what"),
    [
        ("tensor<3xf32, #stablehlo.bounds<3>>", "dimension 0"),
        ("tensor<?xf32, #stablehlo.bounds<3, 4>>", "2 for rank 1"),
        ("!stablehlo.future<!stablehlo.token>", "ranked tensors"),
    ],
)
def test_bounds_and_futures(type: str, what: str) -> None:
    with pytest.raises(SpmdError, match=what):
        spmd.parse(f"func.func private @f(%a: {type})")


def test_a_bound_stands_on_a_dynamic_dimension() -> None:
    assert type_fault(TensorType((None, 2), F32, (4, None))) is None
    assert type_fault(FutureType((TensorType((2,), F32),))) is None
    assert type_fault(FutureType((TokenType(),))) is not None


@pytest.mark.parametrize(
    ("type", "label"),
    [
        ("i8:f32, 1.0e-50", "C4"), ("i8:f32, 1.0e60", "C4"), ("i8:f16, 70000.0", "C4"), ("i8:bf16, 1.0e39", "C4"),
        ("i4:f16, 5.9e-8", "C4"),
        ("i8:f32, 0.0", "C5"), ("i8:f32, -1.0", "C5"), ("i32:f16, 1.0", "C1"), ("i16:f8E4M3FN, 1.0", "C1"),
    ],
)  # fmt: skip
def test_a_quantized_type_that_cannot_be(type: str, label: str) -> None:
    with pytest.raises(spmd.ParseError, match=rf"\({label}\)"):
        spmd.parse(f"func.func private @f(tensor<2x!quant.uniform<{type}>>)")


@pytest.mark.parametrize(
    ("spelled", "plain"),
    [
        ("si8:f32, 0.5:0", "i8:f32, 0.5"),
        ("si8:f32:0, {0.5:0, 1.0:-1}", "i8:f32:0, {0.5, 1.0:-1}"),
        ("si8<-5:5>:f32, {0.5:+3}", "i8<-5:5>:f32, 0.5:3"),
        ("si4:f32, 2.0:-8", "i4:f32, 2.0:-8"),
        ("si32:f64, 0.5:1", "i32:f64, 0.5:1"),
        ("ui8:f32, 0.5:255:ui8", "u8:f32, 0.5:255"),
        ("i8<-5:i8:5:si8>:f32:0:si64, {0.5:f32:1:i8, 1.0}", "i8<-5:5>:f32:0, {0.5:1, 1.0}"),
        ("si8<-128:si8:127:si8>:f32, 0.5:f32:3:si8", "i8:f32, 0.5:3"),
        ("si8:f32:{0:1}, {0.5:1, 0.5:2}", "i8:f32:{0:1}, {0.5:1, 0.5:2}"),
    ],
)
def test_the_specifications_spelling_of_a_quantized_type_is_mlirs_type(spelled: str, plain: str) -> None:
    """Its grammar has `si8`, a zero point with every scale, and constants that may have their types."""
    types = [
        spmd.parse(f"func.func private @f(tensor<2x!quant.uniform<{text}>>)").functions[0].type.inputs[0]
        for text in (spelled, plain)
    ]
    assert str(types[0]) == str(types[1])


def test_every_op_takes_the_specifications_spelling() -> None:
    """Of all programs in the quantized form, nothing but the spelling tells the two."""
    quantized = [case.text for case in CASES if "!quant.uniform<i8:f32, 0.5>" in case.text]
    assert len(quantized) > 3
    for text in quantized:
        spelled = text.replace("!quant.uniform<i8:f32, 0.5>", "!quant.uniform<si8:f32, 0.5:0>")
        assert str(spmd.parse(spelled)) == str(spmd.parse(text))


@pytest.mark.parametrize(
    ("type", "told"),
    [
        ("si8<-5:i16:5>:f32, 0.5:0", "(C2) type(storage_min) = i8, got i16"),
        ("i8:f32, 0.5:f64:0", "(C4) type(scale) = f32, got f64"),
        ("i8:f32, 0.5:0:ui8", "(C8) type(zero_point) = i8, got ui8"),
        ("i8:f32:0:i32, {0.5:0}", "type(quantization_dimension) = i64, got i32"),
    ],
)
def test_a_constant_of_another_type_in_a_quantized_type(type: str, told: str) -> None:
    with pytest.raises(spmd.ParseError, match=re.escape(told)):
        spmd.parse(f"func.func private @f(tensor<2x!quant.uniform<{type}>>)")


def test_a_signed_spelling_without_a_zero_point_is_mlirs_and_refused_by_ops() -> None:
    with pytest.raises(spmd.VerificationError, match=r"\(I1\) operand"):
        spmd.parse("""func.func @main(%a: tensor<2x!quant.uniform<si8:f32, 0.5>>) -> tensor<2xf32> {
      %r = stablehlo.uniform_dequantize %a : (tensor<2x!quant.uniform<si8:f32, 0.5>>) -> tensor<2xf32>
      return %r : tensor<2xf32>
    }""")


@pytest.mark.parametrize(
    "element",
    ["complex<f16>", "complex<i32>", "i128", "si7", "string", "f80", "tf32", "!a.b", "!quant.uniform<si8:f32, 0.5>"],
)
@pytest.mark.parametrize("type", ["tensor<2x{}>", "tensor<?x{}>", "tuple<tensor<2x{}>>"])
def test_elements_that_no_array_holds_are_refused_where_they_are_compiled(element: str, type: str) -> None:
    """They are read, since programs may have them that nobody runs."""
    spelled = type.format(element)
    module = spmd.parse(f"func.func @main(%x: {spelled}) -> {spelled} {{ return %x : {spelled} }}")
    with pytest.raises(
        spmd.CompileError, match=r"argument 0 of @main is .*: no array can hold elements of type"
    ) as refused:
        spmd.compile(module)
    assert refused.value.diagnostics[0].location.line == 1


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("i8:f32, 0x3F000000", 0.5), ("i8:bf16, 0x3F00:3", 0.5), ("i8:f64, 0x3FE0000000000000", 0.5),
        ("i8:f32:0, {0x3F000000, 0.5}", 0.5), ("i8:f16, +0x3800 : f16", 0.5),
    ],
)  # fmt: skip
def test_a_scale_may_be_the_bits_of_the_expressed_type(text: str, scale: float) -> None:
    module = spmd.parse(f"func.func @main(%x: tensor<2x!quant.uniform<{text}>>) {{ return }}")
    assert set(module.functions[0].type.inputs[0].element_type.scales) == {scale}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ("0x3F0000000", "expected a scale"), ("-0x3F000000", "expected a scale"),
        ("0x7F800000", r"\(C6\) is_finite\(scales...\), got inf \(C7 of StableHLO 0.16\)"),
        ("0xBF000000", r"\(C5\) 0 < scales, got -0.5 \(C6 of StableHLO 0.16\)"),
    ],
)  # fmt: skip
def test_bits_that_are_no_scale_are_refused(scale: str, words: str) -> None:
    with pytest.raises(spmd.ParseError, match=words):
        spmd.parse(f"func.func @main(%x: tensor<2x!quant.uniform<i8:f32, {scale}>>) {{ return }}")


def test_a_type_goes_with_its_last_use() -> None:
    def kept() -> int:
        gc.collect()
        return sum((3, 98765) in key for key in _Interned._table)

    type = TensorType((3, 98765), F32)
    assert TensorType((3, 98765), F32) is type and kept() == 1
    del type
    assert kept() == 0
