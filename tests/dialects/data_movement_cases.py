"""Cases of ops that make, place and rearrange elements, sort them, and of random numbers."""

from __future__ import annotations

from tests.dialects.cases import OpCase

_AXIS_0 = "!quant.uniform<i8:f32:0, {0.5, 0.25}>"
_AXIS_1 = "!quant.uniform<i8:f32:1, {0.5, 0.25}>"

CASES = [
    OpCase(
        "constant",
        "{value = dense<1.0> : tensor<2xf32>} : () -> tensor<2xf32>",
        {"C1": ("-> tensor<2xf32>", "-> tensor<3xf32>")},
    ),
    OpCase(
        "iota",
        "{iota_dimension = 1 : i64} : () -> tensor<2x3xi32>",
        {"C1": ("iota_dimension = 1", "iota_dimension = 2")},
    ),
    OpCase(
        "broadcast_in_dim",
        "{broadcast_dimensions = array<i64: 2, 1>} : (tensor<1x3xf32>) -> tensor<2x3x2xf32>",
        {
            "C1": ("-> tensor<2x3x2xf32>", "-> tensor<2x3x2xf64>"),
            "C2": ("array<i64: 2, 1>", "array<i64: 2>"),
            "C3": ("array<i64: 2, 1>", "array<i64: 3, 1>"),
            "C4": ("array<i64: 2, 1>", "array<i64: 1, 1>"),
            "C5": ("(tensor<1x3xf32>)", "(tensor<1x4xf32>)"),
        },
    ),
    OpCase(
        "broadcast_in_dim",
        f"{{broadcast_dimensions = array<i64: 1, 0>}} : (tensor<2x3x{_AXIS_0}>) -> tensor<3x2x{_AXIS_1}>",
        {
            "C6": [
                ("array<i64: 1, 0>", "array<i64: 0, 1>"),
                ("tensor<2x3x", "tensor<2x2x"),
                ("tensor<3x2x", "tensor<2x2x"),
            ]
        },
    ),
    OpCase(
        "concatenate",
        "{dimension = 1 : i64} : (tensor<2x3xf32>, tensor<2x5xf32>) -> tensor<2x8xf32>",
        {
            "C1": ("(tensor<2x3xf32>", "(tensor<2x3xf64>"),
            "C2": ("(tensor<2x3xf32>", "(tensor<3x3xf32>"),
            "C3": ("(tensor<2x3xf32>, tensor<2x5xf32>)", "()"),
            "C4": ("dimension = 1", "dimension = 2"),
            "C5": ("-> tensor<2x8xf32>", "-> tensor<2x8xf64>"),
            "C6": ("-> tensor<2x8xf32>", "-> tensor<2x7xf32>"),
        },
    ),
    OpCase(
        "pad",
        "{edge_padding_low = array<i64: 1, 0>, edge_padding_high = array<i64: 0, 2>, interior_padding = "
        "array<i64: 1, 0>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<4x5xf32>",
        {
            "C1": (", tensor<f32>)", ", tensor<f64>)"),
            "C2": ("edge_padding_low = array<i64: 1, 0>", "edge_padding_low = array<i64: 1>"),
            "C3": ("interior_padding = array<i64: 1, 0>", "interior_padding = array<i64: -1, 0>"),
            "C4": ("-> tensor<4x5xf32>", "-> tensor<4x6xf32>"),
        },
    ),
    OpCase(
        "reshape",
        ": (tensor<2x3xf32>) -> tensor<6xf32>",
        {"C1": ("-> tensor<6xf32>", "-> tensor<6xi32>"), "C2": ("-> tensor<6xf32>", "-> tensor<5xf32>")},
    ),
    OpCase(
        "reshape",
        f": (tensor<2x4x{_AXIS_0}>) -> tensor<2x2x2x{_AXIS_0}>",
        {"C3": (f"-> tensor<2x2x2x{_AXIS_0}>", f"-> tensor<2x2x2x{_AXIS_1}>")},
    ),
    OpCase(
        "reverse",
        "{dimensions = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        {
            "C1": ("-> tensor<2x3xf32>", "-> tensor<3x2xf32>"),
            "C2": ("array<i64: 0, 1>", "array<i64: 1, 1>"),
            "C3": ("array<i64: 0, 1>", "array<i64: 0, 2>"),
        },
    ),
    OpCase(
        "slice",
        "{start_indices = array<i64: 0, 1>, limit_indices = array<i64: 2, 4>, strides = array<i64: 1, 2>} : "
        "(tensor<2x4xf32>) -> tensor<2x2xf32>",
        {
            "C1": ("-> tensor<2x2xf32>", "-> tensor<2x2xf64>"),
            "C2": ("strides = array<i64: 1, 2>", "strides = array<i64: 1>"),
            "C3": ("limit_indices = array<i64: 2, 4>", "limit_indices = array<i64: 2, 5>"),
            "C4": ("strides = array<i64: 1, 2>", "strides = array<i64: 1, 0>"),
            "C5": ("-> tensor<2x2xf32>", "-> tensor<2x3xf32>"),
        },
    ),
    OpCase(
        "transpose",
        "{permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        {
            "C1": ("-> tensor<3x2xf32>", "-> tensor<3x2xf64>"),
            "C2": ("array<i64: 1, 0>", "array<i64: 1, 1>"),
            "C3": ("-> tensor<3x2xf32>", "-> tensor<2x3xf32>"),
        },
    ),
    OpCase(
        "transpose",
        f"{{permutation = array<i64: 1, 0>}} : (tensor<2x2x{_AXIS_0}>) -> tensor<2x2x{_AXIS_1}>",
        {"C4": (f"-> tensor<2x2x{_AXIS_1}>", f"-> tensor<2x2x{_AXIS_0}>")},
    ),
    OpCase(
        "sort",
        "({^bb0(%x: tensor<f32>, %y: tensor<f32>):\n %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> "
        "tensor<i1>\n stablehlo.return %c : tensor<i1>}) {dimension = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        {
            "C1": (": (tensor<2x3xf32>) -> tensor<2x3xf32>", ": () -> ()"),
            "C2": ("-> tensor<2x3xf32>", "-> tensor<2x3xf64>"),
            "C3": ("-> tensor<2x3xf32>", "-> tensor<2x4xf32>"),
            "C4": ("dimension = 1", "dimension = 2"),
            "C5": ("(%x: tensor<f32>, %y: tensor<f32>)", "(%x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>)"),
        },
    ),
    OpCase(
        "rng",
        "{rng_distribution = #stablehlo<rng_distribution NORMAL>} : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> "
        "tensor<2x3xf32>",
        {
            "C1": ("(tensor<f32>", "(tensor<f64>"),
            "C2": [("(tensor<f32>, tensor<f32>", "(tensor<i32>, tensor<i32>"), ("x3xf32>", "x3xi32>")],
            "C3": ("-> tensor<2x3xf32>", "-> tensor<2x3x4xf32>"),
        },
    ),
    OpCase(
        "rng_bit_generator",
        "{rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)",
        {"C1": ("-> (tensor<2xui64>", "-> (tensor<3xui64>"), "C2": ("tensor<2xui64>", "tensor<3xui64>")},
    ),
]
