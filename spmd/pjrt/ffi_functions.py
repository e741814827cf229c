"""What a handler of XLA's foreign function interface may call: errors, state, scratch memory, tasks, futures.

Source: openxla/xla, xla/ffi/api/c_api.h, XLA_FFI_Api. Handlers run on the processor: tasks run at once, and there are
no streams.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar

from spmd.pjrt.errors import Code, PjrtError, described
from spmd.pjrt.records import immortal
from spmd.pjrt.structs import FFI_FUNCTIONS, struct
from spmd.support.registry import filed

T = TypeVar("T")

_MAJOR, _MINOR = 0, 3
_Function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_Task = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CACHE_LINE = 64
#: Errors and futures by their handles, which are numbers: nothing points to them.
_objects: dict[int, Any] = {}
#: The texts of errors that handlers read, by the errors' handles.
_texts: dict[int, Any] = {}
_numbers = itertools.count(1)
_FUNCTIONS: dict[str, Callable[[Any], int | None]] = {}


@dataclass
class Context:
    """What a call site keeps for its handler: state by stage, and memory that it has not freed."""

    state: dict[int, int] = field(default_factory=dict)
    memory: dict[int, Any] = field(default_factory=dict)


@dataclass
class Future:
    """What a handler completes that returns before it has computed."""

    done: threading.Event = field(default_factory=threading.Event)
    error: PjrtError | None = None


def put(thing: Any) -> int:
    """Return the handle of an object."""
    number = next(_numbers)
    _objects[number] = thing
    return number


def take(number: int) -> Any:
    """Return the object of a handle, which stands for nothing any more."""
    return _objects.pop(number, None)


@cache
def table() -> int:
    """Return the address of XLA_FFI_Api, made once."""
    head = struct("FfiApi")
    memory = immortal(ctypes.create_string_buffer(ctypes.sizeof(head) + 8 * len(FFI_FUNCTIONS)))
    api = head.from_buffer(memory)
    api.struct_size, api.version_size, api.major, api.minor = len(memory), 24, _MAJOR, _MINOR
    entries = (ctypes.c_void_p * len(FFI_FUNCTIONS)).from_buffer(memory, ctypes.sizeof(head))
    for place, name in enumerate(FFI_FUNCTIONS):
        entries[place] = ctypes.cast(immortal(_Function(_crossing(name))), ctypes.c_void_p).value
    return ctypes.addressof(memory)


def _crossing(name: str) -> Callable[[int], int]:
    kind, function = struct(f"Ffi{name}"), _FUNCTIONS.get(name)

    def call(address: int) -> int:
        try:
            if function is None:
                raise PjrtError(Code.UNIMPLEMENTED, f"XLA_FFI_{name} is not supported: handlers run on the processor")
            return function(kind.from_address(address)) or 0
        except BaseException as error:
            return put(PjrtError(*described(error)))

    return call


_function = partial(filed, _FUNCTIONS, what="function")


@_function(["Error_Create"])
def _(args: Any) -> int:
    return put(PjrtError(args.code, ctypes.string_at(args.message).decode(errors="replace") if args.message else ""))


@_function(["Error_GetMessage"])
def _(args: Any) -> None:
    text = _texts[args.error] = ctypes.create_string_buffer(str(_objects.get(args.error, "")).encode())
    args.message = ctypes.addressof(text)


@_function(["Error_Destroy"])
def _(args: Any) -> None:
    take(args.error)
    _texts.pop(args.error, None)


@_function(["State_Set"])
def _(args: Any) -> None:
    _context(args).state[args.stage] = args.state


@_function(["State_Get"])
def _(args: Any) -> None:
    state = _context(args).state
    if args.stage not in state:
        raise PjrtError(Code.NOT_FOUND, f"the handler has set no state in stage {args.stage}")
    args.state = state[args.stage]


@_function(["DeviceMemory_Allocate"])
def _(args: Any) -> None:
    alignment = max(args.alignment, _CACHE_LINE)
    memory = ctypes.create_string_buffer(args.size + alignment)
    args.data = -(-ctypes.addressof(memory) // alignment) * alignment
    _context(args).memory[args.data] = memory


@_function(["DeviceMemory_Free"])
def _(args: Any) -> None:
    _context(args).memory.pop(args.data, None)


@_function(["ThreadPool_Schedule"])
def _(args: Any) -> None:
    _Task(args.task)(args.data)


@_function(["ThreadPool_NumThreads"])
def _(args: Any) -> None:
    ctypes.c_int64.from_address(args.num_threads).value = 1


@_function(["Future_Create"])
def _(args: Any) -> None:
    args.future = put(Future())


@_function(["Future_SetAvailable"])
def _(args: Any) -> None:
    _future(args).done.set()


@_function(["Future_SetError"])
def _(args: Any) -> None:
    future = _future(args)
    future.error = take(args.error)
    future.done.set()


@_function(["RunId_Get"])
def _(args: Any) -> None:
    args.run_id = 0


@_function(["DeviceOrdinal_Get"])
def _(args: Any) -> None:
    args.device_ordinal = 0


def _context(args: Any) -> Context:
    return _found(args.ctx, Context)


def _future(args: Any) -> Future:
    return _found(args.future, Future)


def _found(number: int, kind: type[T]) -> T:
    found = _objects.get(number)
    if not isinstance(found, kind):
        raise PjrtError(Code.INVALID_ARGUMENT, f"{number:#x} is no handle of a {kind.__name__.lower()}")
    return found
