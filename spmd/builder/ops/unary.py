"""Functions of one operand, element by element.

Source: XlaBuilder operation semantics, "Element-wise unary functions".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.operation import operation_named, operation_of
from spmd.builder.xla_op import XlaOp
from spmd.ir import Value

_NUMBERS = ("signed", "float", "complex")
_FLOATS = ("float", "complex")

_SECTION = '"Element-wise unary functions"'


def _unary(
    name: str, op: str, text: str, kinds: tuple[str, ...], doc: str, source: str = _SECTION
) -> Callable[[XlaOp], XlaOp]:
    @operation_named(name, f"{doc} The operand is of {text} type; the result has its shape.", source)
    def function(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
        value = checks.kind(checks.array(builder, operand, "operand"), "operand", f"of {text} type", *kinds)
        return builder.emit_one(op if "." in op else f"stablehlo.{op}", [value])

    return function


_ANY_FLOAT = "a floating-point or complex"
_REAL_FLOAT = "a floating-point"
_ANY_NUMBER = "a signed integer, floating-point or complex"

Abs = _unary("Abs", "abs", _ANY_NUMBER, _NUMBERS, "The absolute value; that of complex numbers is real.")
Cbrt = _unary("Cbrt", "cbrt", _ANY_FLOAT, _FLOATS, "The cube root.")
Ceil = _unary("Ceil", "ceil", _REAL_FLOAT, ("float",), "The least integer that is not less.")
Clz = _unary("Clz", "count_leading_zeros", "an integer", ("signed", "unsigned"), "How many leading bits are zero.")
Cos = _unary("Cos", "cosine", _ANY_FLOAT, _FLOATS, "The cosine.")
Erf = _unary(
    "Erf", "chlo.erf", _REAL_FLOAT, ("float",), "The error function, 2/sqrt(pi) times the integral of exp(-t^2)."
)
Exp = _unary("Exp", "exponential", _ANY_FLOAT, _FLOATS, "e to the power of the operand.")
Expm1 = _unary("Expm1", "exponential_minus_one", _ANY_FLOAT, _FLOATS, "exp(x) - 1, exact for small x.")
Floor = _unary("Floor", "floor", _REAL_FLOAT, ("float",), "The largest integer that is not greater.")
IsFinite = _unary("IsFinite", "is_finite", _REAL_FLOAT, ("float",), "PRED: neither infinite nor NaN.")
Log = _unary("Log", "log", _ANY_FLOAT, _FLOATS, "The natural logarithm.")
Log1p = _unary("Log1p", "log_plus_one", _ANY_FLOAT, _FLOATS, "log(1 + x), exact for small x.")
Logistic = _unary("Logistic", "logistic", _ANY_FLOAT, _FLOATS, "1 / (1 + exp(-x)).")
Neg = _unary("Neg", "negate", "a number", ("unsigned", *_NUMBERS), "The negative.")
Not = _unary(
    "Not", "not", "PRED or integer", ("i1", "signed", "unsigned"), "Logical not of PRED, bitwise not of integers."
)
PopulationCount = _unary("PopulationCount", "popcnt", "an integer", ("signed", "unsigned"), "How many bits are set.")
Round = _unary("Round", "round_nearest_afz", _REAL_FLOAT, ("float",), "The nearest integer, ties away from zero.")
RoundNearestEven = _unary(
    "RoundNearestEven", "round_nearest_even", _REAL_FLOAT, ("float",), "The nearest integer, ties to even."
)
Rsqrt = _unary("Rsqrt", "rsqrt", _ANY_FLOAT, _FLOATS, "1 / sqrt(x).")
Sign = _unary("Sign", "sign", _ANY_NUMBER, _NUMBERS, "-1, -0, +0 or 1 by the sign; NaN of NaN; x / |x| of complex x.")
Sin = _unary("Sin", "sine", _ANY_FLOAT, _FLOATS, "The sine.")
Sqrt = _unary("Sqrt", "sqrt", _ANY_FLOAT, _FLOATS, "The square root.")
Tan = _unary("Tan", "tan", _ANY_FLOAT, _FLOATS, "The tangent.")
Tanh = _unary("Tanh", "tanh", _ANY_FLOAT, _FLOATS, "The hyperbolic tangent.")


def _beyond(name: str, op: str, text: str, kinds: tuple[str, ...], doc: str) -> Callable[[XlaOp], XlaOp]:
    """A function that XLA has beyond the section."""
    return _unary(name, op, text, kinds, doc, "XLA's math operations")


Acos = _beyond("Acos", "chlo.acos", _ANY_FLOAT, _FLOATS, "The arc cosine.")
Acosh = _beyond("Acosh", "chlo.acosh", _ANY_FLOAT, _FLOATS, "The inverse hyperbolic cosine.")
Asin = _beyond("Asin", "chlo.asin", _ANY_FLOAT, _FLOATS, "The arc sine.")
Asinh = _beyond("Asinh", "chlo.asinh", _ANY_FLOAT, _FLOATS, "The inverse hyperbolic sine.")
Atan = _beyond("Atan", "chlo.atan", _ANY_FLOAT, _FLOATS, "The arc tangent.")
Atanh = _beyond("Atanh", "chlo.atanh", _ANY_FLOAT, _FLOATS, "The inverse hyperbolic tangent.")
Cosh = _beyond("Cosh", "chlo.cosh", _ANY_FLOAT, _FLOATS, "The hyperbolic cosine.")
Sinh = _beyond("Sinh", "chlo.sinh", _ANY_FLOAT, _FLOATS, "The hyperbolic sine.")
Erfc = _beyond("Erfc", "chlo.erfc", _REAL_FLOAT, ("float",), "1 - erf(x).")
ErfInv = _beyond("ErfInv", "chlo.erf_inv", _REAL_FLOAT, ("float",), "The inverse of the error function.")
Lgamma = _beyond("Lgamma", "chlo.lgamma", _REAL_FLOAT, ("float",), "The logarithm of |gamma(x)|.")
Digamma = _beyond("Digamma", "chlo.digamma", _REAL_FLOAT, ("float",), "The derivative of lgamma.")


def _real_or_complex(builder: XlaBuilder, operand: XlaOp) -> Value:
    return checks.kind(checks.array(builder, operand, "operand"), "operand", f"of {_ANY_FLOAT} type", *_FLOATS)


def _filled(builder: XlaBuilder, like: Value, number: float) -> Value:
    """A constant of the shape and element type of `like`."""
    one = np.array(number, like.tensor.dtype)
    return builder.constant(np.broadcast_to(one, like.tensor.static_shape))


@operation_of(_SECTION)
def Real(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """The real part of complex numbers; floats as they are."""
    value = _real_or_complex(builder, operand)
    if value.tensor.scalar_type.is_float:
        return XlaOp(builder, value)
    return builder.emit_one("stablehlo.real", [value])


@operation_of(_SECTION)
def Imag(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """The imaginary part of complex numbers; 0 for floats."""
    value = _real_or_complex(builder, operand)
    if value.tensor.scalar_type.is_float:
        return XlaOp(builder, _filled(builder, value, 0))
    return builder.emit_one("stablehlo.imag", [value])


@operation_of("XLA's math operations")
def Square(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """The operand times itself."""
    value = checks.array(builder, operand, "operand")
    return builder.emit_one("stablehlo.multiply", [value, value])


@operation_of("XLA's math operations")
def Reciprocal(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """1 / x of floating-point or complex numbers."""
    value = _real_or_complex(builder, operand)
    return builder.emit_one("stablehlo.divide", [_filled(builder, value, 1), value])
