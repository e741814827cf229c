"""Interrupts of native loops: from time to time a loop asks the interpreter whether it is to go on.

The interpreter delivers an interrupt (Ctrl-C, or an exception that another thread sets) while it runs code of Python;
a native loop runs none. So after every so many turns, some hundredths of a second's worth, it calls a function of
Python that does nothing. Where an exception is delivered there, the native function returns at once, and its entry
hands the exception on.
"""

from __future__ import annotations

from spmd.backends.llvm.jit.interpreter import ANSWER, interpreter_symbols

#: The native function that asks: without arguments, an i32 that is 0 to go on.
POLL = "spmd.poll"
#: Operations between two calls, and the most turns.
_OPERATIONS, _MOST_TURNS = 1 << 26, 1 << 16

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


def turns_between(operations: int) -> int:
    """After how many turns of `operations` each a loop asks: a power of two."""
    turns = 1
    while turns < _MOST_TURNS and 2 * turns * max(operations, 1) <= _OPERATIONS:
        turns *= 2
    return turns


def _nothing() -> None:
    """Where the interpreter delivers what is waiting."""


def poll_symbols() -> dict[str, int]:
    """Return the addresses that `POLL_TEXT` refers to."""
    names = ("PyGILState_Ensure", "PyGILState_Release", "PyObject_CallNoArgs", "Py_DecRef")
    return {"spmd.nothing": id(_nothing), **interpreter_symbols(*names)}
