"""Random numbers.

Source: XlaBuilder operation semantics, "RngNormal", "RngUniform", "RngBitGenerator"; "RngBernoulli" of the TensorFlow
compiler framework document.
"""

from __future__ import annotations

import numpy as np

from spmd import types as t
from spmd.builder import checks
from spmd.builder.builder import XlaBuilder
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation, operation_of
from spmd.builder.ops.source import array_shape_argument
from spmd.builder.options import RandomAlgorithm
from spmd.builder.shape import Shape
from spmd.builder.xla_op import OPERATIONS, XlaOp


def _rng(builder: XlaBuilder, distribution: str, one: tuple[str, XlaOp], two: tuple[str, XlaOp], shape: Shape) -> XlaOp:
    result_shape = array_shape_argument(shape)
    parameters = [checks.scalar(builder, operand, argument) for argument, operand in (one, two)]
    for (argument, _), value in zip((one, two), parameters, strict=True):
        if value.tensor.element_type is not result_shape.tensor.element_type:
            raise ArgumentError(
                argument, f"must have the element type of shape {result_shape.brief}, got {Shape.of(value.type).brief}"
            )
    sizes = builder.constant(np.array(result_shape.sizes, dtype=np.int64))
    attributes = {"rng_distribution": distribution}
    return builder.emit_one("stablehlo.rng", [*parameters, sizes], attributes, result_shape.tensor)


@operation_of('"RngNormal"')
def RngNormal(builder: XlaBuilder, mu: XlaOp, sigma: XlaOp, shape: Shape) -> XlaOp:
    """Return normally distributed numbers of mean `mu` and deviation `sigma`, scalars of `shape`'s float type."""
    result_shape = array_shape_argument(shape)
    if not result_shape.tensor.scalar_type.is_float:
        raise ArgumentError("shape", f"must be of a floating-point type, got {result_shape.brief}")
    return _rng(builder, "NORMAL", ("mu", mu), ("sigma", sigma), result_shape)


@operation_of('"RngUniform"')
def RngUniform(builder: XlaBuilder, a: XlaOp, b: XlaOp, shape: Shape) -> XlaOp:
    """Return numbers uniform over [a, b), scalars of `shape`'s type: PRED, integer or float."""
    result_shape = array_shape_argument(shape)
    if result_shape.tensor.scalar_type.is_complex:
        raise ArgumentError("shape", f"must be of PRED, an integer or a floating-point type, got {result_shape.brief}")
    return _rng(builder, "UNIFORM", ("a", a), ("b", b), result_shape)


@operation_of('"RngBernoulli"')
def RngBernoulli(builder: XlaBuilder, mean: XlaOp, shape: Shape) -> XlaOp:
    """Return 1 with probability `mean` (an F32 scalar), else 0, as U32."""
    result_shape = array_shape_argument(shape)
    if result_shape.tensor.element_type is not t.UI32:
        raise ArgumentError("shape", f"must have element type U32, got {result_shape.brief}")
    chance = checks.scalar(builder, mean, "mean")
    if chance.tensor.element_type is not t.F32:
        raise ArgumentError("mean", f"must be f32[], got {Shape.of(chance.type).brief}")
    zero, one = (XlaOp(builder, builder.constant(np.asarray(number, np.float32))) for number in (0, 1))
    drawn = OPERATIONS["RngUniform"](builder, zero, one, Shape.array_shape("f32", result_shape.sizes))
    hit = OPERATIONS["Lt"](builder, drawn, XlaOp(builder, chance))
    return OPERATIONS["ConvertElementType"](builder, hit, "u32")


@operation
def RngBitGenerator(builder: XlaBuilder, algorithm: RandomAlgorithm | str, initial_state: XlaOp, shape: Shape) -> XlaOp:
    """Return random bits: a tuple of the next state and an array of `shape`. Source: "RngBitGenerator".

    `algorithm`: RNG_DEFAULT, RNG_THREE_FRY (initial_state u64[2]) or RNG_PHILOX (u64[2] or u64[3]).
    """
    try:
        name = (algorithm if isinstance(algorithm, RandomAlgorithm) else RandomAlgorithm[algorithm]).value
    except KeyError:
        raise ArgumentError(
            "algorithm", f"must be one of {[a.name for a in RandomAlgorithm]}, got {algorithm!r}"
        ) from None
    state = checks.array(builder, initial_state, "initial_state")
    result_shape = array_shape_argument(shape)
    checks.kind(state, "initial_state", "of an integer type", "unsigned", "signed")
    allowed = {"THREE_FRY": [(2,)], "PHILOX": [(2,), (3,)]}.get(name, [checks.sizes(state)])
    if checks.sizes(state) not in allowed or (name != "DEFAULT" and state.tensor.element_type is not t.UI64):
        expected = " or ".join(f"u64[{size[0]}]" for size in allowed)
        raise ArgumentError("initial_state", f"must be {expected} for {name}, got {Shape.of(state.type).brief}")
    types = [state.type, result_shape.tensor]
    return builder.tuple(builder.emit("stablehlo.rng_bit_generator", [state], {"rng_algorithm": name}, types))
