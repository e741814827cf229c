"""Cases of elementwise ops and of those that quantize."""

from __future__ import annotations

from tests.dialects.cases import OpCase, read_cases

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
    *read_cases("elementwise"),
]  # fmt: skip
