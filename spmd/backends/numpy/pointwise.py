"""Building blocks of pointwise kernels.

A pointwise call acts elementwise on arrays of shapes that broadcast and takes `out=`. If NumPy has the function, the
call is the bare ufunc. Every call reads its operands before it writes `out`, so an operand of the result's type may be
`out`.

Narrow types are computed wide and rounded once (specification, "Floating-point types"; DESIGN, "Element types in
NumPy"):
- a function of one operand of at most 16 bits is a table of all values, computed in f64;
- a function of two operands of at most 8 bits each is a table of all pairs;
- bf16 and, where NumPy has no loop, f16 are computed in f32; 2- and 4-bit integers in 8 bits, wrapped.

An element's result depends on its operands' values only, not on size, layout or position (DESIGN, "The same bits"): no
function is selected by the number of elements, and of NumPy loops that give different bits (`forward`,
elementwise_float.power) only one is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from spmd import types as t
from spmd.backends.kernels import Call, Kernel
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op, Value
from spmd.support.arrays import Array, DType, bits_dtype
from spmd.support.rounding import narrowed, round_to, rounds_twice


def pointwise(op: Op, call: Call) -> Kernel:
    """Return the kernel of `op` that runs `call`; operands of the result's dtype and shape may be overwritten."""
    result = op.result.tensor
    reuses = tuple(
        index
        for index, operand in enumerate(op.operands)
        if operand.tensor.dtype == result.dtype and operand.tensor.shape == result.shape
    )
    if _may_differ(op, call):
        call = forward(call)
    return Kernel(call, accepts_out=True, reuses=reuses, pointwise=True)


#: NumPy's real functions whose loops all round correctly.
_CORRECTLY_ROUNDED: frozenset[Call] = frozenset(
    (
        *(np.absolute, np.add, np.ceil, np.divide, np.floor, np.fmod, np.multiply, np.negative, np.rint, np.sqrt),
        *(np.equal, np.greater, np.greater_equal, np.isfinite, np.less, np.less_equal, np.not_equal, np.subtract),
    )
)


def _may_differ(op: Op, call: Call) -> bool:
    """Return whether NumPy's loops for `call` may give different bits."""
    elements = [operand.tensor.element_type for operand in op.operands]
    plain = [element for element in elements if isinstance(element, t.ElementType)]
    if any(element.is_complex for element in plain):
        return True
    return any(element.is_float for element in plain) and call not in _CORRECTLY_ROUNDED


def forward(call: Call) -> Call:
    """Return `call` on arrays with nonnegative strides only.

    NumPy's vector loops support any stride except negative ones, for which it calls the C library, with different bits
    (complex products, exp, pow, ...). Complex scalars use yet other loops: they are passed as arrays of one element.
    """

    def run(*operands: Array, out: Array | None = None) -> Array:
        if operands[0].dtype.kind == "c" and not any(operand.ndim for operand in operands):
            result = call(*[np.reshape(operand, 1) for operand in operands]).reshape(())
            return result[()] if out is None else keep(result, out)
        for operand in operands:
            if operand.ndim and min(operand.strides) < 0:
                operands = tuple([x if not x.ndim or min(x.strides) >= 0 else x.copy() for x in operands])
                break
        if out is not None and out.ndim and min(out.strides) < 0:
            return keep(call(*operands), out)
        return call(*operands, out=out)

    return run


def element_of(value: Value) -> t.ElementType:
    """Return the element type of a tensor that is not quantized."""
    element = value.tensor.element_type
    assert isinstance(element, t.ElementType)
    return element


def unsupported(op: Op) -> CompileError:
    """Return the error for an op on an unsupported element type."""
    types = ", ".join(str(operand.type) for operand in op.operands)
    return CompileError(Diagnostic(op.location, f"is not defined on {types}", op.name))


def is_narrow_float(element: t.ElementType) -> bool:
    """Return whether the type has no NumPy arithmetic (all floats except f16, f32, f64)."""
    return element.is_float and element not in (t.F16, t.F32, t.F64)


def is_sub_byte(element: t.ElementType) -> bool:
    return element.is_integer and element.bits < 8


def is_sign_and_magnitude(element: t.ElementType) -> bool:
    """Return whether a float's bits are sign and magnitude, with NaNs largest, so that total order is the order of
    bits.

    Types of less than 8 bits, f8E8M0FNU (no sign) and FNUZ (-0 is the NaN) are not.
    """
    return element.bits >= 8 and not element.name.endswith(("FNU", "FNUZ"))


def wide_dtype(element: t.ElementType) -> DType:
    """Return the dtype in which a narrow type is computed."""
    if is_sub_byte(element):
        return np.dtype(np.int8 if element.is_signed else np.uint8)
    return np.dtype(np.float32)


def compute_dtype(element: t.ElementType) -> DType:
    """Return the dtype in which to compute on `element`: its own if NumPy is fast and exact, else a wider one."""
    narrow = (element.is_float and element.bits < 32) or is_sub_byte(element)
    return wide_dtype(element) if narrow else element.dtype


@cache
def all_values(dtype: DType) -> Array:
    """Return every value of a dtype of at most 16 bits, indexed by its bit pattern."""
    view = bits_dtype(dtype)
    return np.arange(2 ** (8 * dtype.itemsize), dtype=view).view(dtype)


def look_up(table: Array, index: Array, dtype: DType, out: Array | None = None) -> Array:
    """Return the entries of `table`, bits of `dtype`, at `index`, which must be in range."""
    return keep(table.take(index, mode="clip").view(dtype), out)


def pair_index(x: Array, y: Array) -> Array:
    """Return the index of pairs of bytes in a table of all pairs."""
    return (x.view(np.uint8).astype(np.uint16) << 8) | y.view(np.uint8)


@cache
def _widening_table(dtype: DType) -> Array:
    return all_values(dtype).astype(np.float32)


def widen(element: t.ElementType) -> Callable[[Array], Array]:
    """Return the exact conversion of a narrow type to its `wide_dtype`."""
    if element.is_float and element.dtype.itemsize == 1:
        table = _widening_table(element.dtype)
        return lambda x: look_up(table, x.view(np.uint8), table.dtype)
    wide = wide_dtype(element)
    return lambda x: x.astype(wide)


def write(result: Array, dtype: DType, out: Array | None) -> Array:
    """Return `result` rounded to `dtype`, in `out` if given."""
    if rounds_twice(result.dtype, dtype):
        return keep(round_to(result, dtype), out)
    if out is None:
        return result.astype(dtype)
    np.copyto(out, result, casting="unsafe")
    return out


def keep(result: Array, out: Array | None = None) -> Array:
    """Return `result`, of the right dtype, in `out` if given."""
    if out is None:
        return result
    np.copyto(out, result)
    return out


def widened(function: Call, element: t.ElementType, arity: int, result: t.ElementType | None = None) -> Call:
    """Return `function` on operands of a narrow type, computed in its wide type and rounded once to `result`.

    A boolean result needs no rounding: `function` writes it itself.
    """
    up = widen(element)
    dtype = (result or element).dtype
    if dtype == np.bool_:
        return lambda x, y, out=None: function(up(x), up(y), out=out)
    if arity == 1:
        return lambda x, out=None: write(function(up(x)), dtype, out)
    if arity == 2:
        return lambda x, y, out=None: write(function(up(x), up(y)), dtype, out)
    return lambda x, y, z, out=None: write(function(up(x), up(y), up(z)), dtype, out)


def widened_complex(function: Call) -> Call:
    """Return `function` of complex128 operands for complex64 ones: rounded once, without intermediate overflow."""

    def call(*operands: Array, out: Array | None = None) -> Array:
        return write(function(*[x.astype(np.complex128) for x in operands]), np.dtype(np.complex64), out)

    return call


@cache
def _table(function: Call, operand: DType, result: DType) -> Array:
    with np.errstate(all="ignore"):
        return narrowed(function(all_values(operand).astype(np.float64)), result)


@cache
def _pair_table(function: Call, operand: DType, result: DType) -> Array:
    values = all_values(operand).astype(np.float64)
    with np.errstate(all="ignore"):
        return narrowed(function(values[:, None], values[None, :]), result).ravel()


def tabulated(function: Call, element: t.ElementType, result: t.ElementType | None = None) -> Call:
    """Return `function` of one operand of at most 16 bits as a table lookup; `function` takes f64."""
    dtype = (result or element).dtype
    view = bits_dtype(element.dtype)
    table = _table(function, element.dtype, dtype).view(bits_dtype(dtype))
    return lambda x, out=None: look_up(table, x.view(view), dtype, out)


def tabulated_pairs(function: Call, element: t.ElementType) -> Call:
    """Return `function` of two operands of at most 8 bits as a lookup of pairs; `function` takes f64."""
    dtype = element.dtype
    table = _pair_table(function, dtype, dtype).view(np.uint8)
    return lambda x, y, out=None: look_up(table, pair_index(x, y), dtype, out)


def real_unary(function: Call, element: t.ElementType) -> Call:
    """Return `function` of one float operand, computed in the best way for its type."""
    return tabulated(function, element) if element.bits <= 16 else function


def real_binary(
    function: Call, element: t.ElementType, *, native_half: bool = False, approximate: bool = False
) -> Call:
    """Return `function` of two float operands; `native_half` if NumPy's own f16 loop rounds once.

    Functions that are `approximate` in f32 would be rounded twice to 16 bits.
    """
    if element.bits <= 8:
        return tabulated_pairs(function, element)
    if element.bits == 16 and approximate:
        return _in_double(function, element)
    if element is t.BF16 or (element is t.F16 and not native_half):
        return widened(function, element, 2)
    return function


def _in_double(function: Call, element: t.ElementType) -> Call:
    """Return `function` of two 16-bit operands, computed in f64 and rounded once."""
    dtype = element.dtype

    def call(x: Array, y: Array, out: Array | None = None) -> Array:
        return write(function(x.astype(np.float64), y.astype(np.float64)), dtype, out)

    return call
