"""Factorizations, Fourier transforms, normalization.

Source: XlaBuilder operation semantics, "Cholesky", "TriangularSolve", "Fft", "BatchNormGrad", "BatchNormInference",
"BatchNormTraining".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation
from spmd.builder.options import FftType, Transpose
from spmd.builder.shape import Shape
from spmd.builder.xla_op import XlaOp
from spmd.ir import AttributeValue, Value

_FLOATS = ("float", "complex")


def _matrices(builder: XlaBuilder, operand: object, argument: str) -> Value:
    value = checks.array(builder, operand, argument)
    checks.kind(value, argument, "of a floating-point or complex type", *_FLOATS)
    if value.tensor.rank < 2:
        raise ArgumentError(argument, f"must have at least rank 2, got {Shape.of(value.type).brief}")
    return value


def _square(value: Value, argument: str) -> None:
    if checks.sizes(value)[-1] != checks.sizes(value)[-2]:
        raise ArgumentError(argument, f"the last two dimensions must be equal, got {Shape.of(value.type).brief}")


@operation
def Cholesky(builder: XlaBuilder, a: XlaOp, lower: bool = True) -> XlaOp:
    """Return l with a = l l^H (lower), or u with a = u^H u, of positive definite matrices. Source: "Cholesky".

    Only that triangle of `a`, and of the result, is meaningful; leading dimensions are batch dimensions.
    """
    value = _matrices(builder, a, "a")
    _square(value, "a")
    return builder.emit_one("stablehlo.cholesky", [value], {"lower": bool(lower)})


@operation
def TriangularSolve(
    builder: XlaBuilder,
    a: XlaOp,
    b: XlaOp,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    transpose_a: Transpose | str = Transpose.NO_TRANSPOSE,
) -> XlaOp:
    """Return x with op(a) x = b (left_side) or x op(a) = b, where op(a) is a, its transpose or its conjugate transpose.

    `a` [..., M, M] is triangular; `b` [..., M, K] or [..., K, M]. Source: "TriangularSolve".
    """
    matrix, right = _matrices(builder, a, "a"), _matrices(builder, b, "b")
    _square(matrix, "a")
    checks.same_element_type(right, matrix, "b")
    side = checks.sizes(right)[-2 if left_side else -1]
    if checks.sizes(right)[:-2] != checks.sizes(matrix)[:-2] or side != checks.sizes(matrix)[-1]:
        raise ArgumentError(
            "b", f"batch dimensions and side must fit a {Shape.of(matrix.type).brief}, got {Shape.of(right.type).brief}"
        )
    try:
        form = Transpose(transpose_a).value
    except ValueError:
        raise ArgumentError(
            "transpose_a", f"must be one of {[e.value for e in Transpose]}, got {transpose_a!r}"
        ) from None
    attributes = {
        "left_side": bool(left_side),
        "lower": bool(lower),
        "unit_diagonal": bool(unit_diagonal),
        "transpose_a": form,
    }
    return builder.emit_one("stablehlo.triangular_solve", [matrix, right], attributes)


@operation
def Fft(builder: XlaBuilder, operand: XlaOp, fft_type: FftType | str, fft_length: Sequence[int]) -> XlaOp:
    """Return the Fourier transform over the innermost 1 to 3 axes, whose lengths in the time domain are `fft_length`.

    FFT and IFFT complex to complex, RFFT real to complex (innermost axis n // 2 + 1), IRFFT complex to real.
    Source: "Fft".
    """
    value = checks.array(builder, operand, "operand")
    try:
        kind = FftType(fft_type)
    except ValueError:
        raise ArgumentError("fft_type", f"must be one of {[e.value for e in FftType]}, got {fft_type!r}") from None
    real = kind is FftType.RFFT
    checks.kind(
        value,
        "operand",
        "of a real type for RFFT" if real else f"of a complex type for {kind.value}",
        _FLOATS[not real],
    )
    lengths = checks.integers(fft_length, "fft_length", least=0)
    if not 1 <= len(lengths) <= min(3, value.tensor.rank):
        raise ArgumentError("fft_length", f"must have 1 to {min(3, value.tensor.rank)} entries, got {list(lengths)}")
    axes = list(checks.sizes(value)[-len(lengths) :])
    expected = list(lengths)
    if kind is FftType.IRFFT:
        expected[-1] = lengths[-1] // 2 + 1 if lengths[-1] else axes[-1]
    if axes != expected:
        raise ArgumentError(
            "fft_length",
            f"{list(lengths)} needs innermost dimensions {expected}, operand is {Shape.of(value.type).brief}",
        )
    return builder.emit_one("stablehlo.fft", [value], {"fft_type": kind.value, "fft_length": lengths})


# --- batch normalization ---------------------------------------------------------------------------------------------


def _normalized(
    builder: XlaBuilder, operand: object, features: dict[str, AttributeValue], epsilon: float, feature_index: int
) -> tuple[list[Value], dict[str, AttributeValue]]:
    """Return the operand, the per-feature vectors, and the attributes."""
    value = checks.kind(checks.array(builder, operand, "operand"), "operand", "of a floating-point type", "float")
    number = checks.dimension(feature_index, value.tensor.rank, "feature_index")
    values = [value]
    for argument, feature in features.items():
        vector = checks.array(builder, feature, argument)
        checks.same_element_type(vector, value, argument)
        if checks.sizes(vector) != (checks.sizes(value)[number],):
            count = checks.sizes(value)[number]
            raise ArgumentError(argument, f"must be a vector of {count} features, got {Shape.of(vector.type).brief}")
        values.append(vector)
    return values, {"epsilon": float(np.float32(epsilon)), "feature_index": number}


@operation
def BatchNormTraining(
    builder: XlaBuilder, operand: XlaOp, scale: XlaOp, offset: XlaOp, epsilon: float, feature_index: int
) -> XlaOp:
    """Return `operand` normalized over all dimensions but the feature dimension: (output, batch_mean, batch_var).

    scale * (x - mean) / sqrt(var + epsilon) + offset; all vectors have one entry per feature. Source:
    "BatchNormTraining".
    """
    vectors = {"scale": scale, "offset": offset}
    values, attributes = _normalized(builder, operand, vectors, epsilon, feature_index)
    return builder.tuple(builder.emit("stablehlo.batch_norm_training", values, attributes))


@operation
def BatchNormInference(
    builder: XlaBuilder,
    operand: XlaOp,
    scale: XlaOp,
    offset: XlaOp,
    mean: XlaOp,
    variance: XlaOp,
    epsilon: float,
    feature_index: int,
) -> XlaOp:
    """Return BatchNormTraining's output for given `mean` and `variance`. Source: "BatchNormInference"."""
    vectors = {"scale": scale, "offset": offset, "mean": mean, "variance": variance}
    values, attributes = _normalized(builder, operand, vectors, epsilon, feature_index)
    return builder.emit_one("stablehlo.batch_norm_inference", values, attributes)


@operation
def BatchNormGrad(
    builder: XlaBuilder,
    operand: XlaOp,
    scale: XlaOp,
    mean: XlaOp,
    variance: XlaOp,
    grad_output: XlaOp,
    epsilon: float,
    feature_index: int,
) -> XlaOp:
    """Return the gradient of BatchNormTraining: a tuple (grad_operand, grad_scale, grad_offset). Source:
    "BatchNormGrad"."""
    vectors = {"scale": scale, "mean": mean, "variance": variance}
    values, attributes = _normalized(builder, operand, vectors, epsilon, feature_index)
    gradient = checks.array(builder, grad_output, "grad_output")
    if gradient.type != values[0].type:
        raise ArgumentError(
            "grad_output",
            f"must have the shape of operand {Shape.of(values[0].type).brief}, got {Shape.of(gradient.type).brief}",
        )
    return builder.tuple(builder.emit("stablehlo.batch_norm_grad", [*values, gradient], attributes))
