"""Time contestants alternately, so that disturbances of the machine affect all of them alike."""

import gc
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

LEAST_ROUNDS = 5


@dataclass(frozen=True)
class Timing:
    """The time of one contestant: seconds per call over the rounds."""

    median: float
    fastest: float
    spread: float
    rounds: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        """Summarize `seconds`; ``spread`` is the interquartile range relative to the median."""
        lower, median, upper = np.percentile(seconds, (25, 50, 75))
        return cls(float(median), float(min(seconds)), float((upper - lower) / median), len(seconds))


def in_turns(contestants: Mapping[str, Callable[[], object]], budget: float = 3.0) -> dict[str, Timing]:
    """Call all contestants in turn until ``budget`` seconds are spent, at least five rounds, after one unmeasured.

    A call must return only when its results are ready. Each contestant runs with caches that another has filled.
    """
    for call in contestants.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    began = time.perf_counter()
    gc.disable()
    try:
        while time.perf_counter() - began < budget or len(next(iter(seconds.values()))) < LEAST_ROUNDS:
            for name, call in contestants.items():
                start = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    return {name: Timing.of(values) for name, values in seconds.items()}


def paired_ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the median over rounds of first / second, so that a slow round affects both."""
    return float(np.median(np.asarray(first) / np.asarray(second)))


def write_json(path: Path, results: Mapping[str, Any]) -> None:
    """Write results and a description of the machine as JSON; dataclasses become objects."""
    machine = {"system": platform.platform(), "processor": _processor(), "python": platform.python_version()}
    path.write_text(json.dumps({"machine": machine, **results}, indent=1, default=asdict) + "\n")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def duration(seconds: float) -> str:
    """Return seconds in a suitable unit: ``1.23 ms``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as needed; the first is left-aligned, the others right-aligned."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        first, *others = (cell.ljust if index == 0 else cell.rjust for index, cell in enumerate(row))
        cells = [first(widths[0]), *(pad(width) for pad, width in zip(others, widths[1:], strict=True))]
        print("  ".join(cells).rstrip(), flush=True)
