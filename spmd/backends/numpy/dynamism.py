"""Ops whose result shape is an operand: StableHLO specification, "dynamic_broadcast_in_dim" and others.

One kernel serves all shapes.
"""

from __future__ import annotations

import numpy as np

from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.data_movement import broadcaster, iota_array, padder, view
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import Op
from spmd.support.arrays import Array


def sizes_of(shape: Array) -> tuple[int, ...]:
    """Return a shape given as a one-dimensional integer array."""
    return tuple(np.asarray(shape).reshape(-1).tolist())


def _failure(op: Op, message: str) -> ExecutionError:
    return ExecutionError(Diagnostic(op.location, message, op.name))


@kernel("stablehlo.dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(op: Op, context: Context) -> Kernel:
    dimensions = op["broadcast_dimensions"]

    def call(operand: Array, shape: Array) -> Array:
        sizes = sizes_of(shape)
        for axis, (size, dimension) in enumerate(zip(operand.shape, dimensions, strict=True)):
            if size not in (1, sizes[dimension]):
                message = f"dimension {axis} of size {size} does not broadcast to dimension {dimension} of {sizes}"
                raise _failure(op, message)
        return broadcaster(operand.shape, dimensions, sizes)(operand)

    return view(call)


@kernel("stablehlo.dynamic_reshape")
def dynamic_reshape(op: Op, context: Context) -> Kernel:
    def call(operand: Array, shape: Array) -> Array:
        sizes = sizes_of(shape)
        if int(np.prod(sizes, dtype=np.int64)) != operand.size or min(sizes, default=0) < 0:
            raise _failure(op, f"an operand of shape {operand.shape} has no shape {sizes}")
        return operand.reshape(sizes)

    return view(call)


@kernel("stablehlo.dynamic_iota")
def dynamic_iota(op: Op, context: Context) -> Kernel:
    type, dimension = op.result.tensor, op["iota_dimension"]
    return Kernel(lambda shape: iota_array(type, dimension, sizes_of(shape)), owned=False)


@kernel("stablehlo.dynamic_pad")
def dynamic_pad(op: Op, context: Context) -> Kernel:
    def call(operand: Array, value: Array, low: Array, high: Array, interior: Array) -> Array:
        if min(sizes_of(interior), default=0) < 0:
            raise _failure(op, f"(C3) 0 <= interior_padding, got {sizes_of(interior)}")
        padded: Array = padder(operand.shape, sizes_of(low), sizes_of(high), sizes_of(interior)).call(operand, value)
        return padded

    return Kernel(call)


@kernel("stablehlo.real_dynamic_slice")
def real_dynamic_slice(op: Op, context: Context) -> Kernel:
    def call(operand: Array, starts: Array, limits: Array, strides: Array) -> Array:
        bounds = list(zip(sizes_of(starts), sizes_of(limits), sizes_of(strides), strict=True))
        for axis, ((start, limit, stride), size) in enumerate(zip(bounds, operand.shape, strict=True)):
            if not 0 <= start <= limit <= size or stride < 1:
                message = f"[{start}:{limit}:{stride}] is no slice of dimension {axis} of size {size}"
                raise _failure(op, message)
        part: Array = operand[tuple(slice(*bound) for bound in bounds)]
        return part

    return view(call)
