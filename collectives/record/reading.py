"""Reader of recordings, spmd's and those of PyTorch's flight recorder, as plain values.

A pickle may call any function. This reader constructs only dicts, lists, tuples, numbers and strings, and PyTorch's
serialization of lists. A pickle may also refer to one list many times: the expanded size is bounded by the file's.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives.errors import CommunicationError
from collectives.record.recorder import DTYPES

#: Globals that pickles of PyTorch refer to, and their replacements.
_PLAIN: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): dict,
    ("torch.jit._pickle", "build_intlist"): list,
    ("torch.jit._pickle", "build_doublelist"): list,
    ("torch.jit._pickle", "build_boollist"): list,
    ("torch.jit._pickle", "restore_type_tag"): lambda value, _: value,
}
_NUMPY_NAMES = {theirs: name for name, theirs in DTYPES.items()}
_STATES = "completed", "started", "scheduled"
#: Maximum number of values, and of 64-character pieces of strings, per byte of a file.
_MOST_PER_BYTE = 16
_LEAST_NUMBER, _END_OF_NUMBERS = -(2**63), 2**64


class RecordError(CommunicationError, ValueError):
    """A file that is not a recording."""


@dataclass(frozen=True)
class RecordedCall:
    """A collective or a transfer as one rank called it, number ``number`` of ``group``.

    Times are in seconds since the epoch; None if it has not happened or is unknown.
    """

    group: str
    number: int
    name: str
    text: str
    signature: tuple[object, ...]
    state: str
    place: str
    is_transfer: bool
    started: float | None
    completed: float | None


@dataclass(frozen=True)
class RecordedActivity:
    """Something else that a rank did: a step, a compilation, a checkpoint; ``ended`` is None while it runs."""

    text: str
    began: float
    ended: float | None


@dataclass(frozen=True)
class Record:
    """The recording of one rank.

    ``groups`` maps names to ranks; ``written`` is the time of writing, if known; ``goes_on`` is set if the job was
    running normally.
    """

    path: Path
    rank: int
    host: str
    reason: str
    goes_on: bool
    written: float | None
    groups: dict[str, tuple[int, ...]]
    calls: tuple[RecordedCall, ...]
    activities: tuple[RecordedActivity, ...]


def read_all(paths: Sequence[Path]) -> list[Record]:
    """Return the records in files and folders, sorted by rank. RecordError if there are none, or two of one rank."""
    records: dict[int, Record] = {}
    for path in paths:
        for file in _files(path) if path.is_dir() else [path]:
            record = read(file)
            if record.rank in records:
                raise RecordError(f"{file}: {records[record.rank].path} is of rank {record.rank}, too")
            records[record.rank] = record
    return [records[rank] for rank in sorted(records)]


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder whose names end with a rank; if there are none, the JSON files."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    found = [path for path in files if re.search(r"\d$", path.name)] or [p for p in files if p.suffix == ".json"]
    if not found:
        raise RecordError(f"{folder}: there are no records of ranks here, files whose names end with the rank")
    return found


def read(path: Path) -> Record:
    """Return the record in a file. RecordError, with the path, if it is none; OSError if it cannot be read."""
    data = path.read_bytes()
    try:
        content = json.loads(data) if data[:1] in (b"{", b"[") else _Unpickler(io.BytesIO(data)).load()
        _check_plain(content, 1024 + _MOST_PER_BYTE * len(data))
        return _record(path, content)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    except Exception as error:  # pickle raises anything for invalid bytes
        detail = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise RecordError(f"{path}: neither a pickle nor JSON of a flight recorder{detail}") from None


# The C implementation allocates as many objects as the highest memo index in the file: gigabytes.
class _Unpickler(pickle._Unpickler):
    """Constructs plain containers, and rejects globals that are not in `_PLAIN`."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in _PLAIN:
            raise RecordError(f"a pickle that calls {module}.{name}, which records do not: it was not read")
        return _PLAIN[module, name]


def _check_plain(content: Any, most: int) -> None:
    """Raise RecordError if `content` holds other types of values, or more than `most` values, with repetitions."""
    left, count = [content], 1
    while left:
        value = left.pop()
        if isinstance(value, dict):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            inner = list(value)
        else:
            inner = []
            if isinstance(value, str | bytes):
                count += len(value) // 64
            elif isinstance(value, int) and not _LEAST_NUMBER <= value < _END_OF_NUMBERS:
                raise RecordError("a number of more than 64 bits, which records do not have")
            elif not isinstance(value, int | float | None):
                raise RecordError(f"a {type(value).__name__}, which records do not have")
        count += len(inner)
        if count > most:
            raise RecordError("its repeated references expand to more values than records have")
        left += inner


def _record(path: Path, content: Any) -> Record:
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise RecordError("no records of a rank: a dict with a list of 'entries' is needed")
    entries = content["entries"]
    config = content.get("pg_config") or {}
    groups = {_text(name): _ranks(each.get("ranks")) for name, each in config.items()}
    rank = content.get("rank")
    if not isinstance(rank, int) or rank < 0:
        found = re.search(r"(\d+)$", path.stem)
        if found is None:
            raise RecordError("the file's name must end with the rank, such as rank_3")
        rank = int(found[1])
    return Record(
        path,
        rank,
        _text(content.get("host", "")),
        _text(content.get("reason", "")),
        bool(content.get("goes_on", False)),
        _seconds(content.get("recorded_ns")),
        groups,
        tuple(_call(number, entry) for number, entry in enumerate(entries)),
        tuple(
            RecordedActivity(
                f"{_text(note['kind'])} {_text(note['what'])}",
                _seconds(note["time_created_ns"]) or 0.0,
                _seconds(note["time_discovered_completed_ns"]),
            )
            for note in content.get("notes", ())
        ),
    )


def _text(value: Any) -> str:
    """Return ``value`` as a string; RecordError for a container."""
    if isinstance(value, dict | list | tuple):
        raise RecordError(f"a {type(value).__name__} where records have a name")
    return str(value)


def _call(number: int, entry: Any) -> RecordedCall:
    missing = {"profiling_name", "collective_seq_id", "process_group", "state"} - set(entry)
    if missing:
        raise RecordError(f"entry {number} has no {', '.join(sorted(missing))}")
    name = _text(entry["profiling_name"]).rpartition(":")[2]
    inputs, outputs = (_sizes(entry.get(key)) for key in ("input_sizes", "output_sizes"))
    dtypes = tuple(_NUMPY_NAMES.get(each, each) for each in map(_text, entry.get("input_dtypes", ())))
    is_transfer = bool(entry.get("is_p2p", False))
    op = entry.get("op") and _text(entry["op"])
    text = op or f"{name} of {_extent(inputs)} {', '.join(dtypes)}".rstrip()
    # The gloo backend of PyTorch only records that a call is retired.
    state = "completed" if entry.get("retired") and entry["state"] == "scheduled" else _text(entry["state"])
    return RecordedCall(
        _text(entry["process_group"][0]),
        int(entry["p2p_seq_id"] if is_transfer else entry["collective_seq_id"]),
        name,
        text,
        # Sizes may differ by rank in collectives with per-rank sizes, or with an operand on one rank only.
        (
            name.split(" ")[0],
            op,
            inputs if name not in ("all_to_all", "scatter") else (),
            outputs if name not in ("all_to_all", "gather") else (),
            dtypes if name not in ("scatter", "broadcast") else (),
        ),
        state if state in _STATES else "started",
        _place(entry.get("frames") or ()),
        is_transfer,
        _seconds(entry.get("time_discovered_started_ns") or entry.get("time_created_ns")),
        _seconds(entry.get("time_discovered_completed_ns")),
    )


def _place(frames: Sequence[Any]) -> str:
    """Return the innermost source line of the program, outside of PyTorch."""
    own = [frame for frame in frames if "/torch/" not in frame["filename"]] or frames
    return f"{own[0]['filename']}:{_text(own[0]['line'])}" if own else ""


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(size) for size in each) for each in value or ())


def _extent(sizes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join("x".join(map(str, each)) or "scalar" for each in sizes)


def _ranks(text: Any) -> tuple[int, ...]:
    """Return ranks from ``"[0, 1]"`` or a list."""
    return tuple(int(each) for each in (re.findall(r"\d+", text) if isinstance(text, str) else text or ()))


def _seconds(nanoseconds: Any) -> float | None:
    if nanoseconds is None:
        return None
    if not math.isfinite(nanoseconds):
        raise RecordError(f"{nanoseconds} where records have a time")
    return float(nanoseconds) / 1e9
