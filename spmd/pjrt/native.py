"""Machine code of the interface's functions.

A getter copies facts from a handle's record into its arguments: it cannot fail, and takes no lock, which matters since
jaxlib calls some while it holds locks of its own. The hot entries (`spmd.pjrt.hot`) do what is most often to be done.
Every other entry, and a hot one in every other case, crosses into a function of Python; a pending exception is set
aside meanwhile, for jaxlib also calls while Python unwinds. Once the interpreter is being taken down, all of them
return at once: destructors of C++ run until the end of the process.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping

from spmd.backends.machine_code import Library, compile_ir, interpreter_symbols
from spmd.pjrt.getters import GETTERS, Getter
from spmd.pjrt.handles import number_of_kind
from spmd.pjrt.hot import FOUND_LONG, HOT, MOST_DATA, SHORT, TEXT
from spmd.pjrt.machine import llvm_of
from spmd.pjrt.records import END, FUNCTIONS, SLOT, START, immortal
from spmd.pjrt.structs import KINDS, size_of

_FINALIZING = "Py_IsFinalizing" if hasattr(ctypes.pythonapi, "Py_IsFinalizing") else "_Py_IsFinalizing"
_INTERPRETER = (
    "Py_IsInitialized",
    _FINALIZING,
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyErr_Clear",
    "PyErr_Occurred",
    "PyErr_SetInterrupt",
    "PyLong_FromVoidPtr",
    "PyLong_AsVoidPtr",
    "PyObject_CallOneArg",
    "Py_DecRef",
)

#: `cross` calls a function of Python; `begun` says whether the arguments of an entry are as long as this client's.
_COMMON = f"""
def is_over():
    return Py_IsInitialized() % INT == 0 or {_FINALIZING}() % INT != 0

def begun(args, size):
    return args != 0 and args[0] >= size and not is_over()

def is_handle(address, kind):
    begin = address - records
    return begin < RECORDS and begin % SLOT == 0 and address[1] == kind

def cross(function, args):
    if is_over():
        return 0
    state = PyGILState_Ensure()
    pending = words(3)
    PyErr_Fetch(pending, pending + 8, pending + 16)
    address = PyLong_FromVoidPtr(args)
    result = PyObject_CallOneArg(function, address)
    Py_DecRef(address)
    error = failed
    if result == 0:
        PyErr_Clear()
    else:
        error = PyLong_AsVoidPtr(result)
        Py_DecRef(result)
    PyErr_Restore(pending[0], pending[1], pending[2])
    PyGILState_Release(state)
    return error

def nothing(unused):
    return 0
"""


def _getter(getter: Getter) -> str:
    """A function that copies facts of a record; of no handle, nothing: zeros."""
    copies = [
        f"            args.{target} = {source if isinstance(source, int) else f'handle.{source}'}"
        for source, target in getter.fields
    ]
    return "\n".join(
        [
            f"def {getter.name}(args: {getter.name}):",
            f"    if begun(args, {size_of(getter.name)}):",
            f"        handle: {getter.kind}Record = args.{getter.handle}",
            f"        if is_handle(handle, {number_of_kind(getter.kind)}):",
            *copies,
            "        else:",
            *[f"            args.{target} = 0" for _, target in getter.fields],
        ]
    )


def _crossing(name: str) -> str:
    return f"def {name}(args):\n    return cross(py_{name}, args)\n"


def load(crossings: Mapping[str, Callable[[int], int]], addresses: Mapping[str, int]) -> Library:
    """Return the machine code of all getters, hot entries and crossings.

    `addresses` are those of what it refers to: the error `failed`, which a function of Python that raises answers with,
    the error `interrupted`, and the event `ready`.
    """
    names = sorted(crossings)
    symbols = {
        **addresses,
        **FUNCTIONS,
        "records": START,
        **{f"py_{name}": id(immortal(crossings[name])) for name in names},
        **interpreter_symbols(*_INTERPRETER),
    }
    constants = {
        "INT": 1 << 32,
        "RECORDS": END - START,
        "SLOT": SLOT,
        "MOST_DATA": MOST_DATA,
        "SHORT": SHORT,
        "FOUND_LONG": FOUND_LONG,
        "BILLION": 10**9,
        "MONOTONIC": int(time.CLOCK_MONOTONIC),
        **{f"SIZE_{name}": size_of(name) for name in HOT},
        **{f"IS_{kind.upper()}": number_of_kind(kind) for kind in KINDS},
    }
    texts = [_COMMON, TEXT, *map(_getter, GETTERS), *[_crossing(name) for name in names if name not in HOT]]
    text = llvm_of("\n".join(texts), constants, symbols)
    library: Library = immortal(compile_ir(text, symbols))
    return library
