"""Files of what processes recorded, ours and those of PyTorch's flight recorder, as plain values.

A pickle may name any function of any module to be called. Here it makes dicts, lists, tuples, numbers and strings, and
nothing else; PyTorch's own way to write a list of integers is one of those. It may also name one list again and again:
what it stands for written out is bounded by its length.
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
from collectives.recorder import DTYPES

#: What pickles of PyTorch name, and what stands for it here.
_PLAIN: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): dict,
    ("torch.jit._pickle", "build_intlist"): list,
    ("torch.jit._pickle", "build_doublelist"): list,
    ("torch.jit._pickle", "build_boollist"): list,
    ("torch.jit._pickle", "restore_type_tag"): lambda value, _: value,
}
_NUMPY_NAMES = {theirs: name for name, theirs in DTYPES.items()}
_STATES = "completed", "started", "scheduled"
#: Values, and each 64 characters of strings, that a file may hold for each of its bytes.
_MOST_PER_BYTE = 16
_LEAST_NUMBER, _END_OF_NUMBERS = -(2**63), 2**64


class RecordError(CommunicationError, ValueError):
    """A file that holds no records."""


@dataclass(frozen=True)
class Call:
    """A collective, or a transfer, as one rank called it: as number ``number`` of ``group``. Times are in seconds
    since the epoch; None for what has not come about, or is not known."""

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
class Activity:
    """What a rank did beside communicating: a step, a compilation, a checkpoint; ``ended`` is None until it has."""

    text: str
    began: float
    ended: float | None


@dataclass(frozen=True)
class Record:
    """What one rank recorded. ``groups`` are the ranks of each group, by name; ``written`` is when, if it is known;
    ``goes_on``: the job did."""

    path: Path
    rank: int
    host: str
    reason: str
    goes_on: bool
    written: float | None
    groups: dict[str, tuple[int, ...]]
    calls: tuple[Call, ...]
    activities: tuple[Activity, ...]


def read_all(paths: Sequence[Path]) -> list[Record]:
    """The records of files and of those in folders, by rank, one a rank. RecordError where there are none, or several
    of one rank."""
    records: dict[int, Record] = {}
    for path in paths:
        for file in _files(path) if path.is_dir() else [path]:
            record = read(file)
            if record.rank in records:
                raise RecordError(f"{file}: {records[record.rank].path} is of rank {record.rank}, too")
            records[record.rank] = record
    return [records[rank] for rank in sorted(records)]


def _files(folder: Path) -> list[Path]:
    """Those of a folder whose names end with a rank; where there are none, those of JSON."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    found = [path for path in files if re.search(r"\d$", path.name)] or [p for p in files if p.suffix == ".json"]
    if not found:
        raise RecordError(f"{folder}: there are no records of ranks here, files whose names end with the rank")
    return found


def read(path: Path) -> Record:
    """One file. RecordError, which names it, where it holds something else; OSError where it cannot be read."""
    data = path.read_bytes()
    try:
        content = json.loads(data) if data[:1] in (b"{", b"[") else _Unpickler(io.BytesIO(data)).load()
        _check_plain(content, 1024 + _MOST_PER_BYTE * len(data))
        return _record(path, content)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    except Exception as error:  # of bytes that are no pickle, pickle raises what it likes
        detail = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise RecordError(f"{path}: neither a pickle nor JSON of a flight recorder{detail}") from None


# The C implementation would make room for as many objects as the highest number that a file gives one: gigabytes.
class _Unpickler(pickle._Unpickler):
    """Makes plain containers, and calls nothing that is not one of `_PLAIN`."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in _PLAIN:
            raise RecordError(f"a pickle that calls {module}.{name}, which records do not: it was not read")
        return _PLAIN[module, name]


def _check_plain(content: Any, most: int) -> None:
    """Raise RecordError where `content` holds other values than a record's, or more than `most`, each use counted."""
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
            raise RecordError("it says the same again and again, as records do not")
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
            raise RecordError("whose records these are is told by a number at the end of the name, such as rank_3")
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
            Activity(
                f"{_text(note['kind'])} {_text(note['what'])}",
                _seconds(note["time_created_ns"]) or 0.0,
                _seconds(note["time_discovered_completed_ns"]),
            )
            for note in content.get("notes", ())
        ),
    )


def _text(value: Any) -> str:
    """Return what stands for a string; RecordError where it is of other values."""
    if isinstance(value, dict | list | tuple):
        raise RecordError(f"a {type(value).__name__} where records have a name")
    return str(value)


def _call(number: int, entry: Any) -> Call:
    missing = {"profiling_name", "collective_seq_id", "process_group", "state"} - set(entry)
    if missing:
        raise RecordError(f"entry {number} has no {', '.join(sorted(missing))}")
    name = _text(entry["profiling_name"]).rpartition(":")[2]
    inputs, outputs = (_sizes(entry.get(key)) for key in ("input_sizes", "output_sizes"))
    dtypes = tuple(_NUMPY_NAMES.get(each, each) for each in map(_text, entry.get("input_dtypes", ())))
    is_transfer = bool(entry.get("is_p2p", False))
    op = entry.get("op") and _text(entry["op"])
    text = op or f"{name} of {_extent(inputs)} {', '.join(dtypes)}".rstrip()
    # PyTorch's gloo notes only that a call is retired.
    state = "completed" if entry.get("retired") and entry["state"] == "scheduled" else _text(entry["state"])
    return Call(
        _text(entry["process_group"][0]),
        int(entry["p2p_seq_id"] if is_transfer else entry["collective_seq_id"]),
        name,
        text,
        # Sizes may differ by rank where each gives or gets what it likes, or one alone has any.
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
    """The innermost line of the program, which is none of PyTorch's own."""
    own = [frame for frame in frames if "/torch/" not in frame["filename"]] or frames
    return f"{own[0]['filename']}:{_text(own[0]['line'])}" if own else ""


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(size) for size in each) for each in value or ())


def _extent(sizes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join("x".join(map(str, each)) or "scalar" for each in sizes)


def _ranks(text: Any) -> tuple[int, ...]:
    """``"[0, 1]"``, or a list."""
    return tuple(int(each) for each in (re.findall(r"\d+", text) if isinstance(text, str) else text or ()))


def _seconds(nanoseconds: Any) -> float | None:
    if nanoseconds is None:
        return None
    if not math.isfinite(nanoseconds):
        raise RecordError(f"{nanoseconds} where records have a time")
    return float(nanoseconds) / 1e9
