"""Native functions as Python functions on arrays, without argument conversion.

The entry point is native, too: it reads the addresses of array objects, releases the GIL, calls the function, and
reacquires the GIL. Arguments must be C-contiguous arrays of the compiled dtypes and shapes, so that no access is out of
bounds; others are declined, and the caller converts them. All functions share one entry, compiled once: CPython passes
it the `self` of the Python function, which identifies the callee.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from spmd.backends.llvm.jit.interpreter import interpreter_symbols
from spmd.backends.llvm.jit.jit import Library, compile_ir, once_per_process
from spmd.backends.llvm.jit.processor import CODE_ATTRIBUTES
from spmd.support.arrays import DType

#: Flags of an aligned, C-contiguous array.
_NEEDED = 0x0001 | 0x0100
_FASTCALL = 0x0080

#: Shape and dtype of an array.
ArrayType = tuple[tuple[int, ...], DType]


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef, followed by the entry's data: a function, its number of arrays, and the types of the first
    ones (`_rows`).
    """

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
        ("native", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("typed", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class _Layout:
    """Byte offsets of the fields of array objects that the entry reads."""

    data: int
    rank: int
    sizes: int
    dtype: int
    flags: int


@cache
def _layout() -> _Layout:
    """Return the layout of this NumPy's array objects, found by inspecting one."""
    probe = np.zeros((3, 5))
    words = (ctypes.c_void_p * 16).from_address(id(probe))
    data = next(8 * place for place, word in enumerate(words) if word == probe.ctypes.data)
    layout = _Layout(data, data + 8, data + 16, data + 40, data + 48)
    at = id(probe)
    rank = ctypes.c_int.from_address(at + layout.rank).value
    sizes = ctypes.c_void_p.from_address(at + layout.sizes).value
    assert (
        ctypes.c_int.from_address(at + layout.flags).value & _NEEDED == _NEEDED
        and ctypes.c_void_p.from_address(at + layout.dtype).value == id(probe.dtype)
        and rank == 2
        and sizes is not None
        and tuple((ctypes.c_int64 * 2).from_address(sizes)) == probe.shape
    ), "arrays of this NumPy are laid out in an unknown way"
    return layout


def _entry_text() -> str:
    """Return the IR of `entry`, which CPython calls with objects and with `%self`, an array of i64.

    That holds the address of a function, its number of arrays, and the types of the first ones; the function is called
    with their data pointers. The entry returns 0, or 1 if arguments are no such C-contiguous arrays. Releases the GIL;
    a pending exception is raised on return.
    """
    lines = [
        f"define ptr @entry(ptr %self, ptr %objects, i64 %count) {CODE_ATTRIBUTES} {{",
        "entry:",
        f"  %info.at = getelementptr i8, ptr %self, i64 {_layout().data}",
        "  %info = load ptr, ptr %info.at",
        "  %function = load ptr, ptr %info",
        "  %expected.at = getelementptr i64, ptr %info, i64 1",
        "  %expected = load i64, ptr %expected.at",
        "  %typed.at = getelementptr i64, ptr %info, i64 2",
        "  %typed = load i64, ptr %typed.at",
        "  %rows.at = getelementptr i64, ptr %info, i64 3",
        "  %rows = load ptr, ptr %rows.at",
        "  %enough = icmp eq i64 %count, %expected",
        "  br i1 %enough, label %begin, label %declined",
        "begin:",
        "  %pointers = alloca ptr, i64 %count, align 16",
        "  %some = icmp ne i64 %count, 0",
        "  br i1 %some, label %check, label %run",
        *_addresses_text(_layout()),
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


def _addresses_text(layout: _Layout) -> list[str]:
    """Return the loop that collects the data pointers of the arrays."""
    return [
        "check:",
        "  %place = phi i64 [ 0, %begin ], [ %next, %keep ]",
        "  %row = phi ptr [ %rows, %begin ], [ %row.next, %keep ]",
        "  %at = getelementptr ptr, ptr %objects, i64 %place",
        "  %object = load ptr, ptr %at",
        f"  %type.at = getelementptr i8, ptr %object, i64 {ctypes.sizeof(ctypes.c_ssize_t)}",
        "  %type = load ptr, ptr %type.at",
        "  %isarray = icmp eq ptr %type, @ndarray",
        "  br i1 %isarray, label %array, label %declined",
        "array:",
        f"  %flags.at = getelementptr i8, ptr %object, i64 {layout.flags}",
        "  %flags = load i32, ptr %flags.at",
        f"  %needed = and i32 %flags, {_NEEDED}",
        f"  %good = icmp eq i32 %needed, {_NEEDED}",
        "  br i1 %good, label %dense, label %declined",
        "dense:",
        "  %istyped = icmp ult i64 %place, %typed",
        "  br i1 %istyped, label %compare, label %keep",
        *_comparison_text(layout),
        "keep:",
        "  %row.next = phi ptr [ %row, %dense ], [ %row.end, %alike ]",
        f"  %data.at = getelementptr i8, ptr %object, i64 {layout.data}",
        "  %data = load ptr, ptr %data.at",
        "  %slot = getelementptr ptr, ptr %pointers, i64 %place",
        "  store ptr %data, ptr %slot",
        "  %next = add nuw nsw i64 %place, 1",
        "  %more = icmp ult i64 %next, %count",
        "  br i1 %more, label %check, label %run",
    ]


def _comparison_text(layout: _Layout) -> list[str]:
    """Return the blocks from `compare` to `alike`: check an array's dtype, rank and sizes against its row."""
    return [
        "compare:",
        f"  %dtype.at = getelementptr i8, ptr %object, i64 {layout.dtype}",
        "  %dtype = load ptr, ptr %dtype.at",
        "  %row.dtype = load ptr, ptr %row",
        "  %samedtype = icmp eq ptr %dtype, %row.dtype",
        f"  %rank.at = getelementptr i8, ptr %object, i64 {layout.rank}",
        "  %rank.short = load i32, ptr %rank.at",
        "  %rank = zext i32 %rank.short to i64",
        "  %row.rank.at = getelementptr i64, ptr %row, i64 1",
        "  %row.rank = load i64, ptr %row.rank.at",
        "  %samerank = icmp eq i64 %rank, %row.rank",
        "  %same = and i1 %samedtype, %samerank",
        f"  %sizes.at = getelementptr i8, ptr %object, i64 {layout.sizes}",
        "  %sizes = load ptr, ptr %sizes.at",
        "  %row.sizes = getelementptr i64, ptr %row, i64 2",
        "  br i1 %same, label %sized, label %declined",
        "sized:",
        "  %axis = phi i64 [ 0, %compare ], [ %axis.next, %size ]",
        "  %isaxis = icmp ult i64 %axis, %rank",
        "  br i1 %isaxis, label %size, label %alike",
        "size:",
        "  %size.at = getelementptr i64, ptr %sizes, i64 %axis",
        "  %size.here = load i64, ptr %size.at",
        "  %size.needed.at = getelementptr i64, ptr %row.sizes, i64 %axis",
        "  %size.needed = load i64, ptr %size.needed.at",
        "  %samesize = icmp eq i64 %size.here, %size.needed",
        "  %axis.next = add nuw nsw i64 %axis, 1",
        "  br i1 %samesize, label %sized, label %declined",
        "alike:",
        "  %row.end = getelementptr i64, ptr %row.sizes, i64 %rank",
        "  br label %keep",
    ]


def _rows(types: Sequence[ArrayType]) -> list[int]:
    """Return the rows that arrays of `types` are compared with: the dtype's address, rank and sizes of each."""
    return [word for shape, dtype in types for word in (id(dtype), len(shape), *shape)]


@once_per_process
def _entry() -> Library:
    """Return the entry of this process."""
    names = ("PyLong_FromLong", "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_Occurred")
    return compile_ir(_entry_text(), {"ndarray": id(np.ndarray), **interpreter_symbols(*names)})


class _EntryInfo(np.ndarray):
    """The `self` of a native function: the entry's data, and references that it keeps alive.

    CPython reads the PyMethodDef until the end of the function's deallocation, so that is kept alive through the
    array's base: attributes of an object in a cycle may be cleared before (object.h, tp_clear).
    """

    keep: object


def python_function(
    address: int, count: int, name: str, keep: object, types: Sequence[ArrayType] = ()
) -> Callable[..., int]:
    """Return a Python function that calls the native one at `address` with the data pointers of `count` arrays.

    The first of them must have `types`, else it returns 1 without a call. `keep` is kept alive.
    """
    entry = _entry()
    rows = np.array(_rows(types), np.int64)
    definition = _MethodDef(
        name.encode(), entry.address("entry"), _FASTCALL, None, address, count, len(types), rows.ctypes.data
    )
    words = (ctypes.c_int64 * 4).from_buffer(definition, _MethodDef.native.offset)
    info = np.frombuffer(words, np.int64).view(_EntryInfo)  # type: ignore[call-overload]  # ctypes arrays are buffers
    info.keep = (entry, keep, rows, types)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., int] = make(ctypes.addressof(definition), info, None)
    return function
