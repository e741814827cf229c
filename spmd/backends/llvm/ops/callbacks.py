"""Callbacks: ops without native code inside native loops and branches are run by Python.

The native function passes the number of the op and the addresses of its operands and results, which are in buffers. If
the op raises an exception, the native function returns at once, and its entry propagates the exception.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spmd.backends.llvm.emit.native_ops import CALL
from spmd.backends.llvm.jit.interpreter import ANSWER, interpreter_symbols
from spmd.backends.native import Callback
from spmd.compiler.schedule.buffers import nbytes
from spmd.ir import Value
from spmd.support.arrays import Array, Results
from spmd.types import TokenType

#: Runs an op: (process, *arrays) -> a tuple of arrays.
Run = Callable[..., tuple[Array, ...]]
#: Most cached array views per operand, by address.
_MOST_VIEWS = 16

CALL_TEXT = f"""
define internal i32 @{CALL}(i64 %number, ptr %pointers) {{
entry:
  %state = call i32 @PyGILState_Ensure()
  %which = call ptr @PyLong_FromLong(i64 %number)
  %where = call ptr @PyLong_FromVoidPtr(ptr %pointers)
  %arguments = alloca [2 x ptr], align 8
  store ptr %which, ptr %arguments
  %second = getelementptr ptr, ptr %arguments, i64 1
  store ptr %where, ptr %second
  %result = call ptr @PyObject_Vectorcall(ptr @spmd.python, ptr %arguments, i64 2, ptr null)
  call void @Py_DecRef(ptr %which)
  call void @Py_DecRef(ptr %where)
{ANSWER}
declare ptr @PyLong_FromLong(i64)
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
@spmd.python = external global i8
"""


class Callbacks:
    """The callbacks of one native function, by number."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._calls = [_Call(callback) for callback in callbacks]
        self._thread = threading.local()

    def running(self, call: Callable[..., Results]) -> Callable[..., Results]:
        """Return `call`, a native function, with the process as first argument: (process, *arrays)."""
        thread = self._thread

        def run(process: object, *inputs: Array) -> Results:
            before = getattr(thread, "process", None)
            thread.process = process
            try:
                return call(*inputs)
            finally:
                thread.process = before

        return run

    def __call__(self, number: int, address: int) -> None:
        self._calls[number].run(self._thread.process, address)

    def symbols(self) -> dict[str, int]:
        """Return the addresses of the externals of `CALL_TEXT`, beyond those of `POLL_TEXT`."""
        names = ("PyLong_FromLong", "PyLong_FromVoidPtr", "PyObject_Vectorcall")
        return {"spmd.python": id(self), **interpreter_symbols(*names)}


class _Call:
    def __init__(self, callback: Callback) -> None:
        self._program = callback.program
        self._keeps = callback.keeps_operands
        self._operands = [_View(value) for value in callback.inputs]
        self._results = [_View(value) for value in callback.outputs]
        self._addresses = ctypes.c_void_p * (len(self._operands) + len(self._results))

    def run(self, process: object, address: int) -> None:
        addresses = list(self._addresses.from_address(address))
        operands = [view.at(place) for view, place in zip(self._operands, addresses, strict=False)]
        if self._keeps:
            operands = [None if operand is None else operand.copy() for operand in operands]
        results = self._program(process, *operands)
        for view, place, array in zip(self._results, addresses[len(operands) :], results, strict=True):
            target = view.at(place)
            if target is not None:
                target[...] = array


class _View:
    """Array views of a value's type at given addresses; None for a token."""

    def __init__(self, value: Value) -> None:
        self._is_token = isinstance(value.type, TokenType)
        if not self._is_token:
            self._shape, self._dtype = value.tensor.static_shape, value.tensor.dtype
            self._nbytes = nbytes(value)
            self._memory = ctypes.c_char * max(1, self._nbytes)
        self._known: dict[int, Any] = {}

    def at(self, address: int | None) -> Any:
        if self._is_token:
            return None
        assert address is not None
        view = self._known.get(address)
        if view is None:
            if len(self._known) >= _MOST_VIEWS:
                self._known.clear()
            memory = np.frombuffer(memoryview(self._memory.from_address(address)), np.uint8)
            view = self._known[address] = memory[: self._nbytes].view(self._dtype).reshape(self._shape)
        return view
