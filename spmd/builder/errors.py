"""Errors of the builder."""

from __future__ import annotations

from spmd.errors import VerificationError


class BuilderError(VerificationError):
    """A call of the builder violates a precondition; names the operation, the argument and the Python line."""


class ArgumentError(Exception):
    """An argument of the current operation is invalid; the builder adds the operation and the location."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(f"argument {argument}: {message}")
        self.argument = argument
