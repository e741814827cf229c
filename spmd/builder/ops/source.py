"""Operations without array operands: parameters, constants, iota; and tuples.

Source: XlaBuilder operation semantics, "Iota", "Tuple", "GetTupleElement"; "Constants vs. parameters" and the C++
interface of the TensorFlow compiler framework document.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from spmd import types as t
from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.errors import ArgumentError
from spmd.builder.literal import Literal, as_array
from spmd.builder.operation import operation, operation_named, operation_of
from spmd.builder.shape import ElementLike, Shape
from spmd.builder.xla_op import XlaOp

_INTERFACE = '"C++ interface", and XlaBuilder'


def shape_argument(shape: object, argument: str = "shape") -> Shape:
    """Return a Shape, or its text."""
    if isinstance(shape, str):
        try:
            return Shape.parse(shape)
        except ValueError as error:
            raise ArgumentError(argument, str(error)) from None
    if not isinstance(shape, Shape):
        raise ArgumentError(argument, f"must be a Shape, got {type(shape).__name__}")
    return shape


def array_shape_argument(shape: object, argument: str = "shape") -> Shape:
    array_shape = shape_argument(shape, argument)
    if not array_shape.is_array():
        raise ArgumentError(argument, f"must be an array's shape, got {array_shape.brief}")
    return array_shape


@operation_of(_INTERFACE)
def Parameter(builder: XlaBuilder, parameter_number: int, shape: Shape, name: str = "") -> XlaOp:
    """Return argument number `parameter_number` of the computation, of `shape` (an array, a tuple or a token)."""
    return builder.parameter(checks.integer(parameter_number, "parameter_number"), shape_argument(shape), str(name))


@operation_of(_INTERFACE)
def Constant(builder: XlaBuilder, value: object) -> XlaOp:
    """Return a constant: a NumPy array, a number, nested lists, or a Literal (also of a tuple shape)."""
    literal = value if isinstance(value, Literal) else Literal(value)
    return _literal(builder, literal)


@operation_of(_INTERFACE)
def ConstantLiteral(builder: XlaBuilder, literal: Literal) -> XlaOp:
    """Return a constant with the value of a Literal."""
    if not isinstance(literal, Literal):
        raise ArgumentError("literal", f"must be a Literal, got {type(literal).__name__}")
    return _literal(builder, literal)


def _literal(builder: XlaBuilder, literal: Literal) -> XlaOp:
    if not literal.shape().is_tuple():
        return XlaOp(builder, builder.constant(literal.array()))
    parts = [_literal(builder, part) for part in literal.tuple_elements()]
    return builder.tuple([builder.value(part, "literal") for part in parts])


def _ranked(builder: XlaBuilder, value: object, rank: int, type: ElementLike | None) -> XlaOp:
    array = as_array(value, type)
    if array.ndim != rank:
        raise ArgumentError("values" if rank else "value", f"must have rank {rank}, got {array.ndim}")
    return XlaOp(builder, builder.constant(array))


@operation_of(_INTERFACE)
def ConstantR0(builder: XlaBuilder, value: object, type: ElementLike | None = None) -> XlaOp:
    """Return a scalar constant. Python's bool, int and float are PRED, S32 and F32 unless `type` says otherwise."""
    return _ranked(builder, value, 0, type)


@operation_of(_INTERFACE)
def ConstantR1(builder: XlaBuilder, values: object, value: object = None, type: ElementLike | None = None) -> XlaOp:
    """Return a vector constant of `values`; or, as ConstantR1(length, value), `length` times `value`."""
    if value is not None:
        length = checks.integer(values, "length", 0)
        element = as_array(value, type)
        if element.ndim:
            raise ArgumentError("value", f"must be a scalar, got rank {element.ndim}")
        return XlaOp(builder, builder.constant(np.broadcast_to(element, (length,))))
    return _ranked(builder, values, 1, type)


class ConstantOfRank(Protocol):
    """An operation that makes a constant of a fixed rank from nested lists or an array."""

    def __call__(self, values: object, type: ElementLike | None = None) -> XlaOp: ...


def _of_rank(name: str, rank: int, doc: str) -> ConstantOfRank:
    @operation_named(name, doc, _INTERFACE)
    def function(builder: XlaBuilder, values: object, type: ElementLike | None = None) -> XlaOp:
        return _ranked(builder, values, rank, type)

    return function


ConstantR2 = _of_rank("ConstantR2", 2, "Return a matrix constant, from nested lists or an array.")
ConstantR2FromArray2D = _of_rank(
    "ConstantR2FromArray2D",
    2,
    "Return a matrix constant, from nested lists or an array: these are what the document's `Array2D` is in Python.",
)
ConstantR3FromArray3D = _of_rank("ConstantR3FromArray3D", 3, "Return a constant of rank 3.")
ConstantR4FromArray4D = _of_rank("ConstantR4FromArray4D", 4, "Return a constant of rank 4.")


@operation
def Iota(builder: XlaBuilder, shape: Shape, iota_dimension: int = 0) -> XlaOp:
    """Return 0, 1, 2, ... along `iota_dimension` of an array of `shape`. Source: "Iota".

    With xla_client's arguments, `Iota(builder, F32, 4)`, return a vector of that element type and size.
    """
    if not isinstance(shape, (Shape, str)) or (isinstance(shape, str) and "[" not in shape):
        shape, iota_dimension = Shape.array_shape(shape, [checks.integer(iota_dimension, "size", 0)]), 0
    result_shape = array_shape_argument(shape)
    kind = result_shape.tensor
    if kind.scalar_type.kind == "i1":
        raise ArgumentError("shape", f"must be of a number type, got {result_shape.brief}")
    number = checks.dimension(iota_dimension, result_shape.rank(), "iota_dimension")
    return builder.emit_one("stablehlo.iota", [], {"iota_dimension": number}, kind)


@operation
def Tuple(builder: XlaBuilder, elements: object) -> XlaOp:
    """Return a tuple of any values. Source: "Tuple"."""
    sequence = elements if isinstance(elements, (list, tuple)) else [elements]
    return builder.tuple([builder.value(element, f"elements[{i}]") for i, element in enumerate(sequence)])


@operation
def GetTupleElement(builder: XlaBuilder, tuple_data: XlaOp, index: int) -> XlaOp:
    """Return element `index` of a tuple. Source: "GetTupleElement"."""
    value = builder.value(tuple_data, "tuple_data")
    if not isinstance(value.type, t.TupleType):
        raise ArgumentError("tuple_data", f"must be a tuple, got {Shape.of(value.type).brief}")
    number = checks.integer(index, "index")
    if not 0 <= number < len(value.type.types):
        raise ArgumentError(
            "index", f"must be in [0, {len(value.type.types)}) for {Shape.of(value.type).brief}, got {number}"
        )
    return XlaOp(builder, builder.element(value, number))
