"""Custom calls: built-in and registered targets.

Source: StableHLO specification, "custom_call", whose meaning is its target's own. Unknown targets are compile errors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spmd.analysis.custom_calls import HINTS, PYTHON_CALLBACK, call_attributes
from spmd.backends.custom_calls import target
from spmd.backends.kernels import KERNELS, TARGETS, Context, Kernel, Maker, kernel, make_kernel
from spmd.dialects.custom_call_targets import called_op, unknown_target
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op
from spmd.runtime.process import Process
from spmd.support.arrays import Array, Results
from spmd.types import BufferType, TensorType


@kernel("stablehlo.custom_call")
def custom_call(op: Op, context: Context) -> Kernel:
    name = op["call_target_name"]
    maker = TARGETS.get(name)
    if maker is None and name.startswith("mhlo."):
        maker = _as_op
    if maker is None:
        raise CompileError(Diagnostic(op.location, _unknown(op), op.name))
    indices = call_attributes(op).get("indices_of_shape_operands")
    if indices is not None:
        return _of_shapes(op, context, maker, [int(index) for index in indices])
    return _kernel(maker, op, context)


def _unknown(op: Op) -> str:
    name = op["call_target_name"]
    if name == PYTHON_CALLBACK:
        return (
            "a callback into Python runs only in the process that holds its function, which the program does not tell: "
            "give the JAX function itself to spmd.jax.jit"
        )
    return unknown_target(name)


def _kernel(maker: Maker, op: Op, context: Context) -> Kernel:
    product = maker(op, context)
    return product if isinstance(product, Kernel) else Kernel(product)


def _of_shapes(op: Op, context: Context, maker: Maker, indices: list[int]) -> Kernel:
    """Return a call whose operands at `indices` are its results' shapes, as in exports with symbolic shapes.

    Its target receives the other operands; kernels are cached by shapes. Source: JAX's mlir.custom_call,
    `result_shapes`.
    """
    if len(indices) != len(op.results) or not all(0 <= index < len(op.operands) for index in indices):
        message = f"indices_of_shape_operands = {indices} for {len(op.results)} results, {len(op.operands)} operands"
        raise CompileError(Diagnostic(op.location, message, op.name))
    others = [index for index in range(len(op.operands)) if index not in indices]
    kept: dict[tuple[tuple[int, ...], ...], Kernel] = {}

    def call(process: Process, *arrays: Array) -> Results:
        shapes = tuple(tuple(arrays[index].tolist()) for index in indices)
        if shapes not in kept:
            types = [value.tensor.with_shape(shape) for value, shape in zip(op.results, shapes, strict=True)]
            kept[shapes] = _kernel(maker, op.clone([op.operands[index] for index in others], types), context)
        results: Results = kept[shapes].run(process, *(arrays[index] for index in others))
        return results

    return Kernel(call, needs_process=True, aliases=tuple(others), owned=False)


# --- built-in targets ------------------------------------------------------------------------------------------------


@target(*HINTS)
def same(op: Op, context: Context) -> Kernel:
    """Return the operands of a placement hint unchanged."""
    for operand, result in zip(op.operands, op.results, strict=True):
        operand_type, result_type = operand.type, result.type
        if (
            isinstance(operand_type, TensorType)
            and isinstance(result_type, TensorType)
            and operand_type.shape != result_type.shape
        ):
            message = (
                f"{op['call_target_name']} makes {operand_type} {result_type}: the program has to be partitioned first"
            )
            raise CompileError(Diagnostic(op.location, message, op.name))
    call: Callable[..., Results] = (lambda value: value) if len(op.operands) == 1 else (lambda *values: values)
    return Kernel(call, aliases=tuple(range(len(op.operands))))


@target("CreateBuffer", "AllocateBuffer")
def create_buffer(op: Op, context: Context) -> Kernel:
    """Return an uninitialized buffer: zeros."""
    type = op.result.type
    assert isinstance(type, TensorType | BufferType)
    tensor = TensorType(type.shape, type.element_type)
    shape, dtype = tensor.static_shape, tensor.dtype
    return Kernel(lambda *_: np.zeros(shape, dtype))


def _as_op(op: Op, context: Context) -> Kernel:
    """Return the kernel of the op that older frontends wrote as a call `mhlo.<op>`, of CHLO or StableHLO."""
    called = called_op(op)
    if isinstance(called, Op) and called.name in KERNELS:
        return make_kernel(called, context)
    raise CompileError(Diagnostic(op.location, called if isinstance(called, str) else _unknown(op), op.name))
