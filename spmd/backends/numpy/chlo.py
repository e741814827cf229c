"""Kernels of CHLO's elementwise ops: special and inverse functions, predicates, next_after, mulhi, constants."""

from __future__ import annotations

import numpy as np

from spmd import types as t
from spmd.backends.kernels import Call, Context, Kernel, kernel
from spmd.backends.numpy import elementwise_complex as on_complex
from spmd.backends.numpy import special
from spmd.backends.numpy.elementwise import ElementwiseKernels
from spmd.backends.numpy.elementwise_integer import high_product
from spmd.backends.numpy.pointwise import (
    element_of,
    is_sub_byte,
    keep,
    pointwise,
    tabulated,
    unsupported,
    widened,
)
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op
from spmd.ir.attributes import ArrayAttr, Attribute, BoolAttr, DenseAttr, FloatAttr, IntegerAttr
from spmd.support.arrays import Array


def _inverse(function: Call) -> ElementwiseKernels:
    return ElementwiseKernels(special.by_width(special.rounded(function), function), function)


def _square(x: Array, out: Array | None = None) -> Array:
    return np.multiply(x, x, out=out)


UNARY: dict[str, ElementwiseKernels] = {
    "chlo.acos": _inverse(np.arccos),
    "chlo.acosh": _inverse(np.arccosh),
    "chlo.asin": _inverse(np.arcsin),
    "chlo.asinh": _inverse(np.arcsinh),
    "chlo.atan": _inverse(np.arctan),
    "chlo.atanh": _inverse(np.arctanh),
    "chlo.bessel_i1e": ElementwiseKernels(special.in_double(special.bessel_i1e)),
    "chlo.conj": ElementwiseKernels(keep, np.conjugate, complex64=np.conjugate),
    "chlo.cosh": ElementwiseKernels(special.cosh, np.cosh),
    "chlo.digamma": ElementwiseKernels(special.in_double(special.digamma)),
    "chlo.erf": ElementwiseKernels(special.erf),
    "chlo.erf_inv": ElementwiseKernels(special.erf_inv),
    "chlo.erfc": ElementwiseKernels(special.erfc),
    "chlo.lgamma": ElementwiseKernels(special.in_double(special.lgamma)),
    "chlo.sinh": ElementwiseKernels(special.sinh, np.sinh),
    "chlo.square": ElementwiseKernels(_square, on_complex.square, complex64=on_complex.square),
    "chlo.tan": ElementwiseKernels(special.by_width(special.rounded(np.tan), np.tan), np.tan),
    "chlo._asin_acos_kernel": ElementwiseKernels(complex=on_complex.asin_acos_kernel),
}

BINARY: dict[str, ElementwiseKernels] = {
    "chlo.polygamma": ElementwiseKernels(special.in_double(special.polygamma), approximate=True),
    "chlo.zeta": ElementwiseKernels(special.in_double(special.zeta), approximate=True),
}

PREDICATES: dict[str, Call] = {
    "chlo.is_inf": np.isinf,
    "chlo.is_neg_inf": lambda x, out=None: np.equal(x, -np.inf, out=out),
    "chlo.is_pos_inf": lambda x, out=None: np.equal(x, np.inf, out=out),
}


_FUNCTIONS = {**UNARY, **BINARY}


@kernel(*_FUNCTIONS)
def elementwise(op: Op, context: Context) -> Kernel:
    call = _FUNCTIONS[op.name].call(element_of(op.operands[0]), len(op.operands))
    if call is None:
        raise unsupported(op)
    return pointwise(op, call)


@kernel(*PREDICATES)
def predicate(op: Op, context: Context) -> Kernel:
    element, function = element_of(op.operands[0]), PREDICATES[op.name]
    return pointwise(op, tabulated(function, element, t.I1) if element.bits <= 16 else function)


@kernel("chlo.next_after")
def next_after(op: Op, context: Context) -> Kernel:
    """Return the next number after x towards y; y if they are equal, NaN if either is."""
    if element_of(op.operands[0]) is t.F16:  # np.nextafter on f16 returns x, the other zero, for equal zeros
        return pointwise(op, _next_after_half)
    return pointwise(op, np.nextafter)


def _next_after_half(x: Array, y: Array, out: Array | None = None) -> Array:
    return keep(np.where(x == y, y, np.nextafter(x, y)), out)


@kernel("chlo.mulhi")
def mulhi(op: Op, context: Context) -> Kernel:
    """Return the upper half of the full product of two integers."""
    element = element_of(op.operands[0])
    if not is_sub_byte(element):
        return pointwise(op, high_product(element.dtype))
    width = element.bits
    return pointwise(op, widened(lambda x, y: (x * y) >> width, element, 2))


@kernel("chlo.constant")
def constant(op: Op, context: Context) -> Kernel:
    array = np.asarray(op["value"].array)
    return Kernel(lambda: array, owned=False)


@kernel("chlo.constant_like")
def constant_like(op: Op, context: Context) -> Kernel:
    """Return one value in the operand's shape."""
    value = np.array(_number(op["value"], op)).astype(op.result.tensor.dtype)

    def call(x: Array, out: Array | None = None) -> Array:
        if out is None:
            return np.full(x.shape, value)
        out[...] = value
        return out

    return Kernel(call, accepts_out=True, pointwise=True)


def _number(attribute: Attribute, op: Op) -> complex:
    """Return the Python number of a constant attribute; a complex one is an array of two."""
    if isinstance(attribute, (IntegerAttr, BoolAttr, FloatAttr)):
        return attribute.value
    if isinstance(attribute, DenseAttr) and attribute.array.size == 1:
        return complex(attribute.array.item())
    if isinstance(attribute, ArrayAttr) and len(attribute.elements) == 2:
        return complex(*(_number(element, op) for element in attribute.elements))
    raise CompileError(Diagnostic(op.location, "value must be a number", op.name))
