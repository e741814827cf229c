"""Native functions as functions of Python: arrays in, no conversion in between.

The entry of a function is native, too: it looks into the arrays that it is given, lets go of the interpreter's lock,
runs, and takes it again. What it is given must be arrays in C order; anything else it declines, and the caller tries
again with such arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from spmd.backends.llvm.interpreter import interpreter_symbols

#: Flags of an array that is contiguous in C order, and whose elements are aligned.
_NEEDED = 0x0001 | 0x0100
_FASTCALL = 0x0080
#: A few loads an array are as quick as they come; optimizing them took a millisecond of each program's compile time.
_ATTRIBUTES = "noinline optnone"


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def _layout() -> tuple[int, int]:
    """Where an array object keeps the address of its data, and its flags; found by looking."""
    probe = np.zeros(3)
    words = (ctypes.c_void_p * 16).from_address(id(probe))
    data = next(8 * place for place, word in enumerate(words) if word == probe.ctypes.data)
    flags = data + 48
    flags_of_probe = ctypes.c_int.from_address(id(probe) + flags).value
    assert flags_of_probe & _NEEDED == _NEEDED, "arrays of this NumPy are laid out in an unknown way"
    return data, flags


def entry_text(name: str, function: str, count: int, *, may_raise: bool) -> str:
    """The text of `name`, a function that CPython calls with `count` arrays, which calls `function` on their data.

    It returns 0, or 1 for arguments that are not arrays in C order. Others may run meanwhile. `may_raise`: the function
    may leave an exception behind, which is then raised.
    """
    data, flags = _layout()
    lines = [
        f"define ptr @{name}(ptr %self, ptr %objects, i64 %count) {_ATTRIBUTES} {{",
        "entry:",
        f"  %pointers = alloca [{max(count, 1)} x ptr], align 8",
        f"  %enough = icmp eq i64 %count, {count}",
        f"  br i1 %enough, label %{'check' if count else 'run'}, label %declined",
    ]
    if count:
        lines += _addresses_text(count, data, flags)
    lines += [
        "run:",
        "  %state = call ptr @PyEval_SaveThread()",
        f"  call void @{function}(ptr %pointers)",
        "  call void @PyEval_RestoreThread(ptr %state)",
    ]
    if may_raise:
        lines += [
            "  %error = call ptr @PyErr_Occurred()",
            "  %raised = icmp ne ptr %error, null",
            "  br i1 %raised, label %raise, label %finished",
            "raise:",
            "  ret ptr null",
            "finished:",
        ]
    lines += [
        "  %done = call ptr @PyLong_FromLong(i64 0)",
        "  ret ptr %done",
        "declined:",
        "  %refused = call ptr @PyLong_FromLong(i64 1)",
        "  ret ptr %refused",
        "}",
        "@ndarray = external global i8",
        "declare ptr @PyLong_FromLong(i64)",
        "declare ptr @PyEval_SaveThread()",
        "declare void @PyEval_RestoreThread(ptr)",
        *(["declare ptr @PyErr_Occurred()"] if may_raise else []),
    ]
    return "\n".join(lines)


def _addresses_text(count: int, data: int, flags: int) -> list[str]:
    """The loop that finds the addresses of the arrays; `data` and `flags` are where an array has them."""
    return [
        "check:",
        "  %place = phi i64 [ 0, %entry ], [ %next, %keep ]",
        "  %at = getelementptr ptr, ptr %objects, i64 %place",
        "  %object = load ptr, ptr %at",
        f"  %type.at = getelementptr i8, ptr %object, i64 {ctypes.sizeof(ctypes.c_ssize_t)}",
        "  %type = load ptr, ptr %type.at",
        "  %isarray = icmp eq ptr %type, @ndarray",
        "  br i1 %isarray, label %array, label %declined",
        "array:",
        f"  %flags.at = getelementptr i8, ptr %object, i64 {flags}",
        "  %flags = load i32, ptr %flags.at",
        f"  %needed = and i32 %flags, {_NEEDED}",
        f"  %good = icmp eq i32 %needed, {_NEEDED}",
        "  br i1 %good, label %keep, label %declined",
        "keep:",
        f"  %data.at = getelementptr i8, ptr %object, i64 {data}",
        "  %data = load ptr, ptr %data.at",
        "  %slot = getelementptr ptr, ptr %pointers, i64 %place",
        "  store ptr %data, ptr %slot",
        "  %next = add nuw nsw i64 %place, 1",
        f"  %more = icmp ult i64 %next, {count}",
        "  br i1 %more, label %check, label %run",
    ]


@cache
def entry_symbols() -> dict[str, int]:
    """The addresses that the text of entries refers to."""
    names = ("PyLong_FromLong", "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_Occurred")
    return {"ndarray": id(np.ndarray), **interpreter_symbols(*names)}


def python_function(address: int, name: str, keep: object) -> Callable[..., int]:
    """The function of Python whose code is the entry at `address`; `keep` lives as long as it."""
    definition = _MethodDef(name.encode(), address, _FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    holder = (definition, keep)  # the function's own object, which it keeps
    function: Callable[..., int] = make(ctypes.addressof(definition), holder, None)
    return function
