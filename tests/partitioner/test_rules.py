"""The factor rule of each op, as Shardy writes it.

The expected rules are those of Shardy's documentation and registry: einsum letters in the order batch, left, right,
contracted for dots; compound factors for reshapes; reduction, need_replication and permutation marked.
"""

from __future__ import annotations

import pytest

import spmd
from partitioner.rules import (
    PASS,
    PERMUTE,
    REPLICATE,
    RuleBuilder,
    conservative_rule,
    local_rule,
    published_rule,
    register,
    rule_of,
)
from partitioner.rules.core import Rule, replicated_rule, rules
from spmd.dialects.core import OPS
from spmd.ir import Op
from tests.backends.modules import monoid


def _op(text: str, *arguments: str) -> Op:
    header = ", ".join(f"%arg{index}: {type}" for index, type in enumerate(arguments))
    module = spmd.parse(f"func.func @main({header}) {{\n{text}\nreturn\n}}", verify=False)
    return module.function("main").body.ops[-2]


_ADD = monoid("add", "f32")

_TABLE = {
    "add": (
        "%0 = stablehlo.add %arg0, %arg1 : tensor<8x4xf32>",
        ("tensor<8x4xf32>", "tensor<8x4xf32>"),
        "([i, j], [i, j])->([i, j]) {i=8, j=4}",
    ),
    "select with a scalar": (
        "%0 = stablehlo.select %arg0, %arg1, %arg1 : tensor<i1>, tensor<8x4xf32>",
        ("tensor<i1>", "tensor<8x4xf32>"),
        "([], [i, j], [i, j])->([i, j]) {i=8, j=4}",
    ),
    "dot_general": (
        "%0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [1]"
        " : (tensor<4x8x16xf32>, tensor<4x16x32xf32>) -> tensor<4x8x32xf32>",
        ("tensor<4x8x16xf32>", "tensor<4x16x32xf32>"),
        "([i, j, l], [i, l, k])->([i, j, k]) {i=4, j=8, k=32, l=16} reduction={l}",
    ),
    "broadcast_in_dim": (
        "%0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 2] : (tensor<2x1xf32>) -> tensor<2x13x25xf32>",
        ("tensor<2x1xf32>",),
        "([i, k])->([i, j, l]) {i=2, j=13, k=1, l=25}",
    ),
    "transpose": (
        "%0 = stablehlo.transpose %arg0, dims = [2, 0, 1] : (tensor<2x4x8xf32>) -> tensor<8x2x4xf32>",
        ("tensor<2x4x8xf32>",),
        "([j, k, i])->([i, j, k]) {i=8, j=2, k=4}",
    ),
    "reshape that merges": (
        "%0 = stablehlo.reshape %arg0 : (tensor<2x4x32xf32>) -> tensor<8x32xf32>",
        ("tensor<2x4x32xf32>",),
        "([i, j, k])->([ij, k]) {i=2, j=4, k=32}",
    ),
    "reshape that splits": (
        "%0 = stablehlo.reshape %arg0 : (tensor<8x32xf32>) -> tensor<2x4x32xf32>",
        ("tensor<8x32xf32>",),
        "([ij, k])->([i, j, k]) {i=2, j=4, k=32}",
    ),
    "reshape across": (
        "%0 = stablehlo.reshape %arg0 : (tensor<8x4xf32>) -> tensor<2x16xf32>",
        ("tensor<8x4xf32>",),
        "([ij, k])->([i, jk]) {i=2, j=4, k=4}",
    ),
    "reshape with nothing in common": (
        "%0 = stablehlo.reshape %arg0 : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        ("tensor<2x3xf32>",),
        "([i, k])->([j, l]) {i=2, j=3, k=3, l=2}",
    ),
    "reshape with units": (
        "%0 = stablehlo.reshape %arg0 : (tensor<4x1x2xf32>) -> tensor<4x2x1xf32>",
        ("tensor<4x1x2xf32>",),
        "([i, j, k])->([i, k, l]) {i=4, j=1, k=2, l=1}",
    ),
    "reduce": (
        "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%0 = stablehlo.reduce(%arg0 init: %c) applies stablehlo.add"
        " across dimensions = [1] : (tensor<2x64x13xf32>, tensor<f32>) -> tensor<2x13xf32>",
        ("tensor<2x64x13xf32>",),
        "([i, j, k], [])->([i, k]) {i=2, j=64, k=13} reduction={j}",
    ),
    "slice": (
        "%0 = stablehlo.slice %arg0 [0:8, 1:3] : (tensor<8x4xf32>) -> tensor<8x2xf32>",
        ("tensor<8x4xf32>",),
        "([i, j])->([i, j]) {i=8, j=4} permutation={j}",
    ),
    "pad": (
        "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%0 = stablehlo.pad %arg0, %c, low = [0, 1], high = [0, 2],"
        " interior = [0, 0] : (tensor<8x4xf32>, tensor<f32>) -> tensor<8x7xf32>",
        ("tensor<8x4xf32>",),
        "([i, j], [])->([i, j]) {i=8, j=4} permutation={j}",
    ),
    "concatenate": (
        "%0 = stablehlo.concatenate %arg0, %arg1, dim = 0 : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<6x8xf32>",
        ("tensor<4x8xf32>", "tensor<2x8xf32>"),
        "([i, j], [i, j])->([i, j]) {i=6, j=8} need_replication={i}",
    ),
    "reverse": (
        "%0 = stablehlo.reverse %arg0, dims = [1] : tensor<8x4xf32>",
        ("tensor<8x4xf32>",),
        "([i, j])->([i, j]) {i=8, j=4} permutation={j}",
    ),
    "dynamic_slice": (
        "%0 = stablehlo.dynamic_slice %arg0, %arg1, %arg1, sizes = [32, 2]"
        " : (tensor<32x4xf32>, tensor<i32>, tensor<i32>) -> tensor<32x2xf32>",
        ("tensor<32x4xf32>", "tensor<i32>"),
        "([i, j], [], [])->([i, j]) {i=32, j=4} need_replication={j} blocked_propagation={j}",
    ),
    "dynamic_update_slice": (
        "%0 = stablehlo.dynamic_update_slice %arg0, %arg1, %arg2, %arg2"
        " : (tensor<32x4xf32>, tensor<32x1xf32>, tensor<i32>, tensor<i32>) -> tensor<32x4xf32>",
        ("tensor<32x4xf32>", "tensor<32x1xf32>", "tensor<i32>"),
        "([i, j], [i, k], [], [])->([i, j]) {i=32, j=4, k=1} need_replication={k}",
    ),
    "gather": (
        '%0 = "stablehlo.gather"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [2],'
        " collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>,"
        " slice_sizes = array<i64: 1, 16>}> : (tensor<64x16xf32>, tensor<4x8x1xi32>) -> tensor<4x8x16xf32>",
        ("tensor<64x16xf32>", "tensor<4x8x1xi32>"),
        "([l, k], [i, j, m])->([i, j, k]) {i=4, j=8, k=16, l=64, m=1} reduction={l} need_replication={m}",
    ),
    "scatter": (
        '%0 = "stablehlo.scatter"(%arg0, %arg1, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<'
        "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],"
        f" index_vector_dim = 1>}}> {_ADD}"
        " : (tensor<64x16xf32>, tensor<8x1xi32>, tensor<8x16xf32>) -> tensor<64x16xf32>",
        ("tensor<64x16xf32>", "tensor<8x1xi32>", "tensor<8x16xf32>"),
        "([k, j], [i, l], [i, j])->([k, j]) {i=8, j=16, k=64, l=1} reduction={i} need_replication={l}",
    ),
    "sort": (
        '%0 = "stablehlo.sort"(%arg0) <{dimension = 1 : i64}> ({\n^bb0(%x: tensor<f32>, %y: tensor<f32>):\n'
        "%s = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "stablehlo.return %s : tensor<i1>\n}) : (tensor<4x32xf32>) -> tensor<4x32xf32>",
        ("tensor<4x32xf32>",),
        "([i, j])->([i, j]) {i=4, j=32} need_replication={j}",
    ),
    "reduce_window": (
        '%c = stablehlo.constant dense<0.0> : tensor<f32>\n%0 = "stablehlo.reduce_window"(%arg0, %c)'
        f" <{{window_dimensions = array<i64: 1, 4>, window_strides = array<i64: 1, 4>}}> {_ADD}"
        " : (tensor<8x32xf32>, tensor<f32>) -> tensor<8x8xf32>",
        ("tensor<8x32xf32>",),
        "([i, j], [])->([i, j]) {i=8, j=8} permutation={j}",
    ),
    "convolution": (
        "%0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1]}"
        " {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
        " : (tensor<8x16x4xf32>, tensor<4x4x32xf32>) -> tensor<8x13x32xf32>",
        ("tensor<8x16x4xf32>", "tensor<4x4x32xf32>"),
        "([i, j, k], [m, k, l])->([i, j, l]) {i=8, j=13, k=4, l=32, m=1} reduction={k} permutation={j}",
    ),
    "cholesky": (
        "%0 = stablehlo.cholesky %arg0 : tensor<2x4x4xf32>",
        ("tensor<2x4x4xf32>",),
        "([i, j, k])->([i, j, k]) {i=2, j=4, k=4} need_replication={j, k}",
    ),
    "fft": (
        "%0 = stablehlo.fft %arg0, type = FFT, length = [16]"
        " : (tensor<4x16xcomplex<f32>>) -> tensor<4x16xcomplex<f32>>",
        ("tensor<4x16xcomplex<f32>>",),
        "([i, j])->([i, j]) {i=4, j=16} need_replication={j}",
    ),
    "bitcast_convert": (
        "%0 = stablehlo.bitcast_convert %arg0 : (tensor<4x2xui64>) -> tensor<4x2x2xui32>",
        ("tensor<4x2xui64>",),
        "([i, j])->([i, j, k]) {i=4, j=2, k=2} need_replication={k}",
    ),
    "all_reduce of two": (
        f'%0:2 = "stablehlo.all_reduce"(%arg0, %arg1) <{{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}> {_ADD}'
        " : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>)",
        ("tensor<8x4xf32>", "tensor<8x4xf32>"),
        "([i, j], [i, j])->([i, j], [i, j]) {i=8, j=4}",
    ),
    "all_gather of two": (
        '%0:2 = "stablehlo.all_gather"(%arg0, %arg1) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1]]>'
        " : tensor<1x2xi64>}> : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)",
        ("tensor<8x4xf32>", "tensor<8x4xf32>"),
        "([i, j], [i, j])->([i, k], [i, k]) {i=8, j=4, k=8} need_replication={j, k}",
    ),
    "all_to_all": (
        '%0 = "stablehlo.all_to_all"(%arg0) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2'
        " : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<8x4x3xf32>) -> tensor<16x2x3xf32>",
        ("tensor<8x4x3xf32>",),
        "([l, j, i])->([m, k, i]) {i=3, j=4, k=2, l=8, m=16} need_replication={j, k, l, m}",
    ),
    "all_to_all along one dimension": (
        '%0 = "stablehlo.all_to_all"(%arg0) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2'
        " : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<8x4xf32>) -> tensor<8x4xf32>",
        ("tensor<8x4xf32>",),
        "([j, i])->([k, i]) {i=4, j=8, k=8} need_replication={j, k}",
    ),
    "reduce_scatter": (
        '%0 = "stablehlo.reduce_scatter"(%arg0) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]>'
        f" : tensor<1x2xi64>}}> {_ADD} : (tensor<8x4xf32>) -> tensor<4x4xf32>",
        ("tensor<8x4xf32>",),
        "([j, i])->([k, i]) {i=4, j=8, k=4} need_replication={j, k}",
    ),
    "a pad that shifts": (
        "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%0 = stablehlo.pad %arg0, %c, low = [1], high = [-1],"
        " interior = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>",
        ("tensor<8xf32>",),
        "([i], [])->([i]) {i=8}",
    ),
    "dynamic_update_slice at constant places": (
        "%c = stablehlo.constant dense<0> : tensor<i32>\n%0 = stablehlo.dynamic_update_slice %arg0, %arg1, %c, %c"
        " : (tensor<32x4xf32>, tensor<32x1xf32>, tensor<i32>, tensor<i32>) -> tensor<32x4xf32>",
        ("tensor<32x4xf32>", "tensor<32x1xf32>"),
        "([i, j], [i, k], [], [])->([i, j]) {i=32, j=4, k=1}",
    ),
    "convolution of batch groups of size one": (
        "%0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1]}"
        " {batch_group_count = 8 : i64, feature_group_count = 1 : i64}"
        " : (tensor<8x16x4xf32>, tensor<16x4x8xf32>) -> tensor<1x1x8xf32>",
        ("tensor<8x16x4xf32>", "tensor<16x4x8xf32>"),
        "([i, k, l], [k, l, i])->([j, m, i]) {i=8, j=1, k=16, l=4, m=1} reduction={k, l}",
    ),
    "convolution of feature groups of size one": (
        "%0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1]}"
        " {batch_group_count = 1 : i64, feature_group_count = 4 : i64}"
        " : (tensor<8x16x4xf32>, tensor<4x1x4xf32>) -> tensor<8x13x4xf32>",
        ("tensor<8x16x4xf32>", "tensor<4x1x4xf32>"),
        "([i, j, k], [m, l, k])->([i, j, k]) {i=8, j=13, k=4, l=1, m=1} reduction={l} permutation={j}",
    ),
    "triangular_solve from the left": (
        '%0 = "stablehlo.triangular_solve"(%arg0, %arg1) <{left_side = true, lower = true, unit_diagonal = false,'
        " transpose_a = #stablehlo<transpose NO_TRANSPOSE>}>"
        " : (tensor<2x4x4xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>",
        ("tensor<2x4x4xf32>", "tensor<2x4x8xf32>"),
        "([i, j, l], [i, j, k])->([i, l, k]) {i=2, j=4, k=8, l=4} need_replication={j, k, l}",
    ),
    "triangular_solve from the right, transposed": (
        '%0 = "stablehlo.triangular_solve"(%arg0, %arg1) <{left_side = false, lower = true, unit_diagonal = false,'
        " transpose_a = #stablehlo<transpose ADJOINT>}>"
        " : (tensor<2x4x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x4xf32>",
        ("tensor<2x4x4xf32>", "tensor<2x8x4xf32>"),
        "([i, k, l], [i, j, k])->([i, j, l]) {i=2, j=8, k=4, l=4} need_replication={j, k, l}",
    ),
    "scatter of two by one op": (
        '%0:2 = "stablehlo.scatter"(%arg0, %arg0, %arg1, %arg2, %arg2) <{scatter_dimension_numbers ='
        " #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({"
        "\n^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):\n"
        "%x = stablehlo.maximum %c, %a : tensor<f32>\n%y = stablehlo.maximum %b, %d : tensor<f32>\n"
        "stablehlo.return %x, %y : tensor<f32>, tensor<f32>\n})"
        " : (tensor<64xf32>, tensor<64xf32>, tensor<8x1xi32>, tensor<8xf32>, tensor<8xf32>)"
        " -> (tensor<64xf32>, tensor<64xf32>)",
        ("tensor<64xf32>", "tensor<8x1xi32>", "tensor<8xf32>"),
        "([j], [j], [i, k], [i], [i])->([j], [j]) {i=8, j=64, k=1} reduction={i} need_replication={k}",
    ),
    "select_and_scatter": (
        "%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
        '%0 = "stablehlo.select_and_scatter"(%arg0, %arg1, %c) <{window_dimensions = array<i64: 2, 1>, '
        "window_strides = array<i64: 2, 1>}> ({\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
        "%d = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %d : tensor<i1>"
        "\n}, {\n^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%d = stablehlo.add %a, %b : tensor<f32>\n"
        "stablehlo.return %d : tensor<f32>\n}) : (tensor<10x8xf32>, tensor<5x8xf32>, tensor<f32>) -> tensor<10x8xf32>",
        ("tensor<10x8xf32>", "tensor<5x8xf32>"),
        "([j, k], [i, k], [])->([j, k]) {i=5, j=10, k=8} need_replication={i} permutation={j}",
    ),
    "top-k": (
        "%0:2 = stablehlo.custom_call @mhlo.topk(%arg0) : (tensor<16x8xf32>) -> (tensor<16x2xf32>, tensor<16x2xi32>)",
        ("tensor<16x8xf32>",),
        "([i, j])->([i, j], [i, j]) {i=16, j=8} need_replication={j} blocked_propagation={j}",
    ),
    "Eigh": (
        "%0:2 = stablehlo.custom_call @Eigh(%arg0) : (tensor<8x4x4xf32>) -> (tensor<8x4x4xf32>, tensor<8x4xf32>)",
        ("tensor<8x4x4xf32>",),
        "([i, j, k])->([i, j, k], [i, k]) {i=8, j=4, k=4}",
    ),
    "Qr": (
        "%0:2 = stablehlo.custom_call @Qr(%arg0) : (tensor<8x5x3xf32>) -> (tensor<8x5x3xf32>, tensor<8x3xf32>)",
        ("tensor<8x5x3xf32>",),
        "([i, j, k])->([i, j, k], [i, l]) {i=8, j=5, k=3, l=3} need_replication={j, k, l}",
    ),
    "householder product": (
        "%0 = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%arg0, %arg1)"
        " : (tensor<8x12x16xf32>, tensor<8x5xf32>) -> tensor<8x12x16xf32>",
        ("tensor<8x12x16xf32>", "tensor<8x5xf32>"),
        "([i, j, k], [i, l])->([i, j, k]) {i=8, j=12, k=16, l=5} need_replication={j, k, l}",
    ),
    "ApproxTopK": (
        "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%d = stablehlo.constant dense<0> : tensor<i32>\n"
        "%0:2 = stablehlo.custom_call @ApproxTopK(%arg0, %arg1, %c, %d)"
        " : (tensor<16x4xf32>, tensor<16x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<16x2xf32>, tensor<16x2xi32>)",
        ("tensor<16x4xf32>", "tensor<16x4xi32>"),
        "([i, j], [i, j], [], [])->([i, k], [i, k]) {i=16, j=4, k=2} need_replication={k} blocked_propagation={k}",
    ),
    "an annotation": (
        "%0 = stablehlo.custom_call @annotate_device_placement(%arg0) : (tensor<4x2xf32>) -> tensor<4x2xf32>",
        ("tensor<4x2xf32>",),
        "([i, j])->([i, j]) {i=4, j=2}",
    ),
    "a call with a batch": (
        '%0:2 = stablehlo.custom_call @nobody(%arg0) {mhlo.frontend_attributes = {num_batch_dims = "1"}}'
        " : (tensor<8x4x5xf32>) -> (tensor<8x5x5xf32>, tensor<8xi32>)",
        ("tensor<8x4x5xf32>",),
        "([i, j, k])->([i, l, m], [i]) {i=8, j=1, k=1, l=1, m=1}",
    ),
    "a call with a batch that is none": (
        '%0 = stablehlo.custom_call @nobody(%arg0) {mhlo.frontend_attributes = {num_batch_dims = "1"}}'
        " : (tensor<8x4xf32>) -> tensor<4x4xf32>",
        ("tensor<8x4xf32>",),
        "([i, j])->([k, l]) {i=1, j=1, k=1, l=1}",
    ),
    "unknown custom call": (
        "%0 = stablehlo.custom_call @nobody(%arg0) : (tensor<4x2xf32>) -> tensor<4x2xf32>",
        ("tensor<4x2xf32>",),
        "([i, j])->([k, l]) {i=1, j=1, k=1, l=1}",
    ),
}


@pytest.mark.parametrize("name", _TABLE)
def test_published_rules(name: str) -> None:
    text, arguments, expected = _TABLE[name]
    assert str(rule_of(_op(text, *arguments))) == expected


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        (
            "%0 = stablehlo.concatenate %arg0, %arg1, dim = 1 : (tensor<4x3xf32>, tensor<4x5xf32>) -> tensor<4x8xf32>",
            ("tensor<4x3xf32>", "tensor<4x5xf32>"),
            "([i, j], [i, k])->([i, l]) {i=4, j=1, k=1, l=1}",
        ),
        (
            "%0 = stablehlo.slice %arg0 [0:4, 1:5] : (tensor<4x8xf32>) -> tensor<4x4xf32>",
            ("tensor<4x8xf32>",),
            "([i, j])->([i, j]) {i=4, j=8} permutation={j} blocked_propagation={j}",
        ),
        (
            "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%0 = stablehlo.pad %arg0, %c, low = [0, 1], "
            "high = [0, 1], interior = [0, 0] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x10xf32>",
            ("tensor<4x8xf32>",),
            "([i, j], [])->([i, j]) {i=4, j=8} permutation={j} blocked_propagation={j}",
        ),
        (
            "%0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = "
            "{stride = [1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
            "(tensor<2x9x3xf32>, tensor<4x3x5xf32>) -> tensor<2x6x5xf32>",
            ("tensor<2x9x3xf32>", "tensor<4x3x5xf32>"),
            "([i, l, j], [m, j, k])->([i, n, k]) {i=2, j=3, k=5, l=1, m=1, n=1} reduction={j}",
        ),
        (
            "%0 = stablehlo.add %arg0, %arg0 : tensor<4x8xf32>",
            ("tensor<4x8xf32>",),
            "([i, j], [i, j])->([i, j]) {i=4, j=8}",
        ),
    ],
)
def test_conservative_rules_hand_on_nothing_that_moves(text: str, arguments: tuple[str, ...], expected: str) -> None:
    assert str(conservative_rule(_op(text, *arguments))) == expected


def test_windows_block_what_moves_in_conservative_rules() -> None:
    window = _op(*_flat("select_and_scatter"))
    rule = conservative_rule(window)
    assert rule.blocked == set(rule.of_kind(PERMUTE)) | set(rule.of_kind(REPLICATE)) != frozenset()
    assert rule_of(window).blocked == frozenset()


def test_what_a_process_may_do_is_told_beside_the_rule() -> None:
    shift = _op(*_flat("a pad that shifts"))
    assert (rule_of(shift).kinds, local_rule(shift).kinds) == ((PASS,), (PERMUTE,))
    solve = _op(*_flat("triangular_solve from the left"))
    assert local_rule(solve).kinds == (PASS, REPLICATE, PASS, REPLICATE)
    update = _op(*_flat("dynamic_update_slice at constant places"))
    assert local_rule(update).kinds == (PASS, PASS, REPLICATE)
    assert local_rule(_op(*_flat("Eigh"))).kinds == (PASS, REPLICATE, REPLICATE)


def _flat(name: str) -> tuple[str, ...]:
    text, arguments, _ = _TABLE[name]
    return (text, *arguments)


def test_the_state_of_a_generator_stays_whole() -> None:
    op = _op(
        "%0 = stablehlo.custom_call @X64Combine(%arg0, %arg1) : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui64>\n"
        "%1:2 = stablehlo.rng_bit_generator %0, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>,"
        " tensor<4xui64>)",
        "tensor<2xui32>",
        "tensor<2xui32>",
    )
    combine = op.operands[0].defining_op
    assert combine is not None
    assert str(published_rule(combine)) == "([i], [i])->([i]) {i=2}"
    assert str(published_rule(combine, [op])) == "([i], [i])->([i]) {i=2} need_replication={i} blocked_propagation={i}"


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("%0 = stablehlo.constant dense<1.0> : tensor<4xf32>", "tensor<f32>"),
        ("%0 = stablehlo.custom_call @nobody(%arg0) : (tensor<4xf32>) -> tensor<4xf32>", "tensor<4xf32>"),
        (
            "%0 = stablehlo.custom_call @xla_python_cpu_callback(%arg0) : (tensor<4xf32>) -> tensor<4xf32>",
            "tensor<4xf32>",
        ),
        ("%0 = stablehlo.reshape %arg0 : (tensor<4x0xf32>) -> tensor<0x3xf32>", "tensor<4x0xf32>"),
        ("%0 = stablehlo.optimization_barrier %arg0 : tensor<4xf32>", "tensor<4xf32>"),
        ("%0 = stablehlo.sine %arg0 : tensor<?xf32>", "tensor<?xf32>"),
    ],
)
def test_ops_that_shardy_has_no_rule_for(text: str, argument: str) -> None:
    assert published_rule(_op(text, argument)) is None


def test_a_rule_on_the_op_comes_first() -> None:
    op = _op(
        "%0 = stablehlo.custom_call @mine(%arg0) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([j, i])"
        " {i=4, j=2} need_replication={j}, custom>} : (tensor<4x2xf32>) -> tensor<2x4xf32>",
        "tensor<4x2xf32>",
    )
    assert str(rule_of(op)) == "([i, j])->([j, i]) {i=4, j=2} need_replication={j}, custom"


def test_users_register_rules_of_custom_calls() -> None:
    @register("mine.transpose")
    def transpose(op: Op) -> Rule:
        rows, columns = op.operands[0].tensor.static_shape
        return RuleBuilder(op).factor([0], [1], rows).factor([1], [0], columns).build()

    op = _op(
        "%0 = stablehlo.custom_call @mine.transpose(%arg0) : (tensor<4x2xf32>) -> tensor<2x4xf32>", "tensor<4x2xf32>"
    )
    assert str(rule_of(op)) == "([i, j])->([j, i]) {i=4, j=2}"


def test_every_rule_is_of_a_declared_op() -> None:
    assert [name for name in rules() if name not in OPS] == []


#: Ops that are data-flow edges, ends of blocks, calls, or of dynamic or single-device programs.
_WITHOUT = frozenset(
    "stablehlo." + name
    for name in [
        "after_all",
        "compute_reshape_shape",
        "cstr_reshapable",
        "async_done",
        "async_start",
        "case",
        "composite",
        "custom_call",
        "get_dimension_size",
        "get_tuple_element",
        "if",
        "partition_id",
        "replica_id",
        "return",
        "rng",
        "set_dimension_size",
        "tuple",
        "while",
        "dynamic_broadcast_in_dim",
        "dynamic_conv",
        "dynamic_gather",
        "dynamic_iota",
        "dynamic_pad",
        "dynamic_reshape",
        "real_dynamic_slice",
    ]
)


def test_every_stablehlo_op_has_a_rule() -> None:
    names = {name for name in OPS if name.startswith("stablehlo.")}
    assert names - set(rules()) == _WITHOUT & names


def test_dimensions_nobody_maps_have_a_factor_that_nothing_cuts() -> None:
    op = _op("%0 = stablehlo.custom_call @nobody(%arg0) : (tensor<4xf32>) -> tensor<2xf32>", "tensor<4xf32>")
    assert replicated_rule(op).sizes == (1, 1)
