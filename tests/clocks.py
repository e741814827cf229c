"""Time as tests have it: a clock that they set forward, and a wait for what is sure to come."""

import time
from collections.abc import Callable
from dataclasses import dataclass

#: For what is sure to come, on a machine that does much else: that it comes is asserted, not when.
WATCHDOG_SECONDS = 120.0
_POLL_SECONDS = 0.005


@dataclass
class Clock:
    """A clock that stands still at `now`, in seconds, until a test sets it forward."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait until `condition` holds. AssertionError, with `what`, if it does not come to that."""
    end = time.monotonic() + WATCHDOG_SECONDS
    while not condition():
        assert time.monotonic() < end, what or "what is waited for does not come"
        time.sleep(_POLL_SECONDS)
