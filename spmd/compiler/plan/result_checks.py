"""Run-time checks of kernel results against declared types.

Verification proves most shapes. The others (sizes that are values, custom calls, values from other processes or
callbacks) are checked before they are read, because native code relies on the declared shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spmd.compiler.plan.steps import PlanStep
from spmd.dialects.shapes import bounds_of
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import Op, Value
from spmd.support.arrays import DType, Results
from spmd.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """The check of one value: `call` raises ExecutionError if it is not of its type.

    Values of `shape` and `dtype` pass without a call; `shape` is None if it is not static.
    """

    call: Callable[[Results], None]
    shape: tuple[int, ...] | None = None
    dtype: DType | None = None


def is_proven(step: PlanStep) -> bool:
    """Return whether results of `step` have the declared shapes by construction: native code, and elementwise kernels.

    Native code stores to memory of the declared shapes.
    """
    if step.native is not None:
        return True
    return step.kernel.pointwise and all(map(_is_static, (*step.inputs, *step.outputs)))


def _is_static(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.is_static


def result_checks(op: Op, values: Sequence[Value]) -> Mapping[Value, ResultCheck]:
    """Return the checks of results of `op`: tensors, and tensors in tuples."""
    checks = {}
    for value in values:
        type = value.type
        if isinstance(type, TensorType):
            shape = type.static_shape if type.is_static else None
            checks[value] = ResultCheck(_tensor_check(op, type), shape, type.dtype)
        elif isinstance(type, TupleType):
            checks[value] = ResultCheck(_type_check(op, type))
    return checks


def _type_check(op: Op, type: Type) -> Callable[[Results], None]:
    if isinstance(type, TensorType):
        return _tensor_check(op, type)
    if not isinstance(type, TupleType):
        return lambda value: None
    parts = [_type_check(op, part) for part in type.types]

    def check(value: Results) -> None:
        if not isinstance(value, tuple) or len(value) != len(parts):
            raise ExecutionError(
                Diagnostic(op.location, f"returned a value that is not of the declared type {type}", op.name)
            )
        for part, entry in zip(parts, value, strict=True):
            part(entry)

    return check


def _tensor_check(op: Op, type: TensorType) -> Callable[[Results], None]:
    sizes = list(zip(type.shape, bounds_of(type), strict=True))

    def check(value: Results) -> None:
        shape = np.shape(value)  # type: ignore[arg-type]
        dtype = np.asarray(value).dtype
        fits = len(shape) == len(sizes) and all(
            declared in (None, size) and (bound is None or size <= bound)
            for size, (declared, bound) in zip(shape, sizes, strict=True)
        )
        if not fits or dtype != type.dtype:
            raise ExecutionError(Diagnostic(op.location, _fault(op, type, dtype, shape), op.name))

    return check


def _fault(op: Op, type: TensorType, dtype: DType, shape: tuple[int, ...]) -> str:
    operands = ", ".join(str(value.type) for value in op.operands)
    return f"the declared type is ({operands}) -> {type}, but the result is {dtype} of shape {shape}"
