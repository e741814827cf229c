"""The memory that values take and that is available."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache, lru_cache
from math import prod
from pathlib import Path

from collectives.system import IS_LINUX
from spmd.support import control_groups
from spmd.types import TensorType, TupleType, Type

#: Files of a control group's memory limit and usage, in version 2 and in version 1.
_GROUP_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
#: Strides, in bytes, must be less than this.
_STRIDES = 1 << 63
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@cache
def memory_here() -> int:
    """Return the bytes of memory that this process may have: the least of the machine's, control groups' and rlimit."""
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
    """Return the bytes of memory that are available without reclaim from others, in the machine and control groups."""
    limits = [memory_here()]
    try:
        lines = [] if not IS_LINUX else Path("/proc/meminfo").read_text().splitlines()
        limits += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        pass  # not readable
    limits += [limit - used for limit, used in _group_limits()]
    return max(0, min(limits))


def _group_limits() -> list[tuple[int, int]]:
    """Return the limit of each control group of this process that has one, and its usage without reclaimable cache."""
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
    """Return the fault if values of `types` do not fit into memory together; None if they do."""
    all_types = list(types)
    if (fault := uncountable(all_types)) is not None:
        return fault
    size = sum(map(_bytes, all_types))
    if size <= memory_here():
        return None
    largest = max(all_types, key=_bytes)
    return over_memory(str(largest), _bytes(largest), size)


def uncountable(types: Iterable[Type]) -> str | None:
    """Return the fault if one of `types` has strides beyond 64 bits, even without elements; None if none has."""
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
    """Return the fault if `what`, of `size` bytes, raises the total held to more than the memory; None if it fits."""
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
