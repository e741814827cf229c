"""Functions of Python that programs call back: jax.pure_callback, jax.experimental.io_callback, jax.debug.

A program names them by number. At each run the frontend hands over where they are, as data of its execution context:
the address of `{void** functions; size_t count}`, whose functions are objects of Python (jaxlib's
FfiLoadedHostCallbacks, the same from 0.10 to 0.12).
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from spmd.analysis.custom_calls import retarget_callbacks
from spmd.backends.custom_calls import register_custom_call
from spmd.errors import ExecutionError
from spmd.ir import Module
from spmd.pjrt.entries import entry
from spmd.pjrt.errors import Code, PjrtError, unimplemented
from spmd.pjrt.handles import number_of_kind
from spmd.pjrt.hot import MOST_DATA
from spmd.pjrt.records import is_record
from spmd.pjrt.structs import struct

#: The target of callbacks in programs of this client.
_TARGET = "spmd.pjrt.callback"
_running = threading.local()


class _Functions(ctypes.Structure):
    _fields_ = (("functions", ctypes.POINTER(ctypes.py_object)), ("count", ctypes.c_size_t))


def user_data(context: int) -> list[tuple[int, int]]:
    """Return what a frontend gives to a run of a program, by its context's handle: pairs of a type's number and data.

    0 is no context; PjrtError for what is none.
    """
    if not context:
        return []
    record = struct("ContextRecord").from_address(context) if is_record(context) else None
    if record is None or record.kind != number_of_kind("Context"):
        raise PjrtError(Code.INVALID_ARGUMENT, f"{context:#x} is no handle of a context")
    return [(getattr(record, f"kind{place}"), getattr(record, f"data{place}")) for place in range(record.count)]


def functions_of(context: int) -> list[Callable[..., Any]]:
    """Return the functions that a program may call, by the handle of its run's context."""
    data = [address for _, address in user_data(context)]
    if len(data) > 1:
        raise unimplemented("an execution context has data of several kinds, of which one alone is supported")
    if not data or not data[0]:
        return []
    given = _Functions.from_address(data[0])
    return [given.functions[index] for index in range(given.count)]


def connect(module: Module) -> bool:
    """Have the callbacks of `module` call what the context of a run gives; return whether there are any."""
    found: list[int] = []

    def target_of(number: int) -> str:
        if not found:
            register_custom_call(_TARGET, _call)
        found.append(number)
        return _TARGET

    retarget_callbacks(module, target_of)
    return bool(found)


def here() -> Sequence[Callable[..., Any]]:
    """Return the functions that programs which this thread runs may call."""
    functions: Sequence[Callable[..., Any]] = getattr(_running, "functions", ())
    return functions


@contextlib.contextmanager
def available(functions: Sequence[Callable[..., Any]]) -> Iterator[None]:
    """While a program runs that may call `functions`."""
    before = here()
    _running.functions = functions
    try:
        yield
    finally:
        _running.functions = before


def _call(*arrays: Any, attributes: Any) -> Any:
    functions = here()
    number = attributes["backend_config"]["index"]
    if not 0 <= number < len(functions):
        raise ExecutionError(f"the program calls function {number} of Python, and {len(functions)} are given")
    # The function may keep what it is given: it gets memory of its own.
    return functions[number](*[np.array(array) if isinstance(array, np.ndarray) else array for array in arrays])


# Contexts are made, filled and destroyed by machine code (`spmd.pjrt.hot`): these are for what it does not take.


@entry("ExecuteContext_Create")
def _(args: Any) -> None:
    raise PjrtError(Code.RESOURCE_EXHAUSTED, "there is no record for another execution context")


@entry("ExecuteContext_Destroy", fails=False)
def _(args: Any) -> None:
    """What is no handle stays."""


@entry("FFI_UserData_Add")
def _(args: Any) -> None:
    user_data(args.context)
    raise unimplemented(f"an execution context has more than {MOST_DATA} kinds of data")


_types: dict[str, int] = {}


@entry("FFI_Type_Register")
def _(args: Any) -> None:
    name = ctypes.string_at(args.type_name, args.type_name_size).decode(errors="replace") if args.type_name else ""
    if args.type_id:
        _types[name] = args.type_id
    args.type_id = _types.setdefault(name, len(_types) + 1)


@entry("FFI_Register_Handler")
def _(args: Any) -> None:
    """Handlers are those that spmd.pjrt.ffi has of the frontend, which files them itself."""


@entry("Register_Custom_Partitioner")
def _(args: Any) -> None:
    """Functions that partition custom calls are not called: a program that needs one is refused."""


@entry("Register_Batch_Partitionable")
def _(args: Any) -> None:
    """As above."""
