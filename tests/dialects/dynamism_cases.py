"""Cases of ops whose result shape is a run-time value."""

from __future__ import annotations

from tests.dialects.cases import OpCase

_AXIS_0 = "!quant.uniform<i8:f32:0, {0.5, 0.25}>"
_AXIS_1 = "!quant.uniform<i8:f32:1, {0.5, 0.25}>"

CASES = [
    OpCase(
        "dynamic_broadcast_in_dim",
        "{broadcast_dimensions = array<i64: 2, 1>, known_expanding_dimensions = array<i64: 0>, "
        "known_nonexpanding_dimensions = array<i64: 1>} : (tensor<1x3xf32>, tensor<3xi64>) -> tensor<?x3x?xf32>",
        {
            "C1": ("-> tensor<?x3x?xf32>", "-> tensor<?x3x?xf64>"),
            "C2": ("broadcast_dimensions = array<i64: 2, 1>", "broadcast_dimensions = array<i64: 2>"),
            "C3": ("broadcast_dimensions = array<i64: 2, 1>", "broadcast_dimensions = array<i64: 3, 1>"),
            "C4": ("broadcast_dimensions = array<i64: 2, 1>", "broadcast_dimensions = array<i64: 1, 1>"),
            "C5": ("-> tensor<?x3x?xf32>", "-> tensor<?x4x?xf32>"),
            "C7": ("tensor<3xi64>)", "tensor<4xi64>)"),
            "C8": ("known_nonexpanding_dimensions = array<i64: 1>", "known_nonexpanding_dimensions = array<i64: 0>"),
            "C9": ("known_expanding_dimensions = array<i64: 0>", "known_expanding_dimensions = array<i64: 2>"),
            "C10": ("known_nonexpanding_dimensions = array<i64: 1>", "known_nonexpanding_dimensions = array<i64: -1>"),
        },
    ),
    OpCase(
        "dynamic_broadcast_in_dim",
        f"{{broadcast_dimensions = array<i64: 1, 0>}} : (tensor<2x2x{_AXIS_0}>, tensor<2xi64>) -> "
        f"tensor<2x2x{_AXIS_1}>",
        {"C6": ("array<i64: 1, 0>", "array<i64: 0, 1>")},
    ),
    OpCase(
        "dynamic_iota",
        "{iota_dimension = 1 : i64} : (tensor<2xi64>) -> tensor<?x?xf32>",
        {"C1": ("iota_dimension = 1", "iota_dimension = 2"), "C2": ("-> tensor<?x?xf32>", "-> tensor<?x?x?xf32>")},
    ),
    OpCase(
        "dynamic_pad",
        ": (tensor<2x3xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<4x5xf32>",
        {
            "C1": ("tensor<2x3xf32>", "tensor<2x3xf64>"),
            "C2": [("tensor<2x3xf32>", "tensor<2xf32>")],
            "C3": ("%i = stablehlo.constant dense<[1, 0]>", "%i = stablehlo.constant dense<[-1, 0]>"),
            "C4": ("-> tensor<4x5xf32>", "-> tensor<4x6xf32>"),
        },
        arguments="%a: tensor<2x3xf32>, %v: tensor<f32>",
        operands="%a, %v, %l, %h, %i",
        prelude="%l = stablehlo.constant dense<[1, 0]> : tensor<2xi64>\n%h = stablehlo.constant dense<[0, 2]> : "
        "tensor<2xi64>\n%i = stablehlo.constant dense<[1, 0]> : tensor<2xi64>",
    ),
    OpCase(
        "dynamic_reshape",
        ": (tensor<2x3xf32>, tensor<1xi64>) -> tensor<6xf32>",
        {
            "C1": ("-> tensor<6xf32>", "-> tensor<6xi32>"),
            "C2": ("-> tensor<6xf32>", "-> tensor<5xf32>"),
            "C4": ("tensor<1xi64>)", "tensor<2xi64>)"),
        },
    ),
    OpCase(
        "dynamic_reshape",
        f": (tensor<2x4x{_AXIS_0}>, tensor<3xi64>) -> tensor<2x2x2x{_AXIS_0}>",
        {"C3": (f"-> tensor<2x2x2x{_AXIS_0}>", f"-> tensor<2x2x2x{_AXIS_1}>")},
    ),
    OpCase(
        "get_dimension_size",
        "{dimension = 1 : i64} : (tensor<2x?xf32>) -> tensor<i32>",
        {"C1": ("dimension = 1", "dimension = 2")},
    ),
]
