"""The partitioner's cost model: latency of a collective and operations per byte, in bytes sent."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass

from spmd.support.context import holding


@dataclass(frozen=True)
class Prices:
    """`latency`: bytes sent in the time that a collective takes to start; `operations`: operations per byte sent."""

    latency: float = 32.0
    operations: float = 64.0


_IN_FORCE: ContextVar[Prices] = ContextVar("prices", default=Prices())  # noqa: B039 (it is frozen)


def prices() -> Prices:
    """Return the prices in force; by default they do not depend on the machine."""
    return _IN_FORCE.get()


def using(chosen: Prices) -> AbstractContextManager[None]:
    """Return a context in which programs are partitioned by `chosen` prices, which all processes must share."""
    return holding(_IN_FORCE, chosen)
