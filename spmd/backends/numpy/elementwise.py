"""Elementwise ops: the function of each op by kind of element type.

The tables map an op's name to its functions. How functions of f32 and f64 serve narrower types is defined in
spmd.backends.numpy.pointwise. Source: StableHLO specification, "Ops".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spmd import types as t
from spmd.backends.kernels import Call, Context, Kernel, kernel
from spmd.backends.numpy import elementwise_complex as on_complex
from spmd.backends.numpy import elementwise_float as on_float
from spmd.backends.numpy import elementwise_integer as on_integer
from spmd.backends.numpy.pointwise import (
    element_of,
    is_narrow_float,
    is_sign_and_magnitude,
    is_sub_byte,
    keep,
    look_up,
    pointwise,
    real_binary,
    real_unary,
    tabulated,
    unsupported,
    widened,
    widened_complex,
)
from spmd.backends.numpy.special import by_width, in_double, rounded
from spmd.ir import Op
from spmd.support.arrays import Array


@dataclass(frozen=True)
class ElementwiseKernels:
    """An elementwise function by kind of element type; None where the op does not admit the kind.

    Each takes the operands' arrays and `out=`, the array that the result may be written to, as NumPy's functions do.

    real           floats, taking f32 and f64
    native_half    NumPy's own f16 loop of `real` rounds once
    approximate    the f32 result is not the exact one rounded: of 16 bits it is computed in f64
    complex        complex128; complex64 in complex128, rounded once
    complex64      NumPy's own complex64 loop where it is exact enough
    widened_complex64  what serves complex64 values held in complex128 better than `complex`
    signed, unsigned, boolean   integers of 8 to 64 bits, and i1
    """

    real: Call | None = None
    complex: Call | None = None
    signed: Call | None = None
    unsigned: Call | None = None
    boolean: Call | None = None
    complex64: Call | None = None
    widened_complex64: Call | None = None
    native_half: bool = False
    approximate: bool = False

    def call(self, element: t.ElementType, arity: int) -> Call | None:
        """Return the function on `element`; None if it is not defined."""
        if element.is_float:
            if self.real is None:
                return None
            if arity == 1:
                return real_unary(self.real, element)
            return real_binary(self.real, element, native_half=self.native_half, approximate=self.approximate)
        if element is t.COMPLEX64:
            if self.complex64 is not None or self.complex is None:
                return self.complex64
            return widened_complex(self.widened_complex64 or self.complex)
        if element.is_complex:
            return self.complex
        if element.is_boolean:
            return self.boolean
        whole = self.signed if element.is_signed else self.unsigned
        return widened(whole, element, arity) if whole is not None and is_sub_byte(element) else whole


def _number(function: Call) -> ElementwiseKernels:
    """Return a ufunc that serves every type directly."""
    return ElementwiseKernels(function, function, function, function, function, function, native_half=True)


def _integer(function: Call, boolean: Call | None = None) -> ElementwiseKernels:
    return ElementwiseKernels(signed=function, unsigned=function, boolean=boolean)


def _single_in_double(function: Call) -> Call:
    """Return a function computed in f64 for f32, since NumPy's f32 loop is up to 3 ULP off, or no faster.

    CHLO's inverse functions are built from log, log_plus_one and atan2: with these rounded once, programs with the
    expansions give the reference interpreter's bits.
    """
    return by_width(rounded(function), function)


_cbrt_single = rounded(lambda x, dtype: on_float.cbrt(x.astype(dtype)))
_logistic_single = rounded(lambda x, dtype: on_float.logistic(x.astype(dtype)))

UNARY: dict[str, ElementwiseKernels] = {
    "stablehlo.abs": ElementwiseKernels(np.absolute, signed=np.absolute),
    "stablehlo.cbrt": ElementwiseKernels(by_width(_cbrt_single, on_float.cbrt), on_complex.cbrt),
    "stablehlo.ceil": ElementwiseKernels(np.ceil),
    "stablehlo.cosine": ElementwiseKernels(np.cos, np.cos),
    "stablehlo.exponential": ElementwiseKernels(_single_in_double(np.exp), np.exp),
    "stablehlo.exponential_minus_one": ElementwiseKernels(_single_in_double(np.expm1), on_complex.expm1),
    "stablehlo.floor": ElementwiseKernels(np.floor),
    "stablehlo.log": ElementwiseKernels(_single_in_double(np.log), np.log, widened_complex64=on_complex.log),
    "stablehlo.log_plus_one": ElementwiseKernels(_single_in_double(np.log1p), on_complex.log1p),
    "stablehlo.logistic": ElementwiseKernels(by_width(_logistic_single, on_float.logistic), on_complex.logistic),
    "stablehlo.negate": ElementwiseKernels(
        np.negative, np.negative, np.negative, np.negative, None, np.negative, native_half=True
    ),
    "stablehlo.not": _integer(np.invert, np.logical_not),
    "stablehlo.round_nearest_afz": ElementwiseKernels(on_float.round_half_away),
    "stablehlo.round_nearest_even": ElementwiseKernels(np.rint),
    "stablehlo.rsqrt": ElementwiseKernels(on_float.rsqrt, on_complex.rsqrt),
    "stablehlo.sign": ElementwiseKernels(on_float.sign, on_complex.sign, np.sign),
    "stablehlo.sine": ElementwiseKernels(np.sin, np.sin),
    "stablehlo.sqrt": ElementwiseKernels(np.sqrt, np.sqrt),
    "stablehlo.tan": ElementwiseKernels(_single_in_double(np.tan), np.tan),
    "stablehlo.tanh": ElementwiseKernels(_single_in_double(np.tanh), np.tanh),
}

BINARY: dict[str, ElementwiseKernels] = {
    "stablehlo.add": _number(np.add),
    "stablehlo.and": _integer(np.bitwise_and, np.logical_and),
    "stablehlo.atan2": ElementwiseKernels(_single_in_double(np.arctan2), on_complex.atan2, approximate=True),
    "stablehlo.divide": ElementwiseKernels(
        np.divide, on_complex.divide, on_integer.divide_signed, on_integer.divide_unsigned, native_half=True
    ),
    "stablehlo.maximum": ElementwiseKernels(
        on_float.maximum, np.maximum, np.maximum, np.maximum, np.logical_or, np.maximum
    ),
    "stablehlo.minimum": ElementwiseKernels(
        on_float.minimum, np.minimum, np.minimum, np.minimum, np.logical_and, np.minimum
    ),
    "stablehlo.multiply": _number(np.multiply),
    "stablehlo.or": _integer(np.bitwise_or, np.logical_or),
    "stablehlo.power": ElementwiseKernels(
        in_double(on_float.power), on_complex.power, on_integer.power_signed, np.power, approximate=True
    ),
    "stablehlo.remainder": ElementwiseKernels(
        np.fmod, on_complex.remainder, on_integer.remainder, on_integer.remainder, native_half=True
    ),
    "stablehlo.subtract": ElementwiseKernels(
        np.subtract, np.subtract, np.subtract, np.subtract, None, np.subtract, native_half=True
    ),
    "stablehlo.xor": _integer(np.bitwise_xor, np.logical_xor),
}

COMPARISONS: dict[str, np.ufunc] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


@kernel(*UNARY)
def unary(op: Op, context: Context) -> Kernel:
    element = element_of(op.operands[0])
    if element.is_complex and op.name == "stablehlo.abs":
        return pointwise(op, np.absolute)
    call = UNARY[op.name].call(element, 1)
    if call is None:
        raise unsupported(op)
    return pointwise(op, call)


@kernel(*BINARY)
def binary(op: Op, context: Context) -> Kernel:
    element = element_of(op.operands[0])
    call = BINARY[op.name].call(element, 2)
    if call is None:
        raise unsupported(op)
    return pointwise(op, call)


@kernel("stablehlo.shift_left", "stablehlo.shift_right_arithmetic", "stablehlo.shift_right_logical")
def shift(op: Op, context: Context) -> Kernel:
    """Shift by an unsigned amount; shifts past the width give zero, or the sign for an arithmetic one."""
    element = element_of(op.operands[0])
    if not element.is_integer:
        raise unsupported(op)
    function = np.left_shift if op.name == "stablehlo.shift_left" else np.right_shift
    signed = op.name == "stablehlo.shift_right_arithmetic"
    if is_sub_byte(element):
        return pointwise(op, _sub_byte_shift(function, element, signed=signed))
    if function is np.left_shift:
        return pointwise(op, np.left_shift)
    return pointwise(op, on_integer.shift_as(np.right_shift, element.dtype, signed=signed))


def _sub_byte_shift(function: Call, element: t.ElementType, *, signed: bool) -> Call:
    wide = np.dtype(np.int8 if signed else np.uint8)
    amount_mask = np.uint8(2**element.bits - 1)
    spare = wide.type(8 - element.bits)

    def call(x: Array, y: Array, out: Array | None = None) -> Array:
        amount = (y.astype(np.uint8) & amount_mask).astype(wide)
        # shift at the top of the byte, so that sign bits (or zeros) are shifted in
        top = np.left_shift(x.astype(wide), spare)
        shifted = function(top, amount) if function is np.left_shift else np.right_shift(top, amount)
        result = np.right_shift(shifted, spare).astype(element.dtype)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return call


@kernel("stablehlo.popcnt")
def popcnt(op: Op, context: Context) -> Kernel:
    element = element_of(op.operands[0])
    if is_sub_byte(element):
        return pointwise(op, _bit_table(np.bitwise_count, element))
    return pointwise(op, on_integer.population_count(element.dtype))


@kernel("stablehlo.count_leading_zeros")
def count_leading_zeros(op: Op, context: Context) -> Kernel:
    element = element_of(op.operands[0])
    if is_sub_byte(element):
        zeros = on_integer.leading_zeros(np.dtype(np.uint8))
        return pointwise(op, _bit_table(lambda x: zeros(x) - (8 - element.bits), element))
    return pointwise(op, on_integer.leading_zeros(element.dtype))


def _bit_table(function: Call, element: t.ElementType) -> Call:
    """Return `function` of the bit pattern of a 2- or 4-bit integer, as a table."""
    mask = np.uint8(2**element.bits - 1)
    table = function(np.arange(2**element.bits, dtype=np.uint8)).astype(np.int8).astype(element.dtype).view(np.uint8)
    return lambda x, out=None: look_up(table, x.view(np.uint8) & mask, element.dtype, out)


@kernel("stablehlo.is_finite")
def is_finite(op: Op, context: Context) -> Kernel:
    element = element_of(op.operands[0])
    if element.bits <= 16:
        return pointwise(op, tabulated(np.isfinite, element, t.I1))
    return pointwise(op, np.isfinite)


@kernel("stablehlo.compare")
def compare(op: Op, context: Context) -> Kernel:
    """Compare: FLOAT as in IEEE 754, TOTALORDER in its total order; SIGNED and UNSIGNED follow the element type."""
    element = element_of(op.operands[0])
    function = COMPARISONS[op["comparison_direction"]]
    if element.is_float and op["compare_type"] == "TOTALORDER":
        return pointwise(op, _total_order(function, element))
    return pointwise(op, comparison(function, element))


def _is_narrow(element: t.ElementType) -> bool:
    """Return whether a wider type compares faster (f16's own loops branch)."""
    return is_narrow_float(element) or is_sub_byte(element) or element is t.F16


def comparison(function: np.ufunc, element: t.ElementType) -> Call:
    """Return `function` (np.less, ...) on operands of `element`."""
    if _is_narrow(element):
        return widened(function, element, 2, t.I1)
    return function


def _total_order(function: np.ufunc, element: t.ElementType) -> Call:
    if not is_sign_and_magnitude(element):
        return widened(_total_order(function, t.F32), element, 2, t.I1)
    signed = np.dtype(f"i{element.dtype.itemsize}")
    sign_shift, low_bits = signed.type(8 * signed.itemsize - 1), np.iinfo(signed).max

    def key(x: Array) -> Array:
        bits = x.view(signed)
        ordered: Array = bits ^ ((bits >> sign_shift) & low_bits)
        return ordered

    return lambda x, y, out=None: function(key(x), key(y), out=out)


@kernel("stablehlo.clamp")
def clamp(op: Op, context: Context) -> Kernel:
    """Return minimum(maximum(operand, min), max)."""
    element = element_of(op.operands[1])
    function = on_float.clamp_floats if element.is_float else on_float.clamp
    return pointwise(op, widened(function, element, 3) if _is_narrow(element) else function)


@kernel("stablehlo.complex")
def complex_(op: Op, context: Context) -> Kernel:
    dtype = op.result.tensor.dtype

    def call(real: Array, imaginary: Array, out: Array | None = None) -> Array:
        if out is None:
            out = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), dtype)
        out.real = real
        out.imag = imaginary
        return out

    return pointwise(op, call)


@kernel("stablehlo.real")
def real(op: Op, context: Context) -> Kernel:
    """Return the real part, as a view; a real number is its own."""
    if not element_of(op.operands[0]).is_complex:
        return Kernel(keep, accepts_out=True, aliases=(0,), pointwise=True)
    return Kernel(lambda x, out=None: keep(x.real, out), accepts_out=True, aliases=(0,), pointwise=True)


@kernel("stablehlo.imag")
def imag(op: Op, context: Context) -> Kernel:
    """Return the imaginary part, as a view; zero for a real number."""
    if not element_of(op.operands[0]).is_complex:
        return pointwise(op, lambda x, out=None: keep(np.zeros(x.shape, x.dtype), out))
    return Kernel(lambda x, out=None: keep(x.imag, out), accepts_out=True, aliases=(0,), pointwise=True)
