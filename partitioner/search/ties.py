"""Finds groups that repeat, such as those of a model's layers, to give them the same sharding.

Two groups are equivalent if they have the same dimensions and work, and their neighbours are equivalent:
colour refinement to a fixed point, as for isomorphism of graphs (Weisfeiler and Leman).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from partitioner.search.model import FactorGroup, Model, Projection

_MOST_ROUNDS = 64


@dataclass(frozen=True)
class Flow:
    """Equivalent tensors: of one shape, between equivalent groups."""

    shape: tuple[int, ...]
    itemsize: int
    source: int
    projection: Projection
    uses: tuple[tuple[int, Projection], ...]
    is_argument: bool = False


@dataclass
class Ties:
    """The class of each group; the first group and the size of each class; and the flows between classes."""

    classes: list[int]
    first: list[int]
    counts: list[int]
    flows: dict[Flow, float]


def find_equivalent_groups(model: Model) -> Ties:
    """Return the classes of equivalent groups of `model`."""
    colors = _numbered(_own(group) for group in model.groups)
    near: list[list[tuple[int, Hashable]]] = [[] for _ in model.groups]
    for tensor in model.tensors:
        for use in tensor.uses:
            key = (tensor.spec.shape, tensor.itemsize, tensor.projection, use.projection)
            near[use.group].append((tensor.group, ("from", key)))
            near[tensor.group].append((use.group, ("to", key)))
    for _ in range(_MOST_ROUNDS):
        refined = _numbered(
            (colors[index], tuple(sorted((repr(key), colors[other]) for other, key in near[index])))
            for index in range(len(colors))
        )
        if max(refined, default=-1) == max(colors, default=-1):
            break
        colors = refined
    count = max(colors, default=-1) + 1
    first = [colors.index(color) for color in range(count)]
    flows: dict[Flow, float] = {}
    arguments = set(model.arguments)
    for tensor in model.tensors:
        uses = tuple(sorted({(colors[use.group], use.projection) for use in tensor.uses}))
        if uses:
            source, is_argument = colors[tensor.group], tensor in arguments
            flow = Flow(tensor.spec.shape, tensor.itemsize, source, tensor.projection, uses, is_argument)
            flows[flow] = flows.get(flow, 0.0) + tensor.times
    return Ties(colors, first, [colors.count(color) for color in range(count)], flows)


def _own(group: FactorGroup) -> Hashable:
    work = tuple(sorted((tuple(sorted(dimensions)), round(seconds, 15)) for dimensions, seconds in group.work.items()))
    return group.sizes, group.is_cuttable, tuple(group.choices), work, group.names if len(group.names) < 64 else ()


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    """Return a number per key, equal for equal keys, in order of appearance."""
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]
