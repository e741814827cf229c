"""Cases of ops that read or write at indices."""

from __future__ import annotations

from tests.dialects.cases import OpCase

_GATHER = (
    "{dimension_numbers = #stablehlo.gather<offset_dims = [2, 3], collapsed_slice_dims = [1], operand_batching_dims = "
    "[0], start_indices_batching_dims = [1], start_index_map = [3, 2], index_vector_dim = 2>, slice_sizes = "
    "array<i64: 1, 1, 2, 3>} : (tensor<2x4x5x6xf32>, tensor<7x2x2xi64>) -> tensor<7x2x2x3xf32>"
)
_DYNAMIC_GATHER = (
    "{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = "
    "[0, 1], index_vector_dim = 1>} : (tensor<4x5x6xf32>, tensor<7x2xi64>, tensor<3xi64>) -> tensor<7x2x3xf32>"
)
_SCATTER = (
    "({^bb0(%x: tensor<f32>, %y: tensor<f32>):\n %s = stablehlo.add %x, %y : tensor<f32>\n stablehlo.return %s : "
    "tensor<f32>}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2, 3], inserted_window_dims = "
    "[1], input_batching_dims = [0], scatter_indices_batching_dims = [1], scatter_dims_to_operand_dims = [3, 2], "
    "index_vector_dim = 2>} : (tensor<2x4x5x6xf32>, tensor<7x2x2xi64>, tensor<7x2x2x3xf32>) -> tensor<2x4x5x6xf32>"
)
_SCATTER_TWO = (
    "({^bb0(%x: tensor<f32>, %p: tensor<i32>, %y: tensor<f32>, %q: tensor<i32>):\n stablehlo.return %y, %q : "
    "tensor<f32>, tensor<i32>}) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], "
    "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<4xf32>, tensor<4xi32>, tensor<3x1xi64>, "
    "tensor<3xf32>, tensor<3xi32>) -> (tensor<4xf32>, tensor<4xi32>)"
)

CASES = [
    OpCase(
        "dynamic_slice",
        "{slice_sizes = array<i64: 1, 3>} : (tensor<2x4xf32>, tensor<i64>, tensor<i64>) -> tensor<1x3xf32>",
        {
            "C1": ("-> tensor<1x3xf32>", "-> tensor<1x3xf64>"),
            "C2": ("array<i64: 1, 3>", "array<i64: 1>"),
            "C3": (", tensor<i64>)", ", tensor<i32>)"),
            "C4": ("array<i64: 1, 3>", "array<i64: 1, 5>"),
            "C5": ("-> tensor<1x3xf32>", "-> tensor<1x2xf32>"),
        },
    ),
    OpCase(
        "dynamic_update_slice",
        ": (tensor<2x4xf32>, tensor<1x3xf32>, tensor<i64>, tensor<i64>) -> tensor<2x4xf32>",
        {
            "C1": ("-> tensor<2x4xf32>", "-> tensor<2x3xf32>"),
            "C2": ("tensor<1x3xf32>", "tensor<1x3xf64>"),
            "C3": ("tensor<1x3xf32>", "tensor<3xf32>"),
            "C4": ("tensor<i64>, tensor<i64>)", "tensor<i64>)"),
            "C5": (", tensor<i64>)", ", tensor<i32>)"),
            "C6": ("tensor<1x3xf32>", "tensor<1x5xf32>"),
        },
    ),
    OpCase(
        "gather",
        _GATHER,
        {
            "C1": ("collapsed_slice_dims = [1]", "collapsed_slice_dims = [1, 2]"),
            "C2": ("index_vector_dim = 2", "index_vector_dim = 4"),
            "C3": ("start_index_map = [3, 2]", "start_index_map = [3]"),
            "C4": ("offset_dims = [2, 3]", "offset_dims = [3, 2]"),
            "C5": ("offset_dims = [2, 3]", "offset_dims = [2, 4]"),
            "C6": ("collapsed_slice_dims = [1]", "collapsed_slice_dims = [0]"),
            "C7": [
                ("collapsed_slice_dims = [1]", "collapsed_slice_dims = [2, 1]"),
                ("operand_batching_dims = [0]", "operand_batching_dims = []"),
            ],
            "C8": ("collapsed_slice_dims = [1]", "collapsed_slice_dims = [4]"),
            "C9": ("array<i64: 1, 1, 2, 3>", "array<i64: 1, 2, 2, 3>"),
            "C10": [
                ("operand_batching_dims = [0]", "operand_batching_dims = [1, 0]"),
                ("collapsed_slice_dims = [1]", "collapsed_slice_dims = []"),
            ],
            "C11": ("operand_batching_dims = [0]", "operand_batching_dims = [4]"),
            "C12": ("array<i64: 1, 1, 2, 3>", "array<i64: 2, 1, 2, 3>"),
            "C13": ("start_indices_batching_dims = [1]", "start_indices_batching_dims = [1, 1]"),
            "C14": ("start_indices_batching_dims = [1]", "start_indices_batching_dims = [3]"),
            "C15": ("start_indices_batching_dims = [1]", "start_indices_batching_dims = [2]"),
            "C16": ("start_indices_batching_dims = [1]", "start_indices_batching_dims = [0, 1]"),
            "C17": ("start_indices_batching_dims = [1]", "start_indices_batching_dims = [0]"),
            "C18": ("start_index_map = [3, 2]", "start_index_map = [0, 2]"),
            "C19": ("start_index_map = [3, 2]", "start_index_map = [4, 2]"),
            "C20": ("array<i64: 1, 1, 2, 3>", "array<i64: 1, 1, 2>"),
            "C21": ("array<i64: 1, 1, 2, 3>", "array<i64: 1, 1, 6, 3>"),
            "C22": ("-> tensor<7x2x2x3xf32>", "-> tensor<7x2x3x3xf32>"),
            "C23": ("-> tensor<7x2x2x3xf32>", "-> tensor<7x2x2x3xf64>"),
        },
    ),
    OpCase(
        "dynamic_gather",
        _DYNAMIC_GATHER,
        {
            "C1": ("collapsed_slice_dims = [0]", "collapsed_slice_dims = [0, 1]"),
            "C2": ("index_vector_dim = 1", "index_vector_dim = 3"),
            "C3": ("start_index_map = [0, 1]", "start_index_map = [0]"),
            "C4": ("offset_dims = [1, 2]", "offset_dims = [2, 1]"),
            "C5": ("offset_dims = [1, 2]", "offset_dims = [1, 3]"),
            "C6": [
                ("collapsed_slice_dims = [0]", "collapsed_slice_dims = [0, 0]"),
                ("offset_dims = [1, 2]", "offset_dims = [1]"),
            ],
            "C7": ("collapsed_slice_dims = [0]", "collapsed_slice_dims = [3]"),
            "C8": ("dense<[1, 2, 3]>", "dense<[2, 2, 3]>"),
            "C9": ("start_index_map = [0, 1]", "start_index_map = [1, 1]"),
            "C10": ("start_index_map = [0, 1]", "start_index_map = [0, 3]"),
            "C11": [
                ("dense<[1, 2, 3]> : tensor<3x", "dense<[1, 2]> : tensor<2x"),
                ("tensor<3xi64>)", "tensor<2xi64>)"),
            ],
            "C12": ("dense<[1, 2, 3]>", "dense<[1, 6, 3]>"),
            "C13": ("-> tensor<7x2x3xf32>", "-> tensor<7x3x3xf32>"),
            "C14": ("-> tensor<7x2x3xf32>", "-> tensor<7x2x3xf64>"),
        },
        arguments="%a: tensor<4x5x6xf32>, %i: tensor<7x2xi64>",
        operands="%a, %i, %s",
        prelude="%s = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi64>",
    ),
    OpCase(
        "scatter",
        _SCATTER,
        {
            "C2": ("inserted_window_dims = [1]", "inserted_window_dims = [1, 2]"),
            "C4": ("tensor<7x2x2x3xf32>)", "tensor<7x2x6x3xf32>)"),
            "C6": ("tensor<7x2x2x3xf32>)", "tensor<7x2x2x3xi32>)"),
            "C7": ("update_window_dims = [2, 3]", "update_window_dims = [3, 2]"),
            "C8": ("update_window_dims = [2, 3]", "update_window_dims = [2, 4]"),
            "C9": ("inserted_window_dims = [1]", "inserted_window_dims = [0]"),
            "C10": [
                ("inserted_window_dims = [1]", "inserted_window_dims = [1, 0]"),
                ("input_batching_dims = [0]", "input_batching_dims = []"),
            ],
            "C11": ("inserted_window_dims = [1]", "inserted_window_dims = [4]"),
            "C12": [
                ("input_batching_dims = [0]", "input_batching_dims = [1, 0]"),
                ("inserted_window_dims = [1]", "inserted_window_dims = []"),
            ],
            "C13": ("input_batching_dims = [0]", "input_batching_dims = [4]"),
            "C14": ("scatter_indices_batching_dims = [1]", "scatter_indices_batching_dims = [1, 1]"),
            "C15": ("scatter_indices_batching_dims = [1]", "scatter_indices_batching_dims = [3]"),
            "C16": ("scatter_indices_batching_dims = [1]", "scatter_indices_batching_dims = [2]"),
            "C17": ("scatter_indices_batching_dims = [1]", "scatter_indices_batching_dims = [0, 1]"),
            "C18": ("scatter_indices_batching_dims = [1]", "scatter_indices_batching_dims = [0]"),
            "C19": ("scatter_dims_to_operand_dims = [3, 2]", "scatter_dims_to_operand_dims = [3]"),
            "C20": ("scatter_dims_to_operand_dims = [3, 2]", "scatter_dims_to_operand_dims = [0, 2]"),
            "C21": ("scatter_dims_to_operand_dims = [3, 2]", "scatter_dims_to_operand_dims = [4, 2]"),
            "C22": ("index_vector_dim = 2", "index_vector_dim = 4"),
            "C23": ("(%x: tensor<f32>, %y: tensor<f32>)", "(%x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>)"),
            "C24": ("-> tensor<2x4x5x6xf32>", "-> tensor<2x4x5x7xf32>"),
            "C25": ("-> tensor<2x4x5x6xf32>", "-> tensor<2x4x5x6xf64>"),
        },
    ),
    OpCase(
        "scatter",
        _SCATTER_TWO,
        {
            "C1": ("(tensor<4xf32>, tensor<4xi32>, ", "(tensor<4xf32>, tensor<5xi32>, "),
            "C3": ("tensor<3xi32>) ->", "tensor<2xi32>) ->"),
            "C5": (
                "(tensor<4xf32>, tensor<4xi32>, tensor<3x1xi64>, tensor<3xf32>, tensor<3xi32>)",
                "(tensor<3x1xi64>)",
            ),
        },
    ),
]
