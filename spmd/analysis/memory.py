"""How much memory a value takes, beside how much there is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache, lru_cache
from math import prod
from pathlib import Path

from collectives.system import IS_LINUX
from spmd.support import control_groups
from spmd.types import TensorType, TupleType, Type

#: What a control group's limit and its usage are called, in the second version and in the first.
_GROUP_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
#: Bytes that no stride of an array reaches.
_STRIDES = 1 << 63
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@cache
def memory_here() -> int:
    """Bytes of memory that this process can have at most: of the machine, its control groups, or its own limit."""
    limits = [1 << 62]
    if "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limits += [limit for limit, _ in _group_limits()]
    try:
        import resource  # late: Unix alone has it
    except ImportError:  # not a Unix
        return min(limits)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return min(limits if limit == resource.RLIM_INFINITY else [*limits, limit])


def free_memory() -> int:
    """Bytes that a program may still take without others having to go: of the machine, and of its control groups."""
    limits = [memory_here()]
    try:
        lines = [] if not IS_LINUX else Path("/proc/meminfo").read_text().splitlines()
        limits += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        pass  # the system keeps it to itself
    limits += [limit - used for limit, used in _group_limits()]
    return max(0, min(limits))


def _group_limits() -> list[tuple[int, int]]:
    """Return the limit of each control group around this process that has one, and the bytes that cannot be freed of
    it."""
    found = []
    for folder in control_groups.folders("memory"):
        for limited, taken in _GROUP_FILES:
            limit = control_groups.number(folder / limited)
            if limit is not None:
                used = control_groups.number(folder / taken) or 0
                cached = control_groups.entry(folder / "memory.stat", "total_inactive_file", "inactive_file")
                found.append((limit, max(0, used - cached)))
    return found


def too_large(types: Iterable[Type]) -> str | None:
    """What is wrong with values of `types`, held at once, when there is not so much memory; None when there is."""
    all_types = list(types)
    if (fault := uncountable(all_types)) is not None:
        return fault
    size = sum(map(_bytes, all_types))
    if size <= memory_here():
        return None
    largest = max(all_types, key=_bytes)
    return over_memory(str(largest), _bytes(largest), size)


def uncountable(types: Iterable[Type]) -> str | None:
    """What is wrong with `types` if no array has one of them: also one without elements has strides, in 64 bits."""
    for type in types:
        if isinstance(type, TupleType):
            fault = uncountable(type.types)
        else:
            fault = None if _has_strides(type) else f"{type} has strides that do not fit into 64 bits"
        if fault is not None:
            return fault
    return None


@lru_cache(maxsize=4096)
def _has_strides(type: Type) -> bool:
    if not isinstance(type, TensorType) or not type.is_static:
        return True
    return prod(max(size, 1) for size in type.static_shape) * type.dtype.itemsize < _STRIDES


def over_memory(what: str, size: int, total: int) -> str | None:
    """What is wrong with `what` of `size` bytes, which makes it `total` that are held, when there is not so much."""
    most = memory_here()
    if total <= most:
        return None
    beside = "" if size >= total else f", with what is held at the same time {_shown(total)}"
    return f"{what} takes {_shown(size)}{beside}, and there are {_shown(most)} of memory"


def _bytes(type: Type) -> int:
    if isinstance(type, TupleType):
        return sum(map(_bytes, type.types))
    return type.nbytes if isinstance(type, TensorType) and type.is_static else 0


def _shown(size: int) -> str:
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size / 2 ** (10 * unit):.3g} {_UNITS[unit]}"
