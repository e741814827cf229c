"""Context variables set while a block of code runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """A context in which `variable` has `value`, in this thread or task."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
