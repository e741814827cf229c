"""Timers in native functions: ticks of the processor's cycle counter."""

from __future__ import annotations

import threading

import numpy as np

from spmd.compiler.schedule.watching import ClockedPart
from spmd.ir import Op
from spmd.support.arrays import Array

Counters = Array


class NativeClock:
    """The timed parts of a function, and the measurements of the last call, per Python thread."""

    def __init__(self) -> None:
        self.parts: list[ClockedPart] = []
        self._local = threading.local()

    def add(self, ops: tuple[Op, ...], outer: int | None, is_called: bool) -> int:
        """Return the number of a new part."""
        self.parts.append(ClockedPart(ops, outer, is_called))
        return len(self.parts) - 1

    def start(self) -> Counters:
        """Return zeroed counters for a call: ticks and number of runs of each part."""
        counters = self._local.counters = np.zeros((len(self.parts), 2), np.int64)
        return counters

    def last(self) -> Counters:
        """Return the counters of this thread's last call."""
        counters: Counters = self._local.counters
        return counters
