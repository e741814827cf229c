"""Every documented precondition, broken: the error names the operation and the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spmd.builder import (
    BuilderError,
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    Shape,
    XlaBuilder,
    XlaOp,
    ops,
)
from tests.builder.support import build, scalars

ADD = scalars("add", ["f32", "f32"], ops.Add)
ADD_S32 = scalars("add_s32", ["s32", "s32"], ops.Add)
GE = scalars("ge", ["f32", "f32"], ops.Ge)
IDENTITY = build(lambda _, x: x, Shape("f32[]"), name="identity")
NOT = build(lambda _, x: ~x, Shape("pred[]"), name="not")
TO_S32 = build(lambda _, x: ops.ConvertElementType(x, "s32"), Shape("f32[]"), name="to_s32")


class Values:
    """Values of the shape that an attribute's name gives: `v.f32_2_3` has shape f32[2,3], `v.s32` is a scalar."""

    def __init__(self) -> None:
        self.builder = XlaBuilder("test")

    def __getattr__(self, name: str) -> XlaOp:
        type, *sizes = name.split("_")
        number = len(self.builder._parameters)
        return self.builder.Parameter(number, Shape.array_shape(type, [int(size) for size in sizes]), name)

    def tuple(self, *values: XlaOp) -> XlaOp:
        return self.builder.Tuple(list(values))


def conv(**kwargs: Any) -> Callable[[Values], Any]:
    return lambda v: ops.ConvGeneralDilated(v.f32_2_4_5_5, v.f32_4_2_3_3, **{"feature_group_count": 2, **kwargs})


#: (operation, argument, the call, part of the reason)
BROKEN: list[tuple[str, str, Callable[[Values], Any], str]] = [
    ("AfterAll", "operands", lambda v: ops.AfterAll([v.f32]), "must be a token"),
    ("AllGather", "all_gather_dim", lambda v: ops.AllGather(v.f32_2, 1, 2), r"must be in \[0, 1\)"),
    ("AllGather", "shard_count", lambda v: ops.AllGather(v.f32_2, 0, 3, [[0, 1]]), "size of every replica group"),
    ("AllGather", "shard_count", lambda v: ops.AllGather(v.f32_2, 0, 2, [[0, 1], [2]]), "size of every replica group"),
    ("AllGather", "replica_groups", lambda v: ops.AllGather(v.f32_2, 0, 2, [[0, 1], [1, 2]]), "ids must be distinct"),
    ("AllReduce", "computation", lambda v: ops.AllReduce(v.s32_2, ADD), "must have parameters"),
    ("AllReduce", "operand", lambda v: ops.AllReduce(v.tuple(), ADD), "at least one array"),
    ("AllReduce", "use_global_device_ids", lambda v: ops.AllReduce(v.f32, ADD, (), None, True), "channel_id"),
    ("AllReduce", "replica_groups", lambda v: ops.AllReduce(v.f32, ADD, (), 1, True), "must be given"),
    ("AllToAll", "split_count", lambda v: ops.AllToAll(v.f32_4_16, 1, 0, 3), "must divide"),
    ("AllToAll", "operand", lambda v: ops.AllToAll(v.tuple(v.f32_4), 0, 0, 2), "must be an array"),
    ("AllToAll", "split_dimension", lambda v: ops.AllToAll(v.f32_4, 1, 0, 2), r"must be in \[0, 1\)"),
    ("AllToAll", "concat_dimension", lambda v: ops.AllToAll(v.f32_4, 0, -1, 2), r"must be in \[0, 1\)"),
    ("BatchNormTraining", "feature_index",
     lambda v: ops.BatchNormTraining(v.f32_2_3, v.f32_3, v.f32_3, 0.1, 2), "must be in"),
    ("BatchNormTraining", "offset", lambda v: ops.BatchNormTraining(v.f32_2_3, v.f32_3, v.f32_2, 0.1, 1), "3 features"),
    ("BatchNormInference", "variance",
     lambda v: ops.BatchNormInference(v.f32_2_3, v.f32_3, v.f32_3, v.f32_3, v.f64_3, 0.1, 1), "the element type of"),
    ("BatchNormGrad", "grad_output",
     lambda v: ops.BatchNormGrad(v.f32_2_3, v.f32_3, v.f32_3, v.f32_3, v.f32_3_2, 0.1, 1), "shape of operand"),
    ("BitcastConvertType", "operand",
     lambda v: ops.BitcastConvertType(v.f16_10_3, "f32"), "last dimension must have size 2"),
    ("BitcastConvertType", "operand", lambda v: ops.BitcastConvertType(v.tuple(v.f32), "f32"), "must be an array"),
    ("BitcastConvertType", "new_element_type", lambda v: ops.BitcastConvertType(v.f32, "tuple"), "no type of array"),
    ("Broadcast", "broadcast_sizes", lambda v: ops.Broadcast(v.f32, [-1]), "at least 0"),
    ("BroadcastInDim", "operand", lambda v: ops.BroadcastInDim(v.f32_2, [3, 4], [0]), "must have size 1 or 3"),
    ("BroadcastInDim", "broadcast_dimensions", lambda v: ops.BroadcastInDim(v.f32_2, [2, 4], []), "got 0"),
    ("BroadcastInDim", "broadcast_dimensions", lambda v: ops.BroadcastInDim(v.f32_2, [2, 4], [2]), "must be in"),
    ("Call", "computation", lambda v: ops.Call(ADD, v.f32), "must have parameters"),
    ("Call", "computation", lambda v: ops.Call(ADD, v.f32, v.s32), "must have parameters"),
    ("CompositeCall", "name", lambda v: ops.CompositeCall(IDENTITY, [v.f32], "bar"), "namespaced"),
    ("CompositeCall", "composite_attributes",
     lambda v: ops.CompositeCall(IDENTITY, [v.f32], "foo.bar", "{n = }"), "must be a dictionary"),
    ("Cholesky", "a", lambda v: ops.Cholesky(v.f32_3), "at least rank 2"),
    ("Cholesky", "a", lambda v: ops.Cholesky(v.f32_3_4), "must be equal"),
    ("Cholesky", "a", lambda v: ops.Cholesky(v.s32_3_3), "floating-point or complex"),
    ("Clamp", "min", lambda v: ops.Clamp(v.f32_2, v.f32_3, v.f32), "must be a scalar or have the shape"),
    ("Clamp", "max", lambda v: ops.Clamp(v.f32, v.f32_3, v.s32), "must have the element type"),
    ("Collapse", "dimensions", lambda v: ops.Collapse(v.f32_2_3_4, [1, 0]), "consecutive and in order"),
    ("Collapse", "dimensions", lambda v: ops.Collapse(v.f32_2_3_4, [0, 2]), "consecutive and in order"),
    ("CollectivePermute", "source_target_pairs",
     lambda v: ops.CollectivePermute(v.f32, [(0, 1), (2, 1)]), "target replica id"),
    ("CollectivePermute", "source_target_pairs",
     lambda v: ops.CollectivePermute(v.f32, [(0, 1), (0, 2)]), "source replica id"),
    ("Concatenate", "operands", lambda v: ops.Concatenate([v.f32, v.f32], 0), "scalars cannot"),
    ("Concatenate", "operands", lambda v: v.builder.Concatenate([], 0), "at least 1"),
    ("Concatenate", r"operands\[1\]", lambda v: ops.Concatenate([v.f32_2_3, v.f32_2_4], 0), "all dimensions but 0"),
    ("Concatenate", r"operands\[1\]", lambda v: ops.Concatenate([v.f32_2, v.f32_2_4], 0), "all dimensions but 0"),
    ("Concatenate", r"operands\[1\]", lambda v: ops.Concatenate([v.f32_2, v.s32_2], 0), "must have the element type"),
    ("ConcatInDim", "dimension", lambda v: ops.ConcatInDim([v.f32_2], 1), r"must be in \[0, 1\)"),
    ("Conditional", "pred", lambda v: ops.Conditional(v.s32, v.f32, IDENTITY, v.f32, IDENTITY), "PRED"),
    ("Conditional", "pred",
     lambda v: ops.Conditional(v.pred_2, v.f32, IDENTITY, v.f32, IDENTITY), "must be a scalar"),
    ("Conditional", "true_computation",
     lambda v: ops.Conditional(v.pred, v.s32, IDENTITY, v.f32, IDENTITY), "must have parameters"),
    ("Conditional", "false_computation",
     lambda v: ops.Conditional(v.pred, v.f32, IDENTITY, v.f32, TO_S32), r"must return f32\[\]"),
    ("Conditional", "branch_index", lambda v: ops.Conditional(v.u32, [IDENTITY], [v.f32]), r"must be s32\[\]"),
    ("Conditional", "branch_operands", lambda v: ops.Conditional(v.s32, [IDENTITY], []), "0 for 1"),
    ("Conditional", r"branch_computations\[1\]",
     lambda v: ops.Conditional(v.s32, [IDENTITY, TO_S32], [v.f32, v.f32]), "must return"),
    ("ConvGeneralDilated", "rhs", lambda v: ops.ConvGeneralDilated(v.f32_1_1_3_3, v.f32_1_1_3), "rank 4"),
    ("ConvGeneralDilated", "window_strides", conv(window_strides=[1]), "2 entries"),
    ("ConvGeneralDilated", "window_strides", conv(window_strides=[0, 1]), "at least 1"),
    ("ConvGeneralDilated", "padding", conv(padding=[(0, 0)]), "2 \\(low, high\\) pairs"),
    ("ConvGeneralDilated", "padding", conv(padding="HALF"), "HALF"),
    ("ConvGeneralDilated", "lhs_dilation", conv(lhs_dilation=[0, 1]), "at least 1"),
    ("ConvGeneralDilated", "rhs", conv(feature_group_count=1), "input feature dimension"),
    ("ConvGeneralDilated", "batch_group_count", conv(batch_group_count=2), "only one"),
    ("ConvGeneralDilated", "batch_group_count",
     lambda v: ops.ConvGeneralDilated(v.f32_3_4_5_5, v.f32_4_4_3_3, batch_group_count=2), "must divide the batch"),
    ("ConvGeneralDilated", "feature_group_count",
     lambda v: ops.ConvGeneralDilated(v.f32_1_4_5_5, v.f32_3_2_3_3, feature_group_count=2), "must divide"),
    ("ConvGeneralDilated", "dimension_numbers",
     conv(dimension_numbers=ConvolutionDimensionNumbers(0, 0, [2, 3], 0, 1, [2, 3], 0, 1, [2, 3])), "input dimensions"),
    ("ConvertElementType", "operand", lambda v: ops.ConvertElementType(v.tuple(v.f32), "s32"), "must be an array"),
    ("ConvertElementType", "new_element_type", lambda v: ops.ConvertElementType(v.f32, "token"), "no type of array"),
    ("CustomCall", "shape", lambda v: ops.CustomCall("f", [v.f32], "f32[2"), "no shape"),
    ("Dot", "lhs", lambda v: ops.Dot(v.f32_2_3_4, v.f32_4), "vector or a matrix"),
    ("Dot", "rhs", lambda v: ops.Dot(v.f32_3, v.f64_3), "must have the element type"),
    ("Dot", "precision_config", lambda v: ops.Dot(v.f32_3, v.f32_3, "LOW"), "DEFAULT, HIGH or HIGHEST"),
    ("Dot", "dimension_numbers", lambda v: ops.Dot(v.f32_3, v.f32_4), "contracting dimensions must have equal sizes"),
    ("DotGeneral", "dimension_numbers",
     lambda v: ops.DotGeneral(v.f32_2_3_4, v.f32_3_4_5, DotDimensionNumbers([2], [1], [0], [0])), "batch dimensions"),
    ("DotGeneral", r"dimension_numbers \(lhs\)",
     lambda v: ops.DotGeneral(v.f32_2, v.f32_2, DotDimensionNumbers([1], [0])), "must be in"),
    ("DynamicSlice", "start_indices", lambda v: ops.DynamicSlice(v.f32_4_4, [v.s32], [1, 1]), "2 scalars"),
    ("DynamicSlice", "start_indices", lambda v: ops.DynamicSlice(v.f32_4_4, v.s32_3, [1, 1]), "vector of 2"),
    ("DynamicSlice", "start_indices", lambda v: ops.DynamicSlice(v.f32_4, [v.f32], [1]), "integer type"),
    ("DynamicSlice", "size_indices", lambda v: ops.DynamicSlice(v.f32_4, [v.s32], [5]), "must be at most 4"),
    ("DynamicUpdateSlice", "update", lambda v: ops.DynamicUpdateSlice(v.f32_4, v.f32_5, [v.s32]), "fit into operand"),
    ("DynamicUpdateSlice", "update",
     lambda v: ops.DynamicUpdateSlice(v.f32_4, v.s32_2, [v.s32]), "must have the element type"),
    ("Add", "rhs", lambda v: ops.Add(v.f32, v.s32), "must have the element type"),
    ("Add", "rhs", lambda v: ops.Add(v.s32, 1.5), "must be a value of s32"),
    ("Add", "lhs", lambda v: ops.Add("x", v.s32), "XlaOp or a number"),
    ("And", "lhs", lambda v: ops.And(v.f32, v.f32), "(boolean|integer)"),
    ("Lt", "lhs", lambda v: ops.Lt(v.c64, v.c64), "must not be complex"),
    ("Complex", "lhs", lambda v: ops.Complex(v.f16, v.f16), "f32"),
    ("Floor", "operand", lambda v: ops.Floor(v.s32), "floating-point"),
    ("Clz", "operand", lambda v: ops.Clz(v.f32), "integer"),
    ("Not", "operand", lambda v: ops.Not(v.f32), "PRED or integer"),
    ("Fft", "fft_type", lambda v: ops.Fft(v.c64_4, "DCT", [4]), "one of"),
    ("Fft", "operand", lambda v: ops.Fft(v.f32_4, "FFT", [4]), "complex type"),
    ("Fft", "operand", lambda v: ops.Fft(v.c64_4, "RFFT", [4]), "real type"),
    ("Fft", "fft_length", lambda v: ops.Fft(v.c64_2_2_2_2, "FFT", [2, 2, 2, 2]), "1 to 3 entries"),
    ("Fft", "fft_length", lambda v: ops.Fft(v.c64_4, "IRFFT", [9]), "innermost dimensions"),
    ("Gather", "slice_sizes", lambda v: ops.Gather(v.f32_4_4, v.s32_2_1, [1], [0], [1], [0]), "2 entries"),
    ("Gather", "slice_sizes", lambda v: ops.Gather(v.f32_4_4, v.s32_2_1, [1], [0], [1, 5], [0]), "must be at most"),
    ("Gather", "collapsed_slice_dims", lambda v: ops.Gather(v.f32_4_4, v.s32_2_1, [1], [0], [2, 4], [0]), "must be 1"),
    ("Gather", "offset_dims", lambda v: ops.Gather(v.f32_4_4, v.s32_2_1, [], [0], [1, 4], [0]), "add up to the rank"),
    ("Gather", "start_indices", lambda v: ops.Gather(v.f32_4, v.f32_2_1, [], [0], [1], [0]), "integer type"),
    ("Gather", "index_vector_dim", lambda v: ops.Gather(v.f32_4, v.s32_2, [], [0], [1], [0], 2), "must be in"),
    ("Gather", "slice_sizes",
     lambda v: ops.Gather(v.f32_4, v.s32_2_1, GatherDimensionNumbers([], [0], [0], 1)), "1 entries"),
    ("GetDimensionSize", "dimension", lambda v: ops.GetDimensionSize(v.f32_4, 1), "must be in"),
    ("GetDimensionSize", "operand", lambda v: ops.GetDimensionSize(v.tuple(), 0), "must be an array"),
    ("SetDimensionSize", "size", lambda v: ops.SetDimensionSize(v.f32_4, v.u32, 0), r"must be s32\[\]"),
    ("SetDimensionSize", "size", lambda v: ops.SetDimensionSize(v.f32_4, v.s32_1, 0), "must be a scalar"),
    ("SetDimensionSize", "dimension", lambda v: ops.SetDimensionSize(v.f32_4, v.s32, -1), "must be in"),
    ("GetTupleElement", "index", lambda v: ops.GetTupleElement(v.tuple(v.f32), 1), r"must be in \[0, 1\)"),
    ("GetTupleElement", "tuple_data", lambda v: ops.GetTupleElement(v.f32, 0), "must be a tuple"),
    ("Infeed", "shape", lambda v: v.builder.Infeed(Shape("((f32[]), f32[])")), "nested tuples"),
    ("Infeed", "shape", lambda v: v.builder.Infeed(Shape("token[]")), "array"),
    ("Iota", "iota_dimension", lambda v: v.builder.Iota(Shape("s32[4]"), 1), "must be in"),
    ("Iota", "shape", lambda v: v.builder.Iota(Shape("pred[4]"), 0), "number type"),
    ("Map", "computation", lambda v: ops.Map([v.f32_2], ADD), "must have parameters"),
    ("Map", "operands", lambda v: ops.Map([v.f32_2, v.f32_3], ADD), "same dimensions"),
    ("Map", "dimensions", lambda v: ops.Map([v.f32_2_3, v.f32_2_3], ADD, [0]), "all dimensions in order"),
    ("Outfeed", "shape_with_layout", lambda v: ops.Outfeed(v.f32, Shape("f32[2]")), "shape of operand"),
    ("Pad", "padding_value", lambda v: ops.Pad(v.f32_2, v.s32, [(0, 0, 0)]), "must have the element type"),
    ("Pad", "padding_value", lambda v: ops.Pad(v.f32_2, v.f32_1, [(0, 0, 0)]), "must be a scalar"),
    ("Pad", "padding_config", lambda v: ops.Pad(v.f32_2, v.f32, []), "entries, got 0"),
    ("Pad", "padding_config", lambda v: ops.Pad(v.f32_2, v.f32, [(0, 0, -1)]), "negative"),
    ("Pad", "padding_config", lambda v: ops.Pad(v.f32_2, v.f32, [(-2, -1, 0)]), "must not become negative"),
    ("Parameter", "parameter_number", lambda v: (v.f32, v.builder.Parameter(0, Shape("f32[]"))), "defined twice"),
    ("Parameter", "parameter_number", lambda v: v.builder.Parameter(-1, Shape("f32[]")), "negative"),
    ("RecvDone", "context", lambda v: ops.RecvDone(ops.Send(v.f32, 1)), "the context returned by Recv"),
    ("SendDone", "context", lambda v: ops.SendDone(v.f32), "the context returned by Send"),
    ("Recv", "shape", lambda v: v.builder.Recv(Shape("(f32[])"), 1), "array's shape"),
    ("Reduce", "operands", lambda v: v.builder.Reduce([], [], ADD, [0]), "at least 1"),
    ("Reduce", "init_values", lambda v: ops.Reduce(v.f32_2, v.f32_1, ADD, [0]), "must be a scalar"),
    ("Reduce", "init_values", lambda v: ops.Reduce([v.f32_2, v.f32_2], [v.f32], ADD, [0]), "2 scalars"),
    ("Reduce", "computation", lambda v: ops.Reduce(v.f32_2, v.f32, GE, [0]), r"must return f32\[\]"),
    ("Reduce", "computation", lambda v: ops.Reduce(v.f32_2, v.f32, ADD_S32, [0]), "must have parameters"),
    ("Reduce", "computation", lambda v: ops.Reduce(v.f32_2, v.f32, "add", [0]), "must be an XlaComputation"),
    ("Reduce", "dimensions", lambda v: ops.Reduce(v.f32_2, v.f32, ADD, [0, 0]), "must be distinct"),
    ("Reduce", "dimensions", lambda v: ops.Reduce(v.f32_2, v.f32, ADD, [1]), "must be in"),
    ("Reduce", "operands", lambda v: ops.Reduce([v.f32_2, v.f32_3], [v.f32, v.f32], ADD, [0]), "same dimensions"),
    ("ReducePrecision", "exponent_bits", lambda v: ops.ReducePrecision(v.f32, 3, 0), "at least 1"),
    ("ReducePrecision", "mantissa_bits", lambda v: ops.ReducePrecision(v.f32, -1, 5), "at least 0"),
    ("ReducePrecision", "operand", lambda v: ops.ReducePrecision(v.s32, 3, 5), "floating-point"),
    ("ReduceScatter", "shard_count", lambda v: ops.ReduceScatter(v.f32_3, ADD, 0, 2), "must divide"),
    ("ReduceScatter", "shard_count", lambda v: ops.ReduceScatter(v.f32_4, ADD, 0, 4, [[0, 1]]), "size of every"),
    ("ReduceScatter", "scatter_dimension", lambda v: ops.ReduceScatter(v.f32_4, ADD, 1, 2), "must be in"),
    ("ReduceWindow", "window_dimensions", lambda v: ops.ReduceWindow(v.f32_4, v.f32, ADD, [2, 2]), "1 entries"),
    ("ReduceWindow", "window_dimensions", lambda v: ops.ReduceWindow(v.f32_4, v.f32, ADD, [0]), "at least 1"),
    ("ReduceWindow", "window_strides", lambda v: ops.ReduceWindow(v.f32_4, v.f32, ADD, [2], [0]), "at least 1"),
    ("ReduceWindow", "base_dilations",
     lambda v: ops.ReduceWindow(v.f32_4, v.f32, ADD, [2], [1], "SAME", [0]), "at least 1"),
    ("Reshape", "new_sizes", lambda v: ops.Reshape(v.f32_4, [3]), "got 3"),
    ("Reshape", "dimensions", lambda v: ops.Reshape(v.f32_2_3, [0], [6]), "permutation"),
    ("Reshape", "dimensions", lambda v: ops.Reshape(v.f32_2_3, [0, 0], [6]), "must be distinct"),
    ("Rev", "dimensions", lambda v: ops.Rev(v.f32_2, [1]), "must be in"),
    ("RngNormal", "mu", lambda v: ops.RngNormal(v.f64, v.f32, Shape("f32[2]")), "element type of shape"),
    ("RngNormal", "shape", lambda v: ops.RngNormal(v.s32, v.s32, Shape("s32[2]")), "floating-point"),
    ("RngUniform", "b", lambda v: ops.RngUniform(v.f32, v.f32_1, Shape("f32[2]")), "must be a scalar"),
    ("RngUniform", "shape", lambda v: ops.RngUniform(v.c64, v.c64, Shape("c64[2]")), "PRED, an integer"),
    ("RngBernoulli", "shape", lambda v: ops.RngBernoulli(v.f32, Shape("f32[2]")), "U32"),
    ("RngBernoulli", "mean", lambda v: ops.RngBernoulli(v.f64, Shape("u32[2]")), r"f32\[\]"),
    ("RngBitGenerator", "initial_state",
     lambda v: ops.RngBitGenerator("RNG_THREE_FRY", v.u64_3, Shape("u32[2]")), r"u64\[2\]"),
    ("RngBitGenerator", "initial_state",
     lambda v: ops.RngBitGenerator("RNG_PHILOX", v.u32_2, Shape("u32[2]")), r"u64\[2\] or u64\[3\]"),
    ("RngBitGenerator", "algorithm", lambda v: ops.RngBitGenerator("RNG_X", v.u64_2, Shape("u32[2]")), "one of"),
    ("Scatter", "updates", lambda v: ops.Scatter([v.f32_4], v.s32_2_1, [], ADD, 1, [], [0], [0]), "at least 1"),
    ("Scatter", "update_window_dims",
     lambda v: ops.Scatter(v.f32_4, v.s32_1, v.f32_2_2, ADD, 0, [1, 0], [], [0]), "increasing"),
    ("Scatter", "inserted_window_dims",
     lambda v: ops.Scatter(v.f32_4_4, v.s32_1, v.f32, ADD, 0, [], [1, 0], [0]), "increasing"),
    ("Scatter", "update_computation",
     lambda v: ops.Scatter(v.f32_4, v.s32_1, v.f32, GE, 0, [], [0], [0]), "must return"),
    ("Scatter", "scatter_indices",
     lambda v: ops.Scatter(v.f32_4, v.f32_1, v.f32, ADD, 0, [], [0], [0]), "integer type"),
    ("Select", "pred", lambda v: ops.Select(v.pred_3, v.f32_2, v.f32_2), "must be a scalar or have the dimensions"),
    ("Select", "pred", lambda v: ops.Select(v.s32, v.f32_2, v.f32_2), "PRED"),
    ("Select", "on_false", lambda v: ops.Select(v.pred, v.f32_2, v.f32_3), "shape of on_true"),
    ("Select", "pred", lambda v: ops.Select(v.pred_1, v.tuple(v.f32), v.tuple(v.f32)), "must be a scalar to choose"),
    ("SelectAndScatter", "source",
     lambda v: ops.SelectAndScatter(v.f32_4, GE, [2], [2], "VALID", v.f32_3, v.f32, ADD), r"dimensions \[2\]"),
    ("SelectAndScatter", "select",
     lambda v: ops.SelectAndScatter(v.f32_4, ADD, [2], [2], "VALID", v.f32_2, v.f32, ADD), r"must return pred\[\]"),
    ("SelectAndScatter", "scatter",
     lambda v: ops.SelectAndScatter(v.f32_4, GE, [2], [2], "VALID", v.f32_2, v.f32, GE), r"must return f32\[\]"),
    ("Slice", "start_indices", lambda v: ops.Slice(v.f32_4, [-1], [2]), "at least 0"),
    ("Slice", "limit_indices", lambda v: ops.Slice(v.f32_4, [2], [1]), r"must be in \[2, 4\]"),
    ("Slice", "limit_indices", lambda v: ops.Slice(v.f32_4, [2], [5]), r"must be in \[2, 4\]"),
    ("Slice", "strides", lambda v: ops.Slice(v.f32_4, [0], [4], [0]), "at least 1"),
    ("Slice", "start_indices", lambda v: ops.Slice(v.f32_4, [0, 0], [4]), "1 entries"),
    ("SliceInDim", "dimno", lambda v: ops.SliceInDim(v.f32_4, 0, 4, dimno=1), "must be in"),
    ("Sort", "comparator", lambda v: ops.Sort([v.f32_2], ADD), r"must return pred\[\]"),
    ("Sort", "comparator", lambda v: ops.Sort([v.f32_2, v.f32_2], GE), "must have parameters"),
    ("Sort", "operands", lambda v: ops.Sort([v.f32_2, v.f32_3]), "same dimensions"),
    ("Sort", "operands", lambda v: ops.Sort(v.f32), "no dimension"),
    ("Sort", "dimension", lambda v: ops.Sort(v.f32_2, None, 1), "must be in"),
    ("TopK", "k", lambda v: ops.TopK(v.f32_3, 4), "at most the last dimension"),
    ("TopK", "operand", lambda v: ops.TopK(v.f32, 0), "at least 1 dimension"),
    ("Trans", "operand", lambda v: ops.Trans(v.f32_3), "rank 2"),
    ("Transpose", "permutation", lambda v: ops.Transpose(v.f32_2_3, [0]), "permutation"),
    ("TriangularSolve", "a", lambda v: ops.TriangularSolve(v.f32_3_2, v.f32_3_2, True, True, False), "must be equal"),
    ("TriangularSolve", "b", lambda v: ops.TriangularSolve(v.f32_3_3, v.f32_2_3, True, True, False), "must fit"),
    ("TriangularSolve", "b", lambda v: ops.TriangularSolve(v.f32_2_3_3, v.f32_1_3_3, True, True, False), "must fit"),
    ("TriangularSolve", "transpose_a",
     lambda v: ops.TriangularSolve(v.f32_3_3, v.f32_3_3, True, True, False, "FLIP"), "one of"),
    ("While", "condition", lambda v: ops.While(IDENTITY, IDENTITY, v.f32), r"must return pred\[\]"),
    ("While", "body", lambda v: ops.While(NOT, IDENTITY, v.pred), "must have parameters"),
    ("While", "body",
     lambda v: ops.While(build(lambda _, x: x < 1.0, Shape("f32[]")), TO_S32, v.f32), r"must return f32\[\]"),
]  # fmt: skip


@pytest.mark.sampled(37)
@pytest.mark.parametrize(("operation", "argument", "call", "reason"), BROKEN, ids=[f"{b[0]}-{b[1]}" for b in BROKEN])
def test_a_broken_precondition_names_operation_and_argument(
    operation: str, argument: str, call: Callable[[Values], Any], reason: str
) -> None:
    with pytest.raises(BuilderError, match=rf"test_preconditions\.py:\d+: {operation}: argument {argument}.*{reason}"):
        call(Values())


def test_values_of_another_builder_are_refused() -> None:
    one, two = Values(), Values()
    with pytest.raises(BuilderError, match="Add: argument rhs: must belong to builder"):
        ops.Add(one.f32, two.f32)


def test_an_operation_that_failed_leaves_no_ops_behind() -> None:
    v = Values()
    with pytest.raises(BuilderError):
        ops.RngBernoulli(v.f64, Shape("u32[2]"))
    assert v.builder.block.ops == []


def test_a_missing_parameter_is_told_by_build() -> None:
    builder = XlaBuilder("test")
    builder.Parameter(1, Shape("f32[]"))
    with pytest.raises(BuilderError, match="Build: parameter 0 is missing"):
        builder.Build()
    with pytest.raises(BuilderError, match="Build: the computation has no operations"):
        XlaBuilder("empty").Build()
