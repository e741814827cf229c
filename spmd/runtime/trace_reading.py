"""Reader of traces in Chrome's format, as `spmd run`, `spmd launch` and `spmd predict` write them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from spmd.dialects import OPS
from spmd.dialects.core import Trait
from spmd.errors import UsageError

#: Categories of events that are not units: program calls, calls that are not recorded, waits within units.
PROGRAM, LEFT_OUT, WAIT = "program", "left out", "wait"
_TRANSFERS = frozenset(("stablehlo.send", "stablehlo.recv", "stablehlo.async_start", "stablehlo.async_done"))
#: Microseconds: larger times are invalid.
_LONGEST = 1e18


@dataclass(frozen=True)
class TraceEvent:
    """An event on a rank; `began` and `took` are in microseconds. `step` numbers the calls of a program."""

    rank: int
    name: str
    category: str
    place: str
    began: float
    took: float
    step: int | None = None


@dataclass(frozen=True)
class TraceFile:
    """The events of a file, in order, and the names of ranks."""

    events: list[TraceEvent]
    names: dict[int, str]


def communicates(name: str) -> bool:
    """Return whether events with the name of an op are communication."""
    return name in _TRANSFERS or (name in OPS and Trait.COLLECTIVE in OPS[name].traits)


def read_trace(path: str | PathLike[str]) -> TraceFile:
    """Return the trace at `path`; UsageError, which names it, if it is none."""
    try:
        entries = json.loads(Path(path).read_bytes())["traceEvents"]
        events = [_event(entry) for entry in entries if entry.get("ph") == "X"]
        named = [entry for entry in entries if entry.get("name") == "process_name"]
        return TraceFile(events, {_rank(entry): str(entry["args"]["name"]) for entry in named})
    except OSError as error:
        raise UsageError(f"{fspath(path)}: error: {error.strerror}") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        message = "error: is not a trace written by `spmd run --profile`"
        raise UsageError(f"{fspath(path)}: {message}: {repr(error)[:200]}") from None


def _event(entry: Mapping[str, Any]) -> TraceEvent:
    arguments = entry.get("args", {})
    place, step = arguments.get("place", ""), arguments.get("step")
    if step is not None and type(step) is not int:
        raise TypeError(f"step must be an integer, got {step!r}")
    name, category = _text(entry["name"]), _text(entry.get("cat", ""))
    times = _time(entry["ts"]), _time(entry["dur"])
    return TraceEvent(_rank(entry), name, category, _text(place), *times, step)


def _rank(entry: Mapping[str, Any]) -> int:
    rank = entry["pid"]
    if type(rank) is not int:
        raise TypeError(f"pid must be an integer, got {rank!r}")
    return rank


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"names, categories and places must be strings, got {value!r}")
    return value


def _time(value: Any) -> float:
    time = float(value) if isinstance(value, int | float) else math.nan
    if not -_LONGEST < time < _LONGEST:
        raise ValueError(f"times must be numbers of microseconds, got {value!r}")
    return time
