"""Cases of ops that fold elements, normalize, decompose and transform them."""

from __future__ import annotations

from tests.dialects.cases import OpCase

_ADD = (
    "({^bb0(%x: tensor<f32>, %y: tensor<f32>):\n %s = stablehlo.add %x, %y : tensor<f32>\n "
    "stablehlo.return %s : tensor<f32>})"
)
_PAIR = (
    "({^bb0(%x: tensor<f32>, %p: tensor<i32>, %y: tensor<f32>, %q: tensor<i32>):\n "
    "stablehlo.return %y, %q : tensor<f32>, tensor<i32>})"
)
_SCATTER_REGION = _ADD[1:-1]
_SELECT = (
    "({^bb0(%u: tensor<f32>, %v: tensor<f32>):\n %c = stablehlo.compare GE, %u, %v : (tensor<f32>, tensor<f32>) -> "
    f"tensor<i1>\n stablehlo.return %c : tensor<i1>}}, {_SCATTER_REGION})"
)
_NORM = "{epsilon = 0.1 : f32, feature_index = 1 : i64}"
_F = "tensor<3xf32>"
_THREE = ("(%x: tensor<f32>, %y: tensor<f32>)", "(%x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>)")

CASES = [
    OpCase(
        "map",
        f"{_ADD} {{dimensions = array<i64: 0, 1>}} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
        {
            "C1": ("-> tensor<2x3xf32>", "-> tensor<2x4xf32>"),
            "C2": ("(tensor<2x3xf32>, tensor<2x3xf32>)", "()"),
            "C3": ("array<i64: 0, 1>", "array<i64: 1, 0>"),
            "C4": _THREE,
        },
    ),
    OpCase(
        "reduce",
        f"{_PAIR} {{dimensions = array<i64: 0>}} : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> "
        "(tensor<3xf32>, tensor<3xi32>)",
        {
            "C1": ("tensor<2x3xi32>", "tensor<2x4xi32>"),
            "C2": [("tensor<f32>, tensor<i32>) ->", "tensor<i64>, tensor<i32>) ->")],
            "C3": [("(tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>)", "()")],
            "C4": ("array<i64: 0>", "array<i64: 2>"),
            "C5": ("array<i64: 0>", "array<i64: 0, 0>"),
            "C6": ("(%x: tensor<f32>, %p: tensor<i32>, ", "(%x: tensor<f32>, %p: tensor<i64>, "),
            "C7": ("(tensor<3xf32>, tensor<3xi32>)", "(tensor<2xf32>, tensor<3xi32>)"),
            "C8": ("(tensor<3xf32>, tensor<3xi32>)", "(tensor<3xf64>, tensor<3xi32>)"),
        },
    ),
    OpCase(
        "reduce_window",
        f"{_PAIR} {{window_dimensions = array<i64: 2, 1>, window_strides = array<i64: 2, 1>, base_dilations = "
        "array<i64: 2, 1>, window_dilations = array<i64: 3, 1>, padding = dense<[[2, 1], [0, 0]]> : tensor<2x2xi64>} : "
        "(tensor<3x2xf32>, tensor<3x2xi32>, tensor<f32>, tensor<i32>) -> (tensor<3x2xf32>, tensor<3x2xi32>)",
        {
            "C1": ("(tensor<3x2xf32>, tensor<3x2xi32>, tensor<f32>, tensor<i32>)", "()"),
            "C2": ("(tensor<3x2xf32>, tensor<3x2xi32>, ", "(tensor<3x2xf32>, tensor<4x2xi32>, "),
            "C3": ("tensor<f32>, tensor<i32>) ->", "tensor<i64>, tensor<i32>) ->"),
            "C4": ("window_dimensions = array<i64: 2, 1>", "window_dimensions = array<i64: 2>"),
            "C5": ("window_dimensions = array<i64: 2, 1>", "window_dimensions = array<i64: 2, 0>"),
            "C6": ("window_strides = array<i64: 2, 1>", "window_strides = array<i64: 2>"),
            "C7": ("window_strides = array<i64: 2, 1>", "window_strides = array<i64: 2, 0>"),
            "C8": ("base_dilations = array<i64: 2, 1>", "base_dilations = array<i64: 2>"),
            "C9": ("base_dilations = array<i64: 2, 1>", "base_dilations = array<i64: 2, 0>"),
            "C10": ("window_dilations = array<i64: 3, 1>", "window_dilations = array<i64: 3>"),
            "C11": ("window_dilations = array<i64: 3, 1>", "window_dilations = array<i64: 3, -1>"),
            "C12": ("dense<[[2, 1], [0, 0]]> : tensor<2x2xi64>", "dense<[[2, 1]]> : tensor<1x2xi64>"),
            "C13": ("(%x: tensor<f32>, %p: tensor<i32>, ", "(%x: tensor<f32>, %p: tensor<i64>, "),
            "C14": ("-> (tensor<3x2xf32>, tensor<3x2xi32>)", "-> (tensor<3x2xf32>, tensor<4x2xi32>)"),
            "C15": ("-> (tensor<3x2xf32>, tensor<3x2xi32>)", "-> (tensor<2x2xf32>, tensor<2x2xi32>)"),
            "C16": ("-> (tensor<3x2xf32>, tensor<3x2xi32>)", "-> (tensor<3x2xf64>, tensor<3x2xi32>)"),
        },
    ),
    OpCase(
        "select_and_scatter",
        f"{_SELECT} {{window_dimensions = array<i64: 3, 1>, window_strides = array<i64: 2, 1>, padding = "
        "dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>} : (tensor<4x2xf32>, tensor<2x2xf32>, tensor<f32>) -> "
        "tensor<4x2xf32>",
        {
            "C1": [
                ("tensor<2x2xf32>, tensor<f32>) ->", "tensor<2x2xi32>, tensor<i32>) ->"),
                (_SCATTER_REGION, "{^bb0(%x: tensor<i32>, %y: tensor<i32>):\n stablehlo.return %x : tensor<i32>}"),
            ],
            "C2": ("tensor<2x2xf32>, tensor<f32>) ->", "tensor<3x2xf32>, tensor<f32>) ->"),
            "C3": ("tensor<2x2xf32>, tensor<f32>) ->", "tensor<2x2xf32>, tensor<i32>) ->"),
            "C4": ("window_dimensions = array<i64: 3, 1>", "window_dimensions = array<i64: 3>"),
            "C5": ("window_dimensions = array<i64: 3, 1>", "window_dimensions = array<i64: 3, 0>"),
            "C6": ("window_strides = array<i64: 2, 1>", "window_strides = array<i64: 2>"),
            "C7": ("window_strides = array<i64: 2, 1>", "window_strides = array<i64: 2, 0>"),
            "C8": ("dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>", "dense<[0, 1]> : tensor<2xi64>"),
            "C9": ("(%u: tensor<f32>, %v: tensor<f32>)", "(%u: tensor<f32>, %v: tensor<f32>, %w: tensor<f32>)"),
            "C10": _THREE,
            "C11": ("-> tensor<4x2xf32>", "-> tensor<4x3xf32>"),
            "C12": ("-> tensor<4x2xf32>", "-> tensor<4x2xf64>"),
        },
    ),
    OpCase(
        "batch_norm_grad",
        f"{_NORM} : (tensor<2x3xf32>, {_F}, {_F}, {_F}, tensor<2x3xf32>) -> (tensor<2x3xf32>, {_F}, {_F})",
        {
            "C1": ("feature_index = 1", "feature_index = 2"),
            "C2": (f"{_F}, {_F}, {_F}, ", f"tensor<3xf64>, {_F}, {_F}, "),
            "C3": ("tensor<2x3xf32>) ->", "tensor<3x3xf32>) ->"),
            "C4": (f"{_F}, {_F}, {_F}, ", f"{_F}, tensor<2xf32>, {_F}, "),
            "C5": (f"{_F}, {_F}, {_F}, ", "tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, "),
        },
    ),
    OpCase(
        "batch_norm_inference",
        f"{_NORM} : (tensor<2x3xf32>, {_F}, {_F}, {_F}, {_F}) -> tensor<2x3xf32>",
        {
            "C1": ("feature_index = 1", "feature_index = 2"),
            "C2": (f"{_F}) ->", "tensor<3xf64>) ->"),
            "C3": (f", {_F}, {_F}, {_F}, {_F})", f", tensor<4xf32>, {_F}, {_F}, {_F})"),
            "C4": (f", {_F}, {_F}, {_F}, {_F})", f", {_F}, tensor<4xf32>, {_F}, {_F})"),
            "C5": (f", {_F}, {_F}, {_F}, {_F})", f", {_F}, {_F}, tensor<4xf32>, {_F})"),
            "C6": (f", {_F}, {_F}, {_F}, {_F})", f", {_F}, {_F}, {_F}, tensor<4xf32>)"),
            "C7": ("-> tensor<2x3xf32>", "-> tensor<2x4xf32>"),
        },
    ),
    OpCase(
        "batch_norm_training",
        f"{_NORM} : (tensor<2x3xf32>, {_F}, {_F}) -> (tensor<2x3xf32>, {_F}, {_F})",
        {
            "C1": ("feature_index = 1", "feature_index = 2"),
            "C2": (f"{_F}) ->", "tensor<3xf64>) ->"),
            "C3": (f": (tensor<2x3xf32>, {_F},", ": (tensor<2x3xf32>, tensor<4xf32>,"),
            "C4": (f"{_F}) ->", "tensor<4xf32>) ->"),
            "C5": (f"-> (tensor<2x3xf32>, {_F},", "-> (tensor<2x3xf32>, tensor<4xf32>,"),
            "C6": (f"-> (tensor<2x3xf32>, {_F}, {_F})", f"-> (tensor<2x3xf32>, {_F}, tensor<2xf32>)"),
            "C7": ("-> (tensor<2x3xf32>", "-> (tensor<2x4xf32>"),
        },
    ),
    OpCase(
        "cholesky",
        "{lower = true} : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>",
        {
            "C1": ("-> tensor<2x3x3xf32>", "-> tensor<2x3x3xf64>"),
            "C2": ("(tensor<2x3x3xf32>)", "(tensor<3xf32>)"),
            "C3": ("(tensor<2x3x3xf32>)", "(tensor<2x3x4xf32>)"),
        },
    ),
    OpCase(
        "triangular_solve",
        "{left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : "
        "(tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>",
        {
            "C1": (", tensor<2x3x4xf32>)", ", tensor<2x3x4xf64>)"),
            "C2": (", tensor<2x3x4xf32>)", ", tensor<3x4xf32>)"),
            "C3": (", tensor<2x3x4xf32>)", ", tensor<2x4x4xf32>)"),
            "C4": ("-> tensor<2x3x4xf32>", "-> tensor<2x3x5xf32>"),
        },
    ),
    OpCase(
        "fft",
        "{fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 4, 8>} : (tensor<4x8xf32>) -> "
        "tensor<4x5xcomplex<f32>>",
        {
            "C1": ("(tensor<4x8xf32>)", "(tensor<8xf32>)"),
            "C2": ("(tensor<4x8xf32>)", "(tensor<4x8xcomplex<f32>>)"),
            "C3": [("array<i64: 4, 8>", "array<i64: 1, 1, 4, 8>"), ("(tensor<4x8xf32>)", "(tensor<1x1x4x8xf32>)")],
            "C4": ("(tensor<4x8xf32>)", "(tensor<3x8xf32>)"),
            "C5": ("-> tensor<4x5x", "-> tensor<4x8x"),
        },
    ),
]  # fmt: skip
