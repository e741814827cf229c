"""Clocks inside native functions: ticks of the processor's counter that parts of a function take."""

from __future__ import annotations

import threading

import numpy as np

from spmd.compiler.schedule.watching import ClockedPart
from spmd.ir import Op
from spmd.support.arrays import Array

Counters = Array


class NativeClock:
    """The parts of a function that are timed, and what the last calls measured, by thread of Python."""

    def __init__(self) -> None:
        self.parts: list[ClockedPart] = []
        self._local = threading.local()

    def add(self, ops: tuple[Op, ...], outer: int | None, is_called: bool) -> int:
        """Return the number of a new part."""
        self.parts.append(ClockedPart(ops, outer, is_called))
        return len(self.parts) - 1

    def start(self) -> Counters:
        """What a call counts in: ticks and calls of each part."""
        counters = self._local.counters = np.zeros((len(self.parts), 2), np.int64)
        return counters

    def last(self) -> Counters:
        """What the last call of this thread counted."""
        counters: Counters = self._local.counters
        return counters
