"""Machine code of the interface's functions.

A getter copies facts from a handle's record into its arguments: it cannot fail, and takes no lock, which matters since
jaxlib calls some while it holds locks of its own. Every other entry crosses into a function of Python; a pending
exception is set aside meanwhile, for jaxlib also calls while Python unwinds. Once the interpreter is being taken down,
all of them return at once: destructors of C++ run until the end of the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

from spmd.backends.machine_code import Library, compile_ir, interpreter_symbols
from spmd.pjrt.getters import GETTERS, Getter, Shortcut
from spmd.pjrt.handles import END, SLOT, START, immortal
from spmd.pjrt.structs import KIND_AT, KINDS, place, size_of

#: What a function of Python is called with: the address of an entry's arguments. It returns an error's, or 0.
Crossing = Callable[[int], int]

_FINALIZING = "Py_IsFinalizing" if hasattr(ctypes.pythonapi, "Py_IsFinalizing") else "_Py_IsFinalizing"
_INTERPRETER = (
    "Py_IsInitialized",
    _FINALIZING,
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyErr_Clear",
    "PyLong_FromVoidPtr",
    "PyLong_AsVoidPtr",
    "PyObject_CallOneArg",
    "Py_DecRef",
)

_COMMON = f"""
declare i32 @Py_IsInitialized()
declare i32 @{_FINALIZING}()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare void @PyErr_Clear()
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare void @Py_DecRef(ptr)
@failed = external global i8
@records = external global i8

define i1 @is_over() nounwind {{
  %there = call i32 @Py_IsInitialized()
  %none = icmp eq i32 %there, 0
  %going = call i32 @{_FINALIZING}()
  %away = icmp ne i32 %going, 0
  %over = or i1 %none, %away
  ret i1 %over
}}

define i1 @is_handle(ptr %handle, i64 %kind) nounwind {{
  %address = ptrtoint ptr %handle to i64
  %from = sub i64 %address, ptrtoint (ptr @records to i64)
  %inside = icmp ult i64 %from, {END - START}
  br i1 %inside, label %aligned, label %no
aligned:
  %low = and i64 %from, {SLOT - 1}
  %even = icmp eq i64 %low, 0
  br i1 %even, label %look, label %no
look:
  %at = getelementptr i8, ptr %handle, i64 {KIND_AT}
  %found = load i64, ptr %at
  %same = icmp eq i64 %found, %kind
  ret i1 %same
no:
  ret i1 false
}}

define ptr @cross(ptr %function, ptr %args) nounwind {{
  %over = call i1 @is_over()
  br i1 %over, label %end, label %go
end:
  ret ptr null
go:
  %state = call i32 @PyGILState_Ensure()
  %type = alloca ptr
  %value = alloca ptr
  %traceback = alloca ptr
  call void @PyErr_Fetch(ptr %type, ptr %value, ptr %traceback)
  %address = call ptr @PyLong_FromVoidPtr(ptr %args)
  %result = call ptr @PyObject_CallOneArg(ptr %function, ptr %address)
  call void @Py_DecRef(ptr %address)
  %raised = icmp eq ptr %result, null
  br i1 %raised, label %clear, label %take
clear:
  call void @PyErr_Clear()
  br label %done
take:
  %error = call ptr @PyLong_AsVoidPtr(ptr %result)
  call void @Py_DecRef(ptr %result)
  br label %done
done:
  %answer = phi ptr [ @failed, %clear ], [ %error, %take ]
  %a = load ptr, ptr %type
  %b = load ptr, ptr %value
  %c = load ptr, ptr %traceback
  call void @PyErr_Restore(ptr %a, ptr %b, ptr %c)
  call void @PyGILState_Release(i32 %state)
  ret ptr %answer
}}

define void @nothing(ptr %unused) nounwind {{
  ret void
}}
"""


def _begun(name: str, field: str, kind: str, bad: str) -> list[str]:
    """The beginning of an entry: `%handle` is its argument `field`, and stands for an object of `kind`, or `bad`.

    Arguments that say of themselves that they are shorter than this client's are not touched.
    """
    at, _ = place(name, field)
    return [
        f"define ptr @{name}(ptr %args) nounwind {{",
        "  %none = icmp eq ptr %args, null",
        "  br i1 %none, label %end, label %begin",
        "end:",
        "  ret ptr null",
        "begin:",
        "  %size = load i64, ptr %args, align 1",
        f"  %whole = icmp uge i64 %size, {size_of(name)}",
        f"  br i1 %whole, label %alive, label %{'end' if bad != 'slow' else bad}",
        "alive:",
        "  %over = call i1 @is_over()",
        "  br i1 %over, label %end, label %go",
        "go:",
        f"  %handle.at = getelementptr i8, ptr %args, i64 {at}",
        "  %handle = load ptr, ptr %handle.at, align 1",
        f"  %good = call i1 @is_handle(ptr %handle, i64 {KINDS.index(kind) + 1})",
        f"  br i1 %good, label %good.handle, label %{bad}",
    ]


def _getter(getter: Getter) -> str:
    """A function that copies facts of a record; of no handle, nothing: zeros."""
    good, bad = ["good.handle:"], ["bad.handle:"]
    for number, (source, target) in enumerate(getter.fields):
        at, size = place(getter.name, target)
        bits = 8 * size
        to = f"  %to{number} = getelementptr i8, ptr %args, i64 {at}"
        if isinstance(source, int):
            value = str(source)
        else:
            origin, length = place(f"{getter.kind}Record", source)
            value = f"%v{number}"
            assert length == size, (getter.name, source)
            good.append(f"  %from{number} = getelementptr i8, ptr %handle, i64 {origin}")
            good.append(f"  %v{number} = load i{bits}, ptr %from{number}, align 1")
        good += [to, f"  store i{bits} {value}, ptr %to{number}, align 1"]
        bad += [to.replace("%to", "%bad"), f"  store i{bits} 0, ptr %bad{number}, align 1"]
    lines = [*_begun(getter.name, getter.handle, getter.kind, "bad.handle"), *good, "  ret ptr null"]
    return "\n".join([*lines, *bad, "  ret ptr null", "}"])


def _crossing(name: str) -> str:
    body = f"  %a = tail call ptr @cross(ptr @py.{name}, ptr %args)\n  ret ptr %a"
    return f"define ptr @{name}(ptr %args) nounwind {{\n{body}\n}}"


def _shortcut(shortcut: Shortcut) -> str:
    """A function that crosses into Python only where the handle's record has not a certain flag."""
    name = shortcut.name
    at, _ = place(f"{shortcut.kind}Record", shortcut.flag)
    lines = [
        *_begun(name, shortcut.handle, shortcut.kind, "slow"),
        "good.handle:",
        f"  %flag.at = getelementptr i8, ptr %handle, i64 {at}",
        "  %flag = load i8, ptr %flag.at",
        "  %quick = icmp ne i8 %flag, 0",
        "  br i1 %quick, label %short, label %slow",
        "short:",
    ]
    if shortcut.calls:
        (function_at, _), (argument_at, _) = (place(name, field) for field in shortcut.calls)
        lines += [
            f"  %function.at = getelementptr i8, ptr %args, i64 {function_at}",
            "  %function = load ptr, ptr %function.at",
            f"  %argument.at = getelementptr i8, ptr %args, i64 {argument_at}",
            "  %argument = load ptr, ptr %argument.at",
            "  %callable = icmp ne ptr %function, null",
            "  br i1 %callable, label %call, label %slow",
            "call:",
            "  call void %function(ptr null, ptr %argument)",
        ]
    lines += ["  ret ptr null", "slow:", f"  %a = call ptr @cross(ptr @py.{name}, ptr %args)", "  ret ptr %a", "}"]
    return "\n".join(lines)


def load(crossings: Mapping[str, Crossing], shortcuts: Mapping[str, Shortcut], failed: int) -> Library:
    """Return the machine code of all getters and of `crossings`; what raises answers with the error `failed`."""
    names = sorted(crossings)
    texts = [_COMMON, *map(_getter, GETTERS)]
    texts += [f"@py.{name} = external global i8" for name in names]
    texts += [_shortcut(shortcuts[name]) if name in shortcuts else _crossing(name) for name in names]
    symbols = {f"py.{name}": id(immortal(crossings[name])) for name in names}
    library: Library = immortal(
        compile_ir(
            "\n".join(texts), {"failed": failed, "records": START, **symbols, **interpreter_symbols(*_INTERPRETER)}
        )
    )
    return library
