"""What calls take of memory."""

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def with_peak_memory(call: Callable[[], T]) -> tuple[T, int]:
    """What `call` returns, and the most bytes of Python's memory that were in use meanwhile."""
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
