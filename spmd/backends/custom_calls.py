"""Custom-call targets: built-in ones, and those registered by users.

Source: StableHLO specification, "custom_call", whose meaning is its target's own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import cast

import numpy as np

from collectives.exploration import reach
from spmd.analysis.custom_calls import call_attributes, declare_registered, declare_unregistered
from spmd.backends.c_targets import C_TARGETS, c_function, c_kernel
from spmd.backends.kernels import TARGETS, Context, Kernel, Maker, load_kernels
from spmd.errors import Diagnostic, ExecutionError, UsageError
from spmd.ir import Op
from spmd.support.arrays import Array, Results, UserFunction
from spmd.support.registry import filed
from spmd.types import TensorType


def target(*names: str) -> Callable[[Maker], Maker]:
    """Register the maker of a built-in target under its names; return a decorator."""
    return filed(TARGETS, names, "maker")


def register_custom_call(name: str, function: UserFunction | ctypes.CDLL, *, takes_batch: bool = False) -> None:
    """Make `stablehlo.custom_call @name` run `function` in programs compiled from now on.

    A Python function is called as `function(*arrays, attributes=...)`, with one array per operand (which it must not
    write to) and a dictionary `attributes`: the call's attributes as plain Python values by name (strings, numbers,
    tuples, arrays, dictionaries), including `backend_config` (a string, or a dictionary for a typed call) and
    `result_types`, the tensor types of the results. It returns one array for one result, a tuple for several, None or
    () for none, of the declared shapes and dtypes; else the call raises ExecutionError. Registering a name again
    replaces the function.

    A ctypes function, or the function `name` of a ctypes library, is called by native code, without Python, as `void
    name(void* out, void** in)`: `in` holds the addresses of the operands, `out` is the address of the result, or, for
    several results, of their addresses (XLA operation semantics, "CustomCall"). It must write all results, and nothing
    else. The program's api_version must be 1, as XlaBuilder's and HLO text's is.

    With `takes_batch` a Python function also accepts operands that all have an additional leading dimension, and then
    returns results with it: a simulation calls it once for all processes instead of once for each. UsageError if `name`
    is no string, `function` is no function, or a library has no function `name`.
    """
    if not isinstance(name, str):
        raise UsageError(f"spmd.register_custom_call takes a name, a string, got {type(name).__name__}")
    of_c = c_function(name, function)
    if of_c is None and not callable(function):
        raise UsageError(f"spmd.register_custom_call takes a function, got {type(function).__name__}")
    if of_c is not None and takes_batch:
        raise UsageError(f"takes_batch requires a Python function, got the C function {name!r}")

    load_kernels()  # registers built-in targets, which a user's may replace
    if of_c is None:
        C_TARGETS.pop(name, None)
        TARGETS[name] = _python_maker(cast(UserFunction, function))
    else:
        C_TARGETS[name] = of_c
        TARGETS[name] = c_kernel
    declare_registered(name, takes_batch=takes_batch, is_of_c=of_c is not None)


def forget_custom_call(name: str) -> None:
    """Undo `register_custom_call` of a name without a built-in target; compiled programs are unaffected."""
    TARGETS.pop(name, None)
    C_TARGETS.pop(name, None)
    declare_unregistered(name)


def _python_maker(function: UserFunction) -> Maker:
    """Return the maker of a target that is a Python function."""

    def maker(op: Op, context: Context) -> Kernel:
        attributes = call_attributes(op)
        attributes["result_types"] = tuple(op.result_types)
        name = op["call_target_name"]

        def call(*arrays: Array) -> Results:
            reach(f"custom_call @{name}")
            return _checked(op, function(*arrays, attributes=attributes))

        return Kernel(call, aliases=tuple(range(len(op.operands))), owned=False)

    return maker


def _checked(op: Op, results: Results) -> Results:
    """Return the results of a registered function; ExecutionError if they are not as declared."""
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
