"""Custom calls of programs exported with symbolic shapes: shape assertions, and ops with dynamic parameters.

Source: JAX's export with shape polymorphism, StableHLO's experimental dynamic ops (which it writes as calls).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spmd.analysis.custom_calls import call_attributes
from spmd.backends.custom_calls import target
from spmd.backends.kernels import Context, Kernel, make_kernel
from spmd.backends.numpy.sort import first_in_order
from spmd.dialects.faults import run_time_faults
from spmd.dialects.make import make_op
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import AttributeValue, Block, Op, Region, copy_block
from spmd.support.arrays import Array, Results
from spmd.types import TensorType


@target("shape_assertion")
def shape_assertion(op: Op, context: Context) -> Kernel:
    """Fail with `error_message`, in which {0}, {1}, ... are replaced by the operands after the asserted one."""
    message = str(call_attributes(op).get("error_message", "a shape assertion does not hold"))

    def call(holds: Array, *values: Array) -> tuple[()]:
        if not holds:
            text = message
            for index, value in enumerate(values):
                text = text.replace(f"{{{index}}}", str(int(value)))
            raise ExecutionError(Diagnostic(op.location, text, op.name))
        return ()

    return Kernel(call)


@target("stablehlo.dynamic_reduce_window")
def dynamic_reduce_window(op: Op, context: Context) -> Kernel:
    """Return reduce_window; its parameters are the last five operands: dimensions, strides, both dilations, padding."""
    count = len(op.results)
    body = context.lookup(op["called_computations"][0], op).body
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")

    def kernel_of(*parameters: Array) -> Callable[..., Results]:
        attributes: dict[str, AttributeValue] = {
            name: tuple(np.asarray(value).tolist()) for name, value in zip(names, parameters, strict=False)
        }
        attributes["padding"] = np.asarray(parameters[4], np.int64)
        regions = [Region([_computation(body)])]
        operands = op.operands[: 2 * count]
        static = make_op(
            "stablehlo.reduce_window", operands, op.result_types, attributes, regions, location=op.location
        )
        return _sound_kernel(static, context).call

    return _by_parameters(kernel_of, 2 * count, aliases=tuple(range(2 * count)))


def _computation(body: Block) -> Block:
    """Return the body of a function as a region's block."""
    block = copy_block(body, {})
    block.ops[-1] = make_op("stablehlo.return", block.ops[-1].operands, (), location=block.ops[-1].location)
    return block


@target("stablehlo.dynamic_top_k")
def dynamic_top_k(op: Op, context: Context) -> Kernel:
    """Return chlo.top_k with k as the second operand."""

    def kernel_of(k: Array) -> Callable[..., Results]:
        types = [
            value.tensor.with_shape((*op.operands[0].tensor.shape[:-1], int(k)))
            for value in op.results
            if isinstance(value.type, TensorType)
        ]
        static = make_op("chlo.top_k", op.operands[:1], types, {"k": int(k)}, location=op.location)
        return _sound_kernel(static, context).call

    return _by_parameters(kernel_of, 1)


@target("stablehlo.dynamic_approx_top_k")
def dynamic_approx_top_k(op: Op, context: Context) -> Kernel:
    """Return ApproxTopK with k as the operand after the initial values."""
    return _by_parameters(lambda k: first_in_order(op, context, int(k)), 2 * len(op.results))


@target("stablehlo.dynamic_rng_bit_generator")
def dynamic_rng_bit_generator(op: Op, context: Context) -> Kernel:
    """Return rng_bit_generator with the output shape as the second operand."""
    algorithm = call_attributes(op)["rng_algorithm"]

    def kernel_of(shape: Array) -> Callable[..., Results]:
        state, output = (value.tensor for value in op.results)
        types = [state, output.with_shape(tuple(shape.tolist()))]
        attributes = {"rng_algorithm": algorithm}
        static = make_op("stablehlo.rng_bit_generator", op.operands[:1], types, attributes, location=op.location)
        return _sound_kernel(static, context).call

    return _by_parameters(kernel_of, 1)


def _sound_kernel(static: Op, context: Context) -> Kernel:
    """Return the kernel of `static`; ExecutionError if it violates a constraint of its declaration."""
    assert static.definition is not None
    for label, fault in run_time_faults(static, static.definition):
        raise ExecutionError(Diagnostic(static.location, fault, static.name, label))
    return make_kernel(static, context)


def _by_parameters(
    kernel_of: Callable[..., Callable[..., Results]], count: int, aliases: tuple[int, ...] = ()
) -> Kernel:
    """Return a kernel whose operands after the first `count` are parameters; kernels are cached by them."""
    kept: dict[tuple[bytes, ...], Callable[..., Results]] = {}

    def call(*arrays: Array) -> Results:
        parameters = arrays[count:]
        key = tuple(np.asarray(value).tobytes() for value in parameters)
        if key not in kept:
            kept[key] = kernel_of(*parameters)
        return kept[key](*arrays[:count])

    return Kernel(call, aliases=aliases)
