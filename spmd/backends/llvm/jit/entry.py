"""Native functions as functions of Python: arrays in, no conversion in between.

The entry of functions is native, too: it looks into the arrays that it is given, lets go of the interpreter's lock,
runs, and takes it again. What it is given must be arrays in C order; anything else it declines, and the caller tries
again with such arrays. All functions have one entry, compiled once: CPython hands it the object that a function of
Python was made with, which tells what is to be called.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from spmd.backends.llvm.jit.interpreter import interpreter_symbols
from spmd.backends.llvm.jit.jit import Library, compile_ir, one_a_process
from spmd.backends.llvm.jit.processor import CODE_ATTRIBUTES

#: Flags of an array that is contiguous in C order, and whose elements are aligned.
_NEEDED = 0x0001 | 0x0100
_FASTCALL = 0x0080


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef, and behind it what the entry is told: a function, and how many arrays it takes."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
        ("native", ctypes.c_int64),
        ("count", ctypes.c_int64),
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


def _entry_text() -> str:
    """The text of `entry`, a function that CPython calls with objects, and with an array of i64 as `%self`.

    That has the address of a function and how many arrays it takes; it is called with the addresses of their data. The
    entry returns 0, or 1 for arguments that are not arrays in C order. Others may run meanwhile. The function may leave
    an exception behind, which is then raised.
    """
    data, flags = _layout()
    lines = [
        f"define ptr @entry(ptr %self, ptr %objects, i64 %count) {CODE_ATTRIBUTES} {{",
        "entry:",
        f"  %told.at = getelementptr i8, ptr %self, i64 {data}",
        "  %told = load ptr, ptr %told.at",
        "  %function = load ptr, ptr %told",
        "  %expected.at = getelementptr i64, ptr %told, i64 1",
        "  %expected = load i64, ptr %expected.at",
        "  %enough = icmp eq i64 %count, %expected",
        "  br i1 %enough, label %begin, label %declined",
        "begin:",
        "  %pointers = alloca ptr, i64 %count, align 16",
        "  %some = icmp ne i64 %count, 0",
        "  br i1 %some, label %check, label %run",
        *_addresses_text(data, flags),
        "run:",
        "  %state = call ptr @PyEval_SaveThread()",
        "  call void %function(ptr %pointers)",
        "  call void @PyEval_RestoreThread(ptr %state)",
        "  %error = call ptr @PyErr_Occurred()",
        "  %raised = icmp ne ptr %error, null",
        "  br i1 %raised, label %raise, label %finished",
        "raise:",
        "  ret ptr null",
        "finished:",
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
        "declare ptr @PyErr_Occurred()",
    ]
    return "\n".join(lines)


def _addresses_text(data: int, flags: int) -> list[str]:
    """The loop that finds the addresses of the arrays; `data` and `flags` are where an array has them."""
    return [
        "check:",
        "  %place = phi i64 [ 0, %begin ], [ %next, %keep ]",
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
        "  %more = icmp ult i64 %next, %count",
        "  br i1 %more, label %check, label %run",
    ]


@one_a_process
def _entry() -> Library:
    """The entry in this process."""
    names = ("PyLong_FromLong", "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_Occurred")
    return compile_ir(_entry_text(), {"ndarray": id(np.ndarray), **interpreter_symbols(*names)})


class _Told(np.ndarray):
    """What the entry is told of a function, a part of its definition; it has what the function needs, too.

    It is the function's own object, and lives as long. CPython reads the definition until the end: that is reached
    through the array's base, since an attribute of a cycle may be gone before (object.h, tp_clear).
    """

    keep: object


def python_function(address: int, count: int, name: str, keep: object) -> Callable[..., int]:
    """The function of Python that calls the native one at `address` with the addresses of `count` arrays.

    `keep` lives as long as it.
    """
    entry = _entry()
    definition = _MethodDef(name.encode(), entry.address("entry"), _FASTCALL, None, address, count)
    words = (ctypes.c_int64 * 2).from_buffer(definition, _MethodDef.native.offset)
    told = np.frombuffer(words, np.int64).view(_Told)  # type: ignore[call-overload]  # arrays of ctypes are buffers
    told.keep = (entry, keep)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., int] = make(ctypes.addressof(definition), told, None)
    return function
