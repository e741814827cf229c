"""Functions of Python as entries of the interface: arguments checked, exceptions as errors."""

from __future__ import annotations

import _thread
import ctypes
from collections.abc import Callable
from typing import Any

from spmd.pjrt.errors import Code, PjrtError, described
from spmd.pjrt.handles import Handle, find_or_none
from spmd.pjrt.structs import size_of, struct

#: What an entry does with its arguments.
Entry = Callable[[Any], None]

#: Functions of Python that are called with the address of an entry's arguments, and return an error's handle, or 0.
CROSSINGS: dict[str, Callable[[int], int]] = {}


class ErrorHandle(Handle):
    """An error that a frontend has been given, and destroys."""

    KIND = "Error"

    def __init__(self, code: int, text: str) -> None:
        super().__init__()
        self.record.code = code
        self.put_text("message", text)

    def destroy(self) -> None:
        """Give the record back, but for that of an error which is there for good."""
        if not self.record.is_permanent:
            self.release()


def _permanent(code: int, text: str) -> ErrorHandle:
    error = ErrorHandle(code, text)
    error.record.is_permanent = True
    return error


#: What is answered where an error cannot even be described, or there is no record for one.
FAILED = _permanent(Code.INTERNAL, "an entry of the client failed, and so did the description of its error")
#: What is answered where an interrupt ended a program; the interrupt comes again.
INTERRUPTED = _permanent(Code.CANCELLED, "the program was interrupted")


def error_handle(error: BaseException) -> int:
    """Return the handle of an error, which the frontend destroys."""
    try:
        return ErrorHandle(*described(error)).address
    except Exception:
        return FAILED.address


def entry(name: str, *, fails: bool = True) -> Callable[[Entry], Entry]:
    """Decorator: files a function as the entry `name`, called with its struct.

    Its exceptions are errors; of an entry that must not fail, since an error of it ends the process, there are none.
    """
    kind = struct(name)
    whole = size_of(name)

    def decorate(function: Entry) -> Entry:
        def crossing(address: int) -> int:
            try:
                if not address:
                    raise PjrtError(Code.INVALID_ARGUMENT, f"PJRT_{name} is called without arguments")
                size = ctypes.c_size_t.from_address(address).value
                if size >= whole:
                    function(kind.from_address(address))
                else:
                    _call_short(function, kind, address, size)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    _thread.interrupt_main()  # an error of the frontend is no interrupt: it comes again after it
                return error_handle(error) if fails else 0
            return 0

        CROSSINGS[name] = crossing
        return function

    return decorate


def destroys(name: str, kind: type[Handle], field: str) -> None:
    """File the entry `name`: it destroys the object whose handle is the argument `field`; what is no handle stays."""

    @entry(name, fails=False)
    def _(args: Any) -> None:
        found = find_or_none(kind, getattr(args, field))
        if found is not None:
            found.destroy()


def _call_short(function: Entry, kind: Any, address: int, size: int) -> None:
    """Call with the arguments of an older frontend: what it does not have is zero, and is not written."""
    args = kind()
    ctypes.memmove(ctypes.addressof(args), address, size)
    function(args)
    ctypes.memmove(address, ctypes.addressof(args), size)


destroys("Error_Destroy", ErrorHandle, "error")


@entry("Error_ForEachPayload")
def _(args: Any) -> None:
    """Errors have nothing but a code and a text."""
