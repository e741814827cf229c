"""XlaBuilder: XLA's own construction API, on the language's ops.

    builder = XlaBuilder("axpy")
    alpha = ops.Parameter(builder, 0, Shape.array_shape(F32), "alpha")
    x = ops.Parameter(builder, 1, Shape.array_shape(F32, [10]), "x")
    y = ops.Parameter(builder, 2, Shape.array_shape(F32, [10]), "y")
    ops.Add(ops.Mul(alpha, x), y)
    computation = builder.Build()
    module = computation.to_stablehlo()

What the document's C++ expresses by types of its own is Python here: a call returns its value or raises, so there is
no StatusOr to unwrap with `ConsumeValueOrDie()` or `value()`; `Array2D` and the like are nested lists or arrays.

Source: the XlaBuilder operation semantics, the broadcasting semantics, and the document on the TensorFlow compiler
framework (ComputationBuilder, Client, layouts).
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from spmd.builder import hlo as _hlo  # noqa: F401  (computations are written as HLO text)
from spmd.builder import module as _module  # noqa: F401  (and as modules)
from spmd.builder import ops
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import XlaComputation
from spmd.builder.errors import BuilderError
from spmd.builder.layout import Layout, PaddingValue
from spmd.builder.literal import Literal, LiteralUtil
from spmd.builder.options import (
    ChannelHandle,
    ChannelType,
    ConvolutionDimensionNumbers,
    DotDimensionNumbers,
    FftType,
    GatherDimensionNumbers,
    MakePadding,
    Padding,
    PaddingConfig,
    PaddingConfigDimension,
    PaddingType,
    PrecisionConfig,
    RandomAlgorithm,
    ReplicaGroup,
    ScatterDimensionNumbers,
    Transpose,
    TriangularSolveOptions_Transpose,
    make_convolution_dimension_numbers,
    make_dot_dimension_numbers,
    make_padding_config,
    make_replica_groups,
    window_padding_type_to_pad_values,
)
from spmd.builder.shape import (
    BF16,
    C64,
    C128,
    F16,
    F32,
    F64,
    PRED,
    S2,
    S4,
    S8,
    S16,
    S32,
    S64,
    TOKEN,
    TUPLE,
    U2,
    U4,
    U8,
    U16,
    U32,
    U64,
    PrimitiveType,
    ProgramShape,
    Shape,
    ShapeUtil,
)  # fmt: skip
from spmd.builder.xla_op import XlaOp

if TYPE_CHECKING:
    from spmd.client.client import Client as Client
    from spmd.client.client import ClientLibrary as ClientLibrary
    from spmd.client.client import GlobalData as GlobalData
    from spmd.client.computation_builder import ComputationBuilder as ComputationBuilder

#: Names for running programs: they are above the builder in the layers, so they are loaded on first use.
_HOMES = {
    "Client": "spmd.client.client",
    "ClientLibrary": "spmd.client.client",
    "ComputationBuilder": "spmd.client.computation_builder",
    "GlobalData": "spmd.client.client",
}

__all__ = [
    "BF16",
    "C64",
    "C128",
    "F16",
    "F32",
    "F64",
    "PRED",
    "S2",
    "S4",
    "S8",
    "S16",
    "S32",
    "S64",
    "TOKEN",
    "TUPLE",
    "U2",
    "U4",
    "U8",
    "U16",
    "U32",
    "U64",
    "BuilderError",
    "ChannelHandle",
    "ChannelType",
    "Client",
    "ClientLibrary",
    "ComputationBuilder",
    "ConvolutionDimensionNumbers",
    "DotDimensionNumbers",
    "FftType",
    "GatherDimensionNumbers",
    "GlobalData",
    "Layout",
    "Literal",
    "LiteralUtil",
    "MakePadding",
    "Padding",
    "PaddingConfig",
    "PaddingConfigDimension",
    "PaddingType",
    "PaddingValue",
    "PrecisionConfig",
    "PrimitiveType",
    "ProgramShape",
    "RandomAlgorithm",
    "ReplicaGroup",
    "ScatterDimensionNumbers",
    "Shape",
    "ShapeUtil",
    "Transpose",
    "TriangularSolveOptions_Transpose",
    "XlaBuilder",
    "XlaComputation",
    "XlaOp",
    "make_convolution_dimension_numbers",
    "make_dot_dimension_numbers",
    "make_padding_config",
    "make_replica_groups",
    "ops",
    "window_padding_type_to_pad_values",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(home), name)
