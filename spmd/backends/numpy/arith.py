"""Arithmetic of builtin scalars in shape computations: MLIR's arith dialect.

A scalar is a NumPy scalar or a 0-d array of its type's dtype; index is 64 bits wide. Integers wrap; signless ones are
held as signed, and unsigned ops reinterpret the bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spmd.backends.kernels import Context, Kernel, kernel
from spmd.errors import CompileError, Diagnostic, ExecutionError
from spmd.ir import Op, Value
from spmd.ir.attributes import BoolAttr, DenseAttr, FloatAttr, IntegerAttr
from spmd.support.arrays import Array, bits_dtype
from spmd.types import ElementType, TensorType

Binary = Callable[[Array, Array], Array]


def element_of(value: Value) -> ElementType:
    """Return the element type of a builtin scalar or a tensor."""
    type = value.type.element_type if isinstance(value.type, TensorType) else value.type
    assert isinstance(type, ElementType)
    return type


@kernel("arith.constant")
def constant(op: Op, context: Context) -> Kernel:
    value, dtype = op["value"], element_of(op.result).dtype
    if isinstance(value, DenseAttr):
        array = value.array
    elif isinstance(value, (BoolAttr, IntegerAttr, FloatAttr)):
        array = np.asarray(value.value, dtype)
    else:
        raise CompileError(Diagnostic(op.location, "the constant must be a number or a tensor", op.name))
    return Kernel(lambda: array, owned=False)


def _towards_zero(x: Array, y: Array) -> Array:
    quotient: Array = np.floor_divide(x, y) + ((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)))
    return quotient


_SIGNED: dict[str, Binary] = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "shli": np.left_shift,
    "shrsi": np.right_shift,
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "divsi": _towards_zero,
    "floordivsi": np.floor_divide,
    "ceildivsi": lambda x, y: -np.floor_divide(-x, y),
    "remsi": np.fmod,
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "divf": np.divide,
    "remf": np.fmod,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
}
_UNSIGNED: dict[str, Binary] = {
    "divui": np.floor_divide,
    "ceildivui": lambda x, y: np.floor_divide(x, y) + (np.remainder(x, y) != 0),
    "remui": np.remainder,
    "maxui": np.maximum,
    "minui": np.minimum,
    "shrui": np.right_shift,
}
_DIVISIONS = {"divsi", "floordivsi", "ceildivsi", "remsi", "divui", "ceildivui", "remui"}


def _unsigned(array: Array) -> Array:
    array = np.asarray(array)
    bits: Array = array if array.dtype == np.bool_ else array.view(bits_dtype(array.dtype))
    return bits


@kernel(*(f"arith.{name}" for name in (*_SIGNED, *_UNSIGNED)))
def binary(op: Op, context: Context) -> Kernel:
    name = op.name.removeprefix("arith.")
    dtype, divides = element_of(op.result).dtype, name in _DIVISIONS
    function, read = (_SIGNED[name], np.asarray) if name in _SIGNED else (_UNSIGNED[name], _unsigned)

    def call(x: Array, y: Array) -> Array:
        if divides and not np.all(y):
            raise ExecutionError(Diagnostic(op.location, "division by zero", op.name))
        result = np.asarray(function(read(x), read(y)))
        return result.view(dtype) if result.dtype.kind == "u" else result.astype(dtype, copy=False)

    return Kernel(call)


_SIGNED_COMPARISONS: dict[str, Binary] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "slt": np.less,
    "sle": np.less_equal,
    "sgt": np.greater,
    "sge": np.greater_equal,
}
_UNSIGNED_COMPARISONS: dict[str, Binary] = {
    "ult": np.less,
    "ule": np.less_equal,
    "ugt": np.greater,
    "uge": np.greater_equal,
}


@kernel("arith.cmpi")
def compare(op: Op, context: Context) -> Kernel:
    predicate = op["predicate"]
    if predicate in _SIGNED_COMPARISONS:
        function = _SIGNED_COMPARISONS[predicate]
        return Kernel(lambda x, y: np.asarray(function(x, y)))
    function = _UNSIGNED_COMPARISONS[predicate]
    return Kernel(lambda x, y: np.asarray(function(_unsigned(x), _unsigned(y))))


@kernel("arith.select")
def select(op: Op, context: Context) -> Kernel:
    return Kernel(lambda condition, yes, no: np.where(condition, yes, no))


@kernel(
    *(f"arith.{name}" for name in ("index_cast", "extsi", "trunci", "sitofp", "fptosi", "extf", "truncf", "fptoui"))
)
def convert(op: Op, context: Context) -> Kernel:
    dtype, signed_bit = element_of(op.result).dtype, element_of(op.operands[0]).is_boolean

    def call(value: Array) -> Array:
        array = np.asarray(value)
        # A signed 1-bit integer is 0 or -1.
        return (-array.astype(np.int8)).astype(dtype) if signed_bit else array.astype(dtype)

    return Kernel(call)


@kernel("arith.index_castui", "arith.extui", "arith.uitofp")
def convert_unsigned(op: Op, context: Context) -> Kernel:
    dtype = element_of(op.result).dtype
    return Kernel(lambda value: _unsigned(value).astype(dtype))
