"""Cases of elementwise ops and of those that quantize."""

from __future__ import annotations

from tests.dialects.cases import OpCase

_PER_TENSOR = "!quant.uniform<i8:f32, 0.5:3>"
_AXIS_0 = "!quant.uniform<i8:f32:0, {0.5, 0.25}>"
_AXIS_1 = "!quant.uniform<i8:f32:1, {0.5, 0.25}>"

CASES = [
    *(
        OpCase(
            name, f": (tensor<2x3x{element}>) -> tensor<2x3x{element}>", {"C1": ("-> tensor<2x3x", "-> tensor<2x4x")}
        )
        for name, element in {
            "cbrt": "f32", "ceil": "f32", "cosine": "f64", "count_leading_zeros": "i32", "exponential": "bf16",
            "exponential_minus_one": "f16", "floor": "f32", "log": "complex<f32>", "log_plus_one": "f32",
            "logistic": "f32", "negate": "i8", "not": "i1", "popcnt": "ui16", "round_nearest_afz": "f32",
            "round_nearest_even": "f32", "rsqrt": "f32", "sign": "f32", "sine": "f32", "sqrt": "f32", "tan": "f32",
            "tanh": "f32",
        }.items()
    ),
    *(
        OpCase(
            name,
            f": (tensor<2x3x{element}>, tensor<2x3x{element}>) -> tensor<2x3x{element}>",
            {"C1": (f", tensor<2x3x{element}>)", f", tensor<3x2x{element}>)")},
        )
        for name, element in {
            "and": "i1", "atan2": "f32", "divide": "f32", "maximum": "f32", "minimum": "i32", "multiply": "f32",
            "or": "i8", "power": "f32", "remainder": "f32", "shift_left": "i32", "shift_right_arithmetic": "i32",
            "shift_right_logical": "ui32", "subtract": "f32", "xor": "i64",
        }.items()
    ),
    OpCase(
        "abs",
        ": (tensor<2xcomplex<f32>>) -> tensor<2xf32>",
        {"C1": ("-> tensor<2x", "-> tensor<3x"), "C2": ("-> tensor<2xf32>", "-> tensor<2xf64>")},
    ),
    *(
        OpCase(
            name,
            ": (tensor<2xcomplex<f64>>) -> tensor<2xf64>",
            {"C1": ("-> tensor<2x", "-> tensor<3x"), "C2": ("-> tensor<2xf64>", "-> tensor<2xf32>")},
        )
        for name in ("imag", "real")
    ),
    OpCase(
        "add",
        ": (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        {"C1": (", tensor<2xf32>)", ", tensor<2xf64>)")},
    ),
    OpCase(
        "add",
        f": (tensor<2x{_PER_TENSOR}>, tensor<2x{_PER_TENSOR}>) -> tensor<2x{_PER_TENSOR}>",
        {
            "C2": (f", tensor<2x{_PER_TENSOR}>)", ", tensor<2xf32>)"),
            "C3": (f", tensor<2x{_PER_TENSOR}>)", ", tensor<2x!quant.uniform<i16:f32, 0.5:3>>)"),
            "C4": (f", tensor<2x{_PER_TENSOR}>)", ", tensor<2x!quant.uniform<i8:f16, 0.5:3>>)"),
            "C5": (f"-> tensor<2x{_PER_TENSOR}>", f"-> tensor<2x{_AXIS_0}>"),
        },
    ),
    OpCase(
        "add",
        f": (tensor<2x2x{_AXIS_1}>, tensor<2x2x{_PER_TENSOR}>) -> tensor<2x2x{_AXIS_1}>",
        {"C6": (f"(tensor<2x2x{_AXIS_1}>", f"(tensor<2x2x{_AXIS_0}>")},
    ),
    OpCase(
        "add",
        f": (tensor<2x2x{_PER_TENSOR}>, tensor<2x2x{_AXIS_1}>) -> tensor<2x2x{_AXIS_1}>",
        {"C7": (f", tensor<2x2x{_AXIS_1}>)", f", tensor<2x2x{_AXIS_0}>)")},
    ),
    OpCase(
        "bitcast_convert",
        ": (tensor<2xf32>) -> tensor<2x4xi8>",
        {"C1": ("x4xi8", "x3xi8"), "C2": ("-> tensor<2x4xi8>", "-> tensor<2xcomplex<f32>>")},
    ),
    OpCase(
        "clamp",
        ": (tensor<f32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        {
            "C1": ("(tensor<f32>", "(tensor<3xf32>"),
            "C2": (", tensor<2xf32>)", ", tensor<3xf32>)"),
            "C3": ("(tensor<f32>", "(tensor<i32>"),
            "C4": ("-> tensor<2xf32>", "-> tensor<2xf16>"),
        },
    ),
    OpCase(
        "compare",
        "{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>}"
        " : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>",
        {
            "C1": (", tensor<2xf32>)", ", tensor<2xf64>)"),
            "C2": ("-> tensor<2xi1>", "-> tensor<3xi1>"),
            "C3": ("comparison_type FLOAT", "comparison_type SIGNED"),
        },
    ),
    OpCase(
        "complex",
        ": (tensor<2xf32>, tensor<2xf32>) -> tensor<2xcomplex<f32>>",
        {
            "C1": (", tensor<2xf32>)", ", tensor<2xf64>)"),
            "C2": ("-> tensor<2x", "-> tensor<3x"),
            "C3": ("complex<f32>", "complex<f64>"),
        },
    ),
    OpCase("convert", ": (tensor<2xf32>) -> tensor<2xi8>", {"C1": ("-> tensor<2x", "-> tensor<3x")}),
    OpCase("is_finite", ": (tensor<2xf32>) -> tensor<2xi1>", {"C1": ("-> tensor<2x", "-> tensor<3x")}),
    OpCase(
        "reduce_precision",
        "{exponent_bits = 5 : i32, mantissa_bits = 10 : i32} : (tensor<2xf32>) -> tensor<2xf32>",
        {
            "C1": ("-> tensor<2x", "-> tensor<3x"),
            "C2": ("exponent_bits = 5", "exponent_bits = 0"),
            "C3": ("mantissa_bits = 10", "mantissa_bits = -1"),
        },
    ),
    OpCase(
        "select",
        ": (tensor<2xi1>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>",
        {"C1": ("(tensor<2xi1>", "(tensor<3xi1>"), "C2": (", tensor<2xf32>)", ", tensor<2xf64>)")},
    ),
    OpCase(
        "uniform_quantize",
        f": (tensor<2xf32>) -> tensor<2x{_PER_TENSOR}>",
        {"C1": ("(tensor<2xf32>)", "(tensor<3xf32>)"), "C2": ("(tensor<2xf32>)", "(tensor<2xf64>)")},
    ),
    OpCase(
        "uniform_dequantize",
        f": (tensor<2x{_PER_TENSOR}>) -> tensor<2xf32>",
        {"C1": ("-> tensor<2xf32>", "-> tensor<3xf32>"), "C2": ("-> tensor<2xf32>", "-> tensor<2xf64>")},
    ),
]  # fmt: skip
