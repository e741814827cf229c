"""The model of the search: groups of ops that share a sharding, and the tensors that pass between them.

Dimensions are the union of factors over ops, by the partitioner's rules: elementwise ops join their operands' group, so
that all values along them share a sharding. Contractions, gathers and the like are groups of their own, whose operands
and results may be resharded. Source: named dimensions as in TOAST (arXiv 2508.15010), sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from partitioner.graph import Spec
from spmd.ir import Value

#: A mesh axis shards no dimension of a tensor, or the tensor is a partial sum over it.
NONE, PARTIAL = -1, -2
#: For each mesh axis the dimension of a group that it shards, or NONE; of a tensor also PARTIAL.
Places = tuple[int, ...]
#: For each dimension of a group the dimension of a tensor, NONE, or PARTIAL if it is summed over.
Projection = tuple[int, ...]

#: The largest factor by which padding may enlarge a dimension.
_MOST_PADDING = 1.15
#: The number of dimensions of a group that are considered, the largest first, and of choices of a group.
_MOST_DIMENSIONS, _MOST_CHOICES = 8, 729


@dataclass(eq=False)
class FactorGroup:
    """Ops with a common sharding. `work` is the seconds of one process, by the dimensions that divide them."""

    sizes: tuple[int, ...]
    is_cuttable: tuple[bool, ...]
    work: dict[frozenset[int], float]
    names: tuple[str, ...]
    choices: list[Places] = field(default_factory=list)

    def seconds(self, places: Places, axes: Sequence[int]) -> float:
        """Return the seconds of one process with axes of these sizes on the dimensions `places`."""
        total = 0.0
        for dimensions, seconds in self.work.items():
            blocks = prod(size for place, size in zip(places, axes, strict=True) if place in dimensions)
            total += seconds / blocks
        return total


@dataclass(frozen=True)
class Use:
    """A use of a tensor by a group."""

    group: int
    projection: Projection


@dataclass(eq=False)
class Tensor:
    """A value that a group produces, and its uses in other layouts.

    `times` is how often it is produced; `born` and `dies` are the first and last op during which it is live.
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
        """The size of the complete tensor."""
        return self.itemsize * float(prod(self.spec.shape))


@dataclass
class Model:
    """Groups, tensors, and the tensors of arguments and results."""

    axes: tuple[tuple[str, int], ...]
    groups: list[FactorGroup]
    tensors: list[Tensor]
    arguments: list[Tensor | None]
    #: For each result, the argument whose next value it is, or None.
    returned: list[int | None]
    results: list[Tensor | None]
    length: int
    #: The propagation spec of each value.
    specs: Mapping[Value, Spec]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each mesh axis."""
        return tuple(size for _, size in self.axes)


def project(projection: Projection, places: Places) -> Places:
    """Return the layout of a tensor for the choice `places` of a group."""
    return tuple(projection[place] if place >= 0 else NONE for place in places)


def all_choices(group: FactorGroup, axes: Sequence[int]) -> list[Places]:
    """Return all assignments of axes of these sizes to dimensions of a group."""
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
    """Return whether a dimension of `size` may be split into so many blocks with little padding."""
    return size >= blocks and -(-size // blocks) * blocks <= _MOST_PADDING * size
