"""Python's stack, which a program that nests deep enough uses up: an error of ours instead of RecursionError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spmd.errors import Diagnostic, Location, SpmdError


@contextmanager
def within_stack(error: type[SpmdError], location: Location, what: str) -> Iterator[None]:
    """RecursionError becomes `error` at `location`: `what` nests too deep."""
    try:
        yield
    except RecursionError:
        # Told from here, where the stack is short again.
        raise error(Diagnostic(location, f"{what} nests too deep")) from None
