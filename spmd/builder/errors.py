"""The errors of building a program."""

from __future__ import annotations

from spmd.errors import VerificationError


class BuilderError(VerificationError):
    """A call of the builder breaks a precondition; names the operation, the argument and the Python line."""


class ArgumentError(Exception):
    """An argument of the operation being built is wrong; the builder adds operation and place."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(f"argument {argument}: {message}")
        self.argument = argument
