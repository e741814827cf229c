"""What the search decides on: groups of ops that are laid out alike, and the tensors that pass between them.

Dimensions are the union of factors over ops, by the partitioner's own rules: ops that act element by element join what
they read, and so all that passes along them has one layout. Contractions, gathers and the like stand alone, and what
they read and give may be laid out anew. Source: named dimensions as in TOAST (arXiv 2508.15010), sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from partitioner.graph import Spec
from spmd.ir import Value

#: Where an axis is, of a tensor: on one of its dimensions, nowhere, or the tensor is a partial sum over it.
NONE, PARTIAL = -1, -2
#: Of each axis of the mesh the dimension of a group that it cuts, or NONE; of a tensor PARTIAL, too.
Places = tuple[int, ...]
#: Of each dimension of a group the dimension of a tensor that it is, NONE, or PARTIAL where it is summed over.
Projection = tuple[int, ...]

#: How much larger padding may make a dimension.
_MOST_PADDING = 1.15
#: Dimensions of a group that are thought of, the largest; and choices of a group.
_MOST_DIMENSIONS, _MOST_CHOICES = 8, 729


@dataclass(eq=False)
class Group:
    """Ops that are laid out alike. `work` is seconds of one process by the dimensions that share them out."""

    sizes: tuple[int, ...]
    is_cuttable: tuple[bool, ...]
    work: dict[frozenset[int], float]
    names: tuple[str, ...]
    choices: list[Places] = field(default_factory=list)

    def seconds(self, places: Places, axes: Sequence[int]) -> float:
        """Return the seconds of one process with axes of these sizes at `places`."""
        total = 0.0
        for dimensions, seconds in self.work.items():
            blocks = prod(size for place, size in zip(places, axes, strict=True) if place in dimensions)
            total += seconds / blocks
        return total


@dataclass(frozen=True)
class Use:
    """A tensor as a group reads it."""

    group: int
    projection: Projection


@dataclass(eq=False)
class Tensor:
    """A value that a group gives, and the uses of it that may lay it out in another way.

    `times`: how often it is made. `born`, `dies`: the first and the last op by number that it is there for.
    """

    spec: Spec
    itemsize: int
    group: int
    projection: Projection
    times: float
    born: int
    dies: int
    uses: list[Use] = field(default_factory=list)
    is_kept: bool = False

    @property
    def bytes(self) -> float:
        return self.itemsize * float(prod(self.spec.shape))


@dataclass
class Model:
    """Groups, tensors, and the tensors of arguments and results."""

    axes: tuple[tuple[str, int], ...]
    groups: list[Group]
    tensors: list[Tensor]
    arguments: list[Tensor | None]
    #: Of each result, the argument that it comes back as.
    returned: list[int | None]
    results: list[Tensor | None]
    length: int
    #: What propagation works on, of each value.
    specs: Mapping[Value, Spec]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.axes)


def project(projection: Projection, places: Places) -> Places:
    """Where axes are, of a tensor, that are at `places` of a group."""
    return tuple(projection[place] if place >= 0 else NONE for place in places)


def all_choices(group: Group, axes: Sequence[int]) -> list[Places]:
    """Return all ways to put axes of these sizes on the dimensions of a group."""
    usable = [index for index, size in enumerate(group.sizes) if group.is_cuttable[index] and size > 1]
    usable = sorted(sorted(usable, key=lambda index: -group.sizes[index])[:_MOST_DIMENSIONS])
    while (len(usable) + 1) ** len(axes) > _MOST_CHOICES and len(usable) > 1:
        usable.remove(min(usable, key=lambda index: group.sizes[index]))
    options = [[NONE, *(index for index in usable if fits(group.sizes[index], size))] for size in axes]
    choices = []
    for places in product(*options):
        blocks = [1] * len(group.sizes)
        for place, size in zip(places, axes, strict=True):
            if place >= 0:
                blocks[place] *= size
        if all(count == 1 or fits(size, count) for size, count in zip(group.sizes, blocks, strict=True)):
            choices.append(places)
    return choices


def fits(size: int, blocks: int) -> bool:
    """Return whether a dimension of `size` may be cut in so many blocks with little padding."""
    return size >= blocks and -(-size // blocks) * blocks <= _MOST_PADDING * size
