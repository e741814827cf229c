"""Ops with dynamic types, specialized to run-time shapes.

The kernel of an op with dynamic operand or result types is made at run time: the op is rebuilt with the actual operand
shapes, result types are inferred, and the kernel is cached by shapes. Source: StableHLO's docs on dynamism: shape
refinement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spmd.backends.kernels import Context, Kernel, make_kernel
from spmd.compiler.pipeline.bounded import bounded_kernel
from spmd.dialects.bounded import is_bounded, takes_bounded
from spmd.dialects.core import InferenceError, Trait, has_trait
from spmd.dialects.faults import run_time_faults
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import NumberedValue, Op, Value
from spmd.support.arrays import Results
from spmd.types import TensorType, Type


def is_dynamic(type: Type) -> bool:
    """Return whether `type` is a tensor type with an unknown dimension."""
    return isinstance(type, TensorType) and not type.is_static


def needs_specialization(op: Op) -> bool:
    """Return whether the kernel of `op` depends on run-time shapes.

    Ops with regions do not: their inner ops are specialized separately, and the types of block arguments would have to
    change with the operands'. Nor does set_dimension_size, which pads to the bound in the declared type.
    """
    if op.name == "stablehlo.set_dimension_size":
        return False
    if op.regions and any(block.ops for region in op.regions for block in region.blocks) and _region_is_program(op):
        return False
    return any(is_dynamic(value.type) for value in (*op.operands, *op.results))


def _region_is_program(op: Op) -> bool:
    """Return whether the regions of `op` are executed as blocks (while, case), not per element (reduce)."""
    return has_trait(op, Trait.RUNS_REGIONS)


def specializing_kernel(op: Op, context: Context) -> Kernel:
    """Return a kernel that caches a specialized kernel per combination of operand shapes."""
    if takes_bounded(op):
        return bounded_kernel(op, context)
    kernels: dict[tuple[tuple[int, ...] | None, ...], Kernel] = {}
    operand_count = len(op.operands)

    def call(process: object, *values: Results) -> Any:
        key = tuple(getattr(value, "shape", None) for value in values[:operand_count])
        kernel = kernels.get(key)
        if kernel is None:
            refined = _refined(op, key)
            _check(refined)
            kernel = kernels[key] = make_kernel(refined, context)
        return kernel.run(process, *values)

    # A specialized kernel may return views of any operand.
    return Kernel(call, needs_process=True, aliases=tuple(range(operand_count)))


def _check(refined: Op) -> None:
    """Raise ExecutionError if `refined`, with its run-time shapes, violates a constraint of its declaration."""
    fault = None if refined.definition is None else next(run_time_faults(refined, refined.definition), None)
    if fault is not None:
        label, text = fault
        raise ExecutionError(Diagnostic(refined.location, text, refined.name, label))


def _refined(op: Op, shapes: tuple[tuple[int, ...] | None, ...]) -> Op:
    """Return `op` on operands of the given shapes."""
    operands = [
        NumberedValue(_with_shape(value.type, shape), value.owner, value.index, value.name_hint)
        for value, shape in zip(op.operands, shapes, strict=True)
    ]
    return with_operands(op, operands)


def with_operands(op: Op, operands: Sequence[Value]) -> Op:
    """Return `op` on other operands, with result types inferred where they follow from the operands.

    They do not for bounded operands, whose sizes are dynamic.
    """
    refined = op.clone(operands)
    if any(is_bounded(value.type) for value in operands):
        return refined
    # Regions capture by identity, and scalar regions do not depend on operand shapes.
    inference: Callable[[Op], list[Type]] | None = op.definition.inference if op.definition else None
    if inference is None:
        if op.name == "stablehlo.bitcast_convert" or has_trait(op, Trait.ELEMENTWISE):
            return op.clone(operands, result_types=[_leading(op.results[0].type, operands[0].type)])
        return refined
    bare = op.clone(operands, result_types=[])
    try:
        inferred = inference(bare)
    except InferenceError:
        return refined
    types = [_merge(declared.type, inferred_type) for declared, inferred_type in zip(op.results, inferred, strict=True)]
    return op.clone(operands, result_types=types)


def _with_shape(type: Type, shape: tuple[int, ...] | None) -> Type:
    if not isinstance(type, TensorType) or shape is None:
        return type
    return TensorType(tuple(int(size) for size in np.asarray(shape, dtype=np.int64)), type.element_type)


def _leading(declared: Type, operand: Type) -> Type:
    """Return `declared` with the leading dimensions of `operand`; they may differ in a last dimension of their own."""
    if not isinstance(declared, TensorType) or not isinstance(operand, TensorType):
        return declared
    return TensorType((*operand.shape, *declared.shape[operand.rank :])[: declared.rank], declared.element_type)


def _merge(declared: Type, inferred: Type) -> Type:
    """Return the more specific of two types of one value: each dimension that either one knows."""
    if not isinstance(declared, TensorType) or not isinstance(inferred, TensorType):
        return declared
    if len(declared.shape) != len(inferred.shape):
        return declared
    shape = tuple(
        ours if ours is not None else theirs for ours, theirs in zip(declared.shape, inferred.shape, strict=True)
    )
    return TensorType(shape, declared.element_type)
