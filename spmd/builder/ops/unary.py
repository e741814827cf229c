"""Elementwise functions of one operand.

Source: XlaBuilder operation semantics, "Element-wise unary functions".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.operation import operation_named, operation_of
from spmd.builder.xla_op import XlaOp
from spmd.ir import Value


class _Kinds(NamedTuple):
    """Return the kinds of element type that an operand may have, and their name in errors."""

    text: str
    kinds: tuple[str, ...]


_FLOAT = _Kinds("a floating-point", ("float",))
_FLOAT_OR_COMPLEX = _Kinds("a floating-point or complex", ("float", "complex"))
_INTEGER = _Kinds("an integer", ("signed", "unsigned"))
_SIGNED_NUMBER = _Kinds("a signed integer, floating-point or complex", ("signed", "float", "complex"))
_NUMBER = _Kinds("a number", ("unsigned", "signed", "float", "complex"))
_BITS = _Kinds("PRED or integer", ("i1", "signed", "unsigned"))

_SECTION = '"Element-wise unary functions"'


def _operand(builder: XlaBuilder, operand: XlaOp, of: _Kinds) -> Value:
    return checks.kind(checks.array(builder, operand, "operand"), "operand", f"of {of.text} type", *of.kinds)


def _unary(name: str, op: str, of: _Kinds, doc: str, source: str = _SECTION) -> Callable[[XlaOp], XlaOp]:
    @operation_named(name, f"{doc} The operand has {of.text} type; the result has its shape.", source)
    def function(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
        return builder.emit_one(op if "." in op else f"stablehlo.{op}", [_operand(builder, operand, of)])

    return function


Abs = _unary("Abs", "abs", _SIGNED_NUMBER, "Return the absolute value; that of complex numbers is real.")
Cbrt = _unary("Cbrt", "cbrt", _FLOAT_OR_COMPLEX, "Return the cube root.")
Ceil = _unary("Ceil", "ceil", _FLOAT, "Return the least integer that is not less.")
Clz = _unary("Clz", "count_leading_zeros", _INTEGER, "Return the number of leading zero bits.")
Cos = _unary("Cos", "cosine", _FLOAT_OR_COMPLEX, "Return the cosine.")
Erf = _unary("Erf", "chlo.erf", _FLOAT, "Return the error function, 2/sqrt(pi) times the integral of exp(-t^2).")
Exp = _unary("Exp", "exponential", _FLOAT_OR_COMPLEX, "Return e to the power of the operand.")
Expm1 = _unary("Expm1", "exponential_minus_one", _FLOAT_OR_COMPLEX, "Return exp(x) - 1, accurate for small x.")
Floor = _unary("Floor", "floor", _FLOAT, "Return the largest integer that is not greater.")
IsFinite = _unary("IsFinite", "is_finite", _FLOAT, "Return PRED: neither infinite nor NaN.")
Log = _unary("Log", "log", _FLOAT_OR_COMPLEX, "Return the natural logarithm.")
Log1p = _unary("Log1p", "log_plus_one", _FLOAT_OR_COMPLEX, "Return log(1 + x), accurate for small x.")
Logistic = _unary("Logistic", "logistic", _FLOAT_OR_COMPLEX, "Return 1 / (1 + exp(-x)).")
Neg = _unary("Neg", "negate", _NUMBER, "Return the negation.")
Not = _unary("Not", "not", _BITS, "Return logical not of PRED, bitwise not of integers.")
PopulationCount = _unary("PopulationCount", "popcnt", _INTEGER, "Return the number of set bits.")
Round = _unary("Round", "round_nearest_afz", _FLOAT, "Return the nearest integer, ties away from zero.")
RoundNearestEven = _unary("RoundNearestEven", "round_nearest_even", _FLOAT, "Return the nearest integer, ties to even.")
Rsqrt = _unary("Rsqrt", "rsqrt", _FLOAT_OR_COMPLEX, "Return 1 / sqrt(x).")
Sign = _unary("Sign", "sign", _SIGNED_NUMBER, "Return -1, -0, +0 or 1 by the sign; NaN of NaN; x / |x| of complex x.")
Sin = _unary("Sin", "sine", _FLOAT_OR_COMPLEX, "Return the sine.")
Sqrt = _unary("Sqrt", "sqrt", _FLOAT_OR_COMPLEX, "Return the square root.")
Tan = _unary("Tan", "tan", _FLOAT_OR_COMPLEX, "Return the tangent.")
Tanh = _unary("Tanh", "tanh", _FLOAT_OR_COMPLEX, "Return the hyperbolic tangent.")


def _beyond(name: str, of: _Kinds, doc: str) -> Callable[[XlaOp], XlaOp]:
    """Declare a function that XLA has but the section lacks: CHLO's op of the same name (ErfInv: `chlo.erf_inv`)."""
    op = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return _unary(name, f"chlo.{op}", of, doc, "XLA's math operations")


Acos = _beyond("Acos", _FLOAT_OR_COMPLEX, "Return the arc cosine.")
Acosh = _beyond("Acosh", _FLOAT_OR_COMPLEX, "Return the inverse hyperbolic cosine.")
Asin = _beyond("Asin", _FLOAT_OR_COMPLEX, "Return the arc sine.")
Asinh = _beyond("Asinh", _FLOAT_OR_COMPLEX, "Return the inverse hyperbolic sine.")
Atan = _beyond("Atan", _FLOAT_OR_COMPLEX, "Return the arc tangent.")
Atanh = _beyond("Atanh", _FLOAT_OR_COMPLEX, "Return the inverse hyperbolic tangent.")
Cosh = _beyond("Cosh", _FLOAT_OR_COMPLEX, "Return the hyperbolic cosine.")
Sinh = _beyond("Sinh", _FLOAT_OR_COMPLEX, "Return the hyperbolic sine.")
Erfc = _beyond("Erfc", _FLOAT, "Return 1 - erf(x).")
ErfInv = _beyond("ErfInv", _FLOAT, "Return the inverse of the error function.")
Lgamma = _beyond("Lgamma", _FLOAT, "Return the logarithm of |gamma(x)|.")
Digamma = _beyond("Digamma", _FLOAT, "Return the derivative of lgamma.")


def _filled(builder: XlaBuilder, like: Value, number: float) -> Value:
    """Return a constant of the shape and element type of `like`."""
    one = np.array(number, like.tensor.dtype)
    return builder.constant(np.broadcast_to(one, checks.sizes(like)))


@operation_of(_SECTION)
def Real(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """Return the real part of complex numbers; floats as they are."""
    value = _operand(builder, operand, _FLOAT_OR_COMPLEX)
    if value.tensor.scalar_type.is_float:
        return XlaOp(builder, value)
    return builder.emit_one("stablehlo.real", [value])


@operation_of(_SECTION)
def Imag(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """Return the imaginary part of complex numbers; 0 for floats."""
    value = _operand(builder, operand, _FLOAT_OR_COMPLEX)
    if value.tensor.scalar_type.is_float:
        return XlaOp(builder, _filled(builder, value, 0))
    return builder.emit_one("stablehlo.imag", [value])


@operation_of("XLA's math operations")
def Square(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """Return the operand times itself."""
    value = checks.array(builder, operand, "operand")
    return builder.emit_one("stablehlo.multiply", [value, value])


@operation_of("XLA's math operations")
def Reciprocal(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """Return 1 / x of floating-point or complex numbers."""
    value = _operand(builder, operand, _FLOAT_OR_COMPLEX)
    return builder.emit_one("stablehlo.divide", [_filled(builder, value, 1), value])
