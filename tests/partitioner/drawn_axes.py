"""The prime parts of a mesh's axes, dealt out at random, and how Shardy writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from partitioner.mesh import primes
from spmd.dialects import sdy_attributes as sdy

Mesh = tuple[tuple[str, int], ...]
MESHES: tuple[Mesh, ...] = (
    (("x", 4),),
    (("x", 2), ("y", 2)),
    (("x", 2), ("y", 3)),
    (("x", 2), ("y", 2), ("z", 2)),
    (("x", 8),),
    (("x", 4), ("y", 2)),
    (("x", 2), ("y", 4)),
)


@dataclass(frozen=True, order=True)
class PrimePart:
    """A prime part of an axis, which stands at `place` among all of the mesh's."""

    place: int
    name: str
    before: int
    size: int
    full: int


#: The parts that cut each dimension, major to minor.
Cuts = list[list[PrimePart]]


def parts_of(mesh: Mesh) -> list[PrimePart]:
    parts: list[PrimePart] = []
    for name, full in mesh:
        before = 1
        for size in primes(full):
            parts.append(PrimePart(len(parts), name, before, size, full))
            before *= size
    return parts


def refs(parts: Iterable[PrimePart]) -> tuple[sdy.AxisRef, ...]:
    """The parts as axes and sub-axes, neighbours joined."""
    runs: list[PrimePart] = []
    for part in parts:
        last = runs[-1] if runs else None
        if last is not None and last.name == part.name and last.before * last.size == part.before:
            runs[-1] = PrimePart(last.place, last.name, last.before, last.size * part.size, last.full)
        else:
            runs.append(part)
    return tuple(
        sdy.AxisRef(run.name, None if run.size == run.full else sdy.SubAxisInfo(run.before, run.size)) for run in runs
    )


def axes(parts: Iterable[PrimePart]) -> str:
    """`{"x", "y":(1)2}`."""
    return sdy.format_axes(refs(parts))


def lists(cuts: Cuts) -> str:
    """`[{"x"}, {}]`."""
    return f"[{', '.join(map(axes, cuts))}]"


def sharding(cuts: Cuts, unreduced: Iterable[PrimePart] = (), mesh: str = "mesh") -> str:
    """`<@mesh, [{"x"}, {}], unreduced={"y"}>`."""
    told = axes(sorted(unreduced))
    return f"<@{mesh}, {lists(cuts)}{'' if told == '{}' else f', unreduced={told}'}>"


def count(parts: Iterable[PrimePart]) -> int:
    return prod(part.size for part in parts)


def shuffled(random: np.random.Generator, parts: Sequence[PrimePart]) -> list[PrimePart]:
    return [parts[index] for index in random.permutation(len(parts))]


def some(random: np.random.Generator, parts: Iterable[PrimePart], share: float) -> list[PrimePart]:
    """Each of `parts` with a probability of `share`."""
    return [part for part in parts if random.random() < share]


def dealt(random: np.random.Generator, parts: Sequence[PrimePart], rank: int) -> Cuts:
    """`parts` in any order over `rank` dimensions, some left out."""
    cuts: Cuts = [[] for _ in range(rank)]
    for part in shuffled(random, parts):
        place = int(random.integers(rank + 1))
        if place < rank:
            cuts[place].append(part)
    return cuts


def mesh_line(mesh: Mesh, order: Sequence[int] = (), name: str = "mesh") -> str:
    """The mesh as an op of a module."""
    attribute = sdy.Mesh(tuple(sdy.MeshAxis(axis, size) for axis, size in mesh), tuple(order))
    return f"sdy.mesh @{name} = {attribute.format()}"


def orders(random: np.random.Generator, devices: int, share: float) -> list[int]:
    """The devices of a mesh in an order that must be written, with a probability of `share`; else none."""
    order = [int(device) for device in random.permutation(devices)]
    return order if random.random() < share and order != sorted(order) else []
