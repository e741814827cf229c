"""Custom calls: targets that are built in, and those that a user registers.

Source: StableHLO specification, "custom_call", whose meaning is its target's own. A target that nobody knows is
refused when the program is compiled.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collectives.exploration import reach
from spmd.analysis.custom_calls import HINTS, PYTHON_CALLBACK, call_attributes, declare_registered
from spmd.backends.numpy.core import KERNELS, Context, Kernel, Maker, kernel, make_kernel
from spmd.dialects.custom_call_targets import called_op
from spmd.errors import CompileError, Diagnostic, ExecutionError, UsageError
from spmd.ir import Op
from spmd.runtime.process import Process
from spmd.support.arrays import Array, Results, UserFunction
from spmd.support.registry import filed
from spmd.types import BufferType, TensorType

#: Makers by target name.
TARGETS: dict[str, Maker] = {}


def target(*names: str) -> Callable[[Maker], Maker]:
    """Decorator: files the maker of a built-in target under its names."""
    return filed(TARGETS, names, "maker")


def register_custom_call(name: str, function: UserFunction, *, takes_batch: bool = False) -> None:
    """Makes `stablehlo.custom_call @name` run `function(*arrays, attributes=...)` in programs compiled from now on.

    The function gets one array an operand (read-only by agreement: it must not write into them) and a dictionary
    `attributes`: the call's attributes as plain Python values by name (strings, numbers, tuples, arrays, dictionaries),
    among them `backend_config` (a string, or a dictionary for a typed call) and `result_types`, the tensor types of the
    results. It returns one array for one result, a tuple for several, None or () for none. What it returns must have
    the declared shapes and dtypes; ExecutionError at the call otherwise. Registering a name again replaces it.

    `takes_batch` says that the function may as well be given operands that all have one more leading dimension, as its
    results then have: a simulation calls it once for all processes, and else once for each. UsageError for a name that
    is no string, or a function that is none.
    """
    if not isinstance(name, str):
        raise UsageError(f"spmd.register_custom_call takes a name, a string, got {type(name).__name__}")
    if not callable(function):
        raise UsageError(f"spmd.register_custom_call takes a function, got {type(function).__name__}")

    def maker(op: Op, context: Context) -> Kernel:
        attributes = call_attributes(op)
        attributes["result_types"] = tuple(op.result_types)

        def call(*arrays: Array) -> Results:
            reach(f"custom_call @{name}")
            return _checked(op, function(*arrays, attributes=attributes))

        return Kernel(call, aliases=tuple(range(len(op.operands))), owned=False)

    TARGETS[name] = maker
    declare_registered(name, takes_batch=takes_batch)


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
    return f"no custom call target named {name!r}; spmd.register_custom_call({name!r}, function) makes it known"


def _kernel(maker: Maker, op: Op, context: Context) -> Kernel:
    product = maker(op, context)
    return product if isinstance(product, Kernel) else Kernel(product)


def _of_shapes(op: Op, context: Context, maker: Maker, indices: list[int]) -> Kernel:
    """A call whose operands at `indices` are its results' shapes: exports with symbolic shapes write these.

    Its target gets the other operands, and one kernel is made for each combination of shapes. Source: JAX's
    mlir.custom_call, `result_shapes`.
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


def _checked(op: Op, results: Results) -> Results:
    """What a registered function returned, known to be what the call declares."""
    returned = () if results is None else results if isinstance(results, tuple) else (results,)
    if len(returned) != len(op.results):
        message = (
            f"target {op['call_target_name']!r} returned {len(returned)} values where {len(op.results)} are declared"
        )
        raise ExecutionError(Diagnostic(op.location, message, op.name))
    arrays: list[Results] = []
    for index, (value, declared) in enumerate(zip(returned, op.results, strict=True)):
        type = declared.type
        if not isinstance(type, TensorType):
            arrays.append(value)
            continue
        array = np.asarray(value)
        fits = len(array.shape) == type.rank and all(
            extent in (None, size) for extent, size in zip(type.shape, array.shape, strict=True)
        )
        if array.dtype != type.dtype or not fits:
            message = (
                f"target {op['call_target_name']!r} returned {array.dtype} of shape {array.shape} as result {index}, "
                f"declared {type}"
            )
            raise ExecutionError(Diagnostic(op.location, message, op.name))
        arrays.append(array)
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


# --- built-in targets ------------------------------------------------------------------------------------------------


@target(*HINTS)
def same(op: Op, context: Context) -> Kernel:
    """Hints on placement: the value goes through as it is."""
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
    """A buffer whose contents nobody may count on: zeros."""
    type = op.result.type
    assert isinstance(type, TensorType | BufferType)
    tensor = TensorType(type.shape, type.element_type)
    shape, dtype = tensor.static_shape, tensor.dtype
    return Kernel(lambda *_: np.zeros(shape, dtype))


def _as_op(op: Op, context: Context) -> Kernel:
    """The kernel of the op that older frontends wrote as a call `mhlo.<op>`: of CHLO, or of StableHLO."""
    called = called_op(op)
    if isinstance(called, Op) and called.name in KERNELS:
        return make_kernel(called, context)
    raise CompileError(Diagnostic(op.location, called if isinstance(called, str) else _unknown(op), op.name))
