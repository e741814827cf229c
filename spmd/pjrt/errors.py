"""Errors of the interface: a code and a text.

Source: pjrt_c_api.h, PJRT_Error_Code, which are the status codes of Abseil.
"""

from __future__ import annotations

import traceback
from enum import IntEnum

from spmd.errors import CollectiveError, CompileError, ParseError, SpmdError, UsageError, VerificationError


class Code(IntEnum):
    """What kind of error it is."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13


class PjrtError(Exception):
    """An error that a frontend is given."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @classmethod
    def of(cls, error: BaseException) -> PjrtError:
        """Return an error to be kept or raised in place of `error`, whose traceback keeps all that its frames have."""
        return cls(*described(error))


def unimplemented(text: str) -> PjrtError:
    """Return the error of what this client does not do."""
    return PjrtError(Code.UNIMPLEMENTED, text)


_CODES: tuple[tuple[type[BaseException], Code], ...] = (
    (NotImplementedError, Code.UNIMPLEMENTED),
    (CompileError, Code.UNIMPLEMENTED),  # the program is valid: something in it cannot be run here
    (ParseError, Code.INVALID_ARGUMENT),
    (VerificationError, Code.INVALID_ARGUMENT),
    (UsageError, Code.INVALID_ARGUMENT),
    (CollectiveError, Code.ABORTED),
    (MemoryError, Code.RESOURCE_EXHAUSTED),
    (KeyboardInterrupt, Code.CANCELLED),
)


def described(error: BaseException) -> tuple[int, str]:
    """Return the code and the text of an exception; those that are no error of this runtime have their traceback."""
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    if isinstance(error, PjrtError):
        return error.code, f"{error}{notes}"
    if isinstance(error.__cause__, PjrtError):  # of a handler that the program calls
        return error.__cause__.code, f"{error}{notes}"
    code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)
    if isinstance(error, SpmdError):
        return code, f"{error}{notes}"
    return code, "".join(traceback.format_exception(error)).strip()
