"""Groups of processes as HLO text spells them, in three ways.

    {{0,1},{2,3}}                        each group's ids
    [2,2]<=[4]  [2,2]<=[2,2]T(1,0)       ids counted up in a shape, transposed, cut into rows
    mesh['x'=2,'y'=4] {'y'}              along axes of a mesh, or parts of them: {'y':(2)2}
    mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}    whose devices are counted up in a shape, and transposed

Source: XLA's CollectiveDeviceList, IotaReplicaGroupList and MeshAxesReplicaGroupList.
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import prod

import numpy as np

from spmd.builder.hlo.reader import split

_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_DEVICES = re.compile(r"\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\](?:,?\s*device_ids=\(?(.*?)\)?)?\s*\{([^}]*)\}")
_AXIS = re.compile(r"'([^']*)'=(\d+)")
_PART = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")
#: Of how many processes groups are read: more take seconds, and no machine has them.
_MOST = 1 << 19

Groups = list[list[int]]


def parse_groups(text: str) -> Groups:
    """Return the groups; ValueError where the text is of none."""
    if text.startswith("mesh["):
        return _of_mesh(text)
    if "<=" not in text:
        return [[int(n) for n in split(row)] for row in split(text)]
    match = _IOTA.fullmatch(text)
    if match is None:
        raise ValueError(f"replica_groups={text} are no groups")
    rows = [int(n) for n in match[1].split(",")]
    groups: Groups = _iota(match[2], match[3]).reshape(rows).tolist()
    return groups


def _iota(sizes: str, order: str | None) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    shape = [int(n) for n in sizes.split(",")]
    if prod(shape) > _MOST:
        raise ValueError(f"groups of {prod(shape)} processes, of which {_MOST} are read at most")
    ids = np.arange(prod(shape)).reshape(shape)
    return ids.transpose([int(n) for n in order.split(",")]) if order else ids


def _of_mesh(text: str) -> Groups:
    """Return one group for each place on the other axes; its members in the order of the named axes."""
    match = _MESH.fullmatch(text)
    if match is None:
        raise ValueError(f"replica_groups={text} are no groups of a mesh")
    axes = [(name, int(size)) for name, size in _AXIS.findall(match[1])]
    sizes = [size for _, size in axes]
    ids = _devices(match[2], sizes)
    listed_parts = [_part(entry, dict(axes)) for entry in split(match[3])]
    shape: list[int] = []
    places: dict[tuple[str, int], int] = {}
    for name, size in axes:
        cuts = sorted({1, size, *(cut for axis, first, last in listed_parts if axis == name for cut in (first, last))})
        for low, high in pairwise(cuts):
            if high % low:
                raise ValueError(f"replica_groups={text}: parts of axis {name} overlap")
            places[name, low] = len(shape)
            shape.append(high // low)
    inside = [
        place for axis, first, last in listed_parts for (name, low), place in places.items()
        if name == axis and first <= low < last
    ]  # fmt: skip
    outside = [place for place in range(len(shape)) if place not in inside]
    members = prod(shape[place] for place in inside)
    groups: Groups = ids.reshape(shape).transpose([*outside, *inside]).reshape(-1, members).tolist()
    return groups


def _devices(text: str | None, sizes: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    if not text:
        return _iota(",".join(map(str, sizes)) or "1", None)
    match = _DEVICES.fullmatch(text)
    ids = _iota(match[1], match[2]) if match else np.array([int(n) for n in split(text)])
    if ids.size != prod(sizes):
        raise ValueError(f"{ids.size} devices for a mesh of {prod(sizes)}")
    return ids


def _part(text: str, sizes: dict[str, int]) -> tuple[str, int, int]:
    """Return (axis, first, last): an axis goes from 1 to its size, a part of it between two of its divisors."""
    match = _PART.fullmatch(text)
    if match is None or match[1] not in sizes:
        raise ValueError(f"{text} is no axis of the mesh")
    if match[2] is None:
        return match[1], 1, sizes[match[1]]
    first = int(match[2])
    return match[1], first, first * int(match[3])
