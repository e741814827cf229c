"""What the partitioner weighs its choices by: what a collective's start and an operation are worth in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Prices:
    """Bytes that could be sent while a collective starts, and operations that take as long as sending a byte."""

    latency: float = 32.0
    operations: float = 64.0


_IN_FORCE: ContextVar[Prices] = ContextVar("prices", default=Prices())  # noqa: B039 (it is frozen)


def prices() -> Prices:
    """Those in force: by default no machine's, the same everywhere."""
    return _IN_FORCE.get()


@contextmanager
def using(chosen: Prices) -> Iterator[None]:
    """While programs are partitioned by other prices. Every process of a program must use the same."""
    token = _IN_FORCE.set(chosen)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)
