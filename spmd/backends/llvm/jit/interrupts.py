"""Interrupts of native loops, which poll the interpreter.

The interpreter delivers an interrupt (Ctrl-C, or an asynchronous exception) only while it runs Python code. So a native
loop calls an empty Python function periodically, every few hundredths of a second. If an exception is raised there, the
native function returns at once, and its entry propagates the exception.
"""

from __future__ import annotations

from spmd.backends.llvm.jit.interpreter import ANSWER, interpreter_symbols

#: The native function that polls: no arguments, returns an i32, 0 to continue.
POLL = "spmd.poll"
#: Operations between two polls, and most iterations.
_OPERATIONS, _MOST_ITERATIONS = 1 << 26, 1 << 16

POLL_TEXT = f"""
define internal i32 @{POLL}() {{
entry:
  %state = call i32 @PyGILState_Ensure()
  %result = call ptr @PyObject_CallNoArgs(ptr @spmd.nothing)
{ANSWER}
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyObject_CallNoArgs(ptr)
declare void @Py_DecRef(ptr)
@spmd.nothing = external global i8
"""


def iterations_between_polls(operations: int) -> int:
    """Return after how many iterations of `operations` each a loop polls: a power of two."""
    iterations = 1
    while iterations < _MOST_ITERATIONS and 2 * iterations * max(operations, 1) <= _OPERATIONS:
        iterations *= 2
    return iterations


def _nothing() -> None:
    """Do nothing: pending interrupts are delivered here."""


def poll_symbols() -> dict[str, int]:
    """Return the addresses of the externals of `POLL_TEXT`."""
    names = ("PyGILState_Ensure", "PyGILState_Release", "PyObject_CallNoArgs", "Py_DecRef")
    return {"spmd.nothing": id(_nothing), **interpreter_symbols(*names)}
