"""What the partitioner weighs its choices by: what a collective's start and an operation are worth in bytes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass

from spmd.support.context import holding


@dataclass(frozen=True)
class Prices:
    """Bytes that could be sent while a collective starts, and operations that take as long as sending a byte."""

    latency: float = 32.0
    operations: float = 64.0


_IN_FORCE: ContextVar[Prices] = ContextVar("prices", default=Prices())  # noqa: B039 (it is frozen)


def prices() -> Prices:
    """Those in force: by default no machine's, the same everywhere."""
    return _IN_FORCE.get()


def using(chosen: Prices) -> AbstractContextManager[None]:
    """While programs are partitioned by other prices. Every process of a program must use the same."""
    return holding(_IN_FORCE, chosen)
