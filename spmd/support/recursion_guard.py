"""Conversion of RecursionError, which deeply nested programs cause, into an SpmdError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spmd.errors import Diagnostic, Location, SpmdError


@contextmanager
def within_stack(error: type[SpmdError], location: Location, what: str) -> Iterator[None]:
    """Converts RecursionError to `error` at `location`: `what` nests too deep."""
    try:
        yield
    except RecursionError:
        # Raised here, where the stack has been unwound.
        raise error(Diagnostic(location, f"{what} nests too deep")) from None
