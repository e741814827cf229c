"""Vectorization of scalar regions: functions on whole arrays.

Reductions, scatters, sorts and maps apply a region to elements. Most regions have pointwise ops only, whose kernels
take arrays of any shape: the region's program is then vectorized. Ops that are the identity on scalars are passed
through; `if` and `case` become selections. Anything else (a loop in a reduction's body) is stacked: elements are
processes, and loops run until the last one is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spmd.analysis.constants import constant_array
from spmd.backends.kernels import Kernel, Program
from spmd.compiler.pipeline.block_compiler import BlockCompiler
from spmd.compiler.plan.emit import emit
from spmd.compiler.plan.steps import Plan, PlanStep
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Op, captured_values
from spmd.support.arrays import Array, DType
from spmd.types import TensorType

#: Most elements per stacked program.
_AT_ONCE = 1 << 16


def vectorized(lowering: BlockCompiler, op: Op, index: int) -> Callable[..., tuple[Array, ...]]:
    """Return region `index` of `op` as a function of one array per block argument, then the captured values."""
    block = op.regions[index].block
    plan = Plan([*block.arguments, *captured_values(op)], {}, [], list(block.terminator.operands), {})
    _fill(lowering, plan, block.ops[:-1])
    dtypes = [value.tensor.dtype for value in plan.results]
    if all(step.kernel.pointwise for step in plan.steps):
        return _whole(emit(plan, checked=False), len(block.arguments), dtypes)
    return _stacked(lowering, op, index)


def _fill(lowering: BlockCompiler, plan: Plan, ops: list[Op]) -> None:
    for op in ops:
        if (array := constant_array(op)) is not None:
            plan.constants[op.result] = array
        else:
            inputs = [*op.operands, *(captured_values(op) if op.regions else ())]
            plan.steps.append(PlanStep(op, _kernel(lowering, op), inputs, list(op.results)))


def _kernel(lowering: BlockCompiler, op: Op) -> Kernel:
    is_identity = has_trait(op, Trait.MOVES) or has_trait(op, Trait.VIEW)  # on scalars
    if is_identity and len(op.operands) == 1 and _all_scalars(op):
        return Kernel(lambda value: value, aliases=(0,), pointwise=True)
    if has_trait(op, Trait.BRANCH) and _all_scalars(op):
        return _selection(lowering, op)
    return lowering.kernel(op)


def _all_scalars(op: Op) -> bool:
    return all(isinstance(value.type, TensorType) and value.type.shape == () for value in (*op.operands, *op.results))


def _selection(lowering: BlockCompiler, op: Op) -> Kernel:
    """Return a kernel that computes all branches and selects per element; branches of scalars are pure."""
    branches = [vectorized(lowering, op, index) for index in range(len(op.regions))]
    last = len(branches) - 1
    single = len(op.results) == 1

    def call(chosen: Array, *captured: Array) -> Any:
        if np.asarray(chosen).dtype == np.bool_:
            number = np.where(chosen, 0, 1)
        else:
            number = np.where((np.asarray(chosen) < 0) | (np.asarray(chosen) > last), last, chosen)
        results = [branch(*captured) for branch in branches]
        merged = tuple(np.choose(number, candidates) for candidates in zip(*results, strict=True))
        return merged[0] if single else merged

    return Kernel(call, pointwise=True)


def _whole(
    program: Callable[..., tuple[Array, ...]], arity: int, dtypes: list[DType]
) -> Callable[..., tuple[Array, ...]]:
    def call(*arrays: Array) -> tuple[Array, ...]:
        # A branch of an `if` has no arguments: its shape is that of its captured values.
        shape = np.broadcast_shapes(*(np.shape(array) for array in (arrays[:arity] if arity else arrays)))
        return tuple(
            result if np.shape(result) == shape and isinstance(result, np.ndarray)
            else np.broadcast_to(np.asarray(result, dtype), shape)
            for result, dtype in zip(program(None, *arrays), dtypes, strict=True)
        )  # fmt: skip

    return call


def _stacked(lowering: BlockCompiler, op: Op, index: int) -> Callable[..., tuple[Array, ...]]:
    """Return the region on many elements, each a process of one stacked program, cached by their number."""
    from spmd.compiler.stack import stack_region  # loaded late: few regions need it

    programs: dict[int, Program] = {}
    block = op.regions[index].block
    arity, dtypes = len(block.arguments), [value.tensor.dtype for value in block.terminator.operands]

    def run(arrays: Sequence[Array], captured: Sequence[Array]) -> tuple[Array, ...]:
        count = arrays[0].size
        program = programs.get(count)
        if program is None:
            module, function = stack_region(lowering.module, lowering.options, op, index, count)
            program = programs[count] = lowering.on_module(module).entry(function)[0]
        return program(None, *arrays, *captured)

    def call(*arrays: Array) -> tuple[Array, ...]:
        operands = np.broadcast_arrays(*arrays[:arity])
        flat = [operand.reshape(-1) for operand in operands]
        results = tuple([np.empty(flat[0].size, dtype) for dtype in dtypes])
        for start in range(0, flat[0].size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            for result, value in zip(results, run([array[part] for array in flat], arrays[arity:]), strict=True):
                result[part] = value
        return tuple([result.reshape(operands[0].shape) for result in results])

    return call
