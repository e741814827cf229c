"""Layouts of the same whole arrays for two programs of one process of many, if neither states them.

The types of blocks and the numbers of processes allow some whole arrays and layouts for both programs. Those that
explain most of the programs' hints (groups of collectives, tables by process) are tried, and of them one is chosen
under which both programs return the same whole results; otherwise the one under which most elements agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from partitioner.mesh import DeviceMesh
from partitioner.sharding import ShardedType, shard_stacked, unshard_stacked
from spmd.comparison.layouts import (
    ROUNDING,
    apart,
    hints_of,
    layouts_of,
    meshes,
    of_dtype,
    places_of,
    share_apart,
    tables_of,
    units_apart,
)
from spmd.comparison.perturbed import Perturbed
from spmd.comparison.precision import WIDE
from spmd.comparison.sides import Side, wide_runner
from spmd.errors import SpmdError
from spmd.io import arguments
from spmd.support.arrays import Array
from spmd.types import TensorType, Type

#: Limits on the combinations of whole types that are tried, and on the layouts of each on a side.
_MOST_KEYS, _MOST_LAYOUTS = 32, 3
#: Limit on the layouts of all arguments over a mesh that are examined, those with few divided dimensions.
_MOST_CHOICES = 20_000


@dataclass(frozen=True)
class Blocks:
    """The layouts of a program's arguments and results over its processes."""

    in_shardings: Sequence[ShardedType]
    out_shardings: Sequence[ShardedType]


@dataclass(frozen=True)
class Joint:
    """Layouts of two programs, and whole arrays of their arguments.

    `explained` is the number of the programs' hints that they explain (`is_explained`: all), `distance` and `share` how
    far the whole results differ.
    """

    left: Blocks
    right: Blocks
    inputs: Sequence[Array]
    explained: int
    is_explained: bool
    distance: float
    share: float

    @property
    def agrees(self) -> bool:
        """Whether results agree up to rounding."""
        return self.distance <= ROUNDING


def joint_layouts(left: Side, right: Side, given: Sequence[Array] | None, seed: int) -> Joint | None:
    """Return the layouts of two programs of one process each under which they compute the same from whole arrays.

    `given` are whole arrays; None generates them from `seed`. None if no whole arrays have such blocks.
    """
    types = left.function.type, right.function.type
    if len(types[0].inputs) != len(types[1].inputs) or len(types[0].results) != len(types[1].results):
        return None
    found: list[Joint] = []
    for joint in _trials((left, right), given, seed):
        if joint.agrees and joint.is_explained:
            return joint
        found.append(joint)
    return max(found, key=lambda each: (each.explained, each.agrees, -each.share), default=None)


def _wholes(one: Type, other: Type, counts: tuple[int, int]) -> list[Type]:
    """Return the types of whole arrays of which both may be the type of a block, the largest first."""
    if (
        not isinstance(one, TensorType)
        or not isinstance(other, TensorType)
        or one.with_shape(()) != other.with_shape(())
    ):
        return [one] if one == other else []
    if one.rank != other.rank or not (one.is_static and other.is_static):
        return []
    sizes = [_sizes(*pair, *map(_divisors, counts)) for pair in zip(one.static_shape, other.static_shape, strict=True)]
    return [one.with_shape(shape) for shape in sorted(product(*sizes), key=lambda shape: -prod(shape))]


def _divisors(count: int) -> list[int]:
    return [each for each in range(1, count + 1) if count % each == 0]


def _sizes(block: int, other: int, parts: Sequence[int], other_parts: Sequence[int]) -> list[int]:
    """Return the sizes of a dimension with blocks of either size; with padding only if there are no others."""
    even = {block * count for count in parts} & {other * count for count in other_parts}
    if even:
        return sorted(even)
    return sorted(
        {
            size
            for mine, theirs in product(parts, other_parts)
            for size in range(max((block - 1) * mine, (other - 1) * theirs) + 1, min(block * mine, other * theirs) + 1)
        }
    )


@dataclass(frozen=True)
class _Run:
    """The results of a side whose arguments have `layouts` over `mesh`: layouts and whole arrays per result.

    Only layouts of a result with equal replicas are kept, or, without any, the one whose replicas differ least; `apart`
    is their distance. `tables` are the hints that a program with these argument layouts may contain.
    """

    mesh: DeviceMesh
    layouts: Sequence[ShardedType]
    tables: frozenset[Hashable]
    results: Sequence[Sequence[tuple[float, ShardedType, Array]]] = ()


def _trials(sides: tuple[Side, Side], given: Sequence[Array] | None, seed: int) -> Iterator[Joint]:
    """Run both sides under successive layouts of the same whole arrays, likely ones first."""
    counts, types = (sides[0].grid.size, sides[1].grid.size), [side.function.type for side in sides]
    # Arguments of the same types are assumed to have the same layout, as those of a model's layers do.
    pairs = list(zip(types[0].inputs, types[1].inputs, strict=True))
    shapes = [None] * len(pairs) if given is None else [x.shape for x in given]
    wholes = {
        (pair, shape): [each for each in _wholes(*pair, counts) if shape is None or each.shape == shape]  # type: ignore[attr-defined]
        for pair, shape in zip(pairs, shapes, strict=True)
    }
    kinds = [list(wholes).index(each) for each in zip(pairs, shapes, strict=True)]
    results = [_wholes(*pair, counts) for pair in zip(types[0].results, types[1].results, strict=True)]
    choices = [
        _choices(side, [(some, pair[at]) for (pair, _), some in wholes.items()], kinds) for at, side in enumerate(sides)
    ]
    runs, hints = [_runner(side) for side in sides], [hints_of(side) for side in sides]

    def rank(key: tuple[Type, ...]) -> tuple[int, int, int]:
        """Return a key: most hints explained, then fewest tables, as most programs divide few ways,
        then most divided.
        """
        pairs = [(hint, each[key][0].tables) for hint, each in zip(hints, choices, strict=True)]
        size = sum(prod(each.static_shape) for each in key if isinstance(each, TensorType))
        return -sum(len(hint & tables) for hint, tables in pairs), sum(len(tables) for _, tables in pairs), -size

    keys = sorted(choices[0].keys() & choices[1].keys(), key=rank)
    for key in keys[:_MOST_KEYS]:
        inputs = given if given is not None else _made(sides[0], choices[0][key][0], seed)
        tried = [
            [_judged(side, run, choice, inputs, results) for choice in each[key][:_MOST_LAYOUTS]]
            for side, run, each in zip(sides, runs, choices, strict=True)
        ]
        for pair in product(*tried):
            yield _joint(pair, inputs, hints)


def _choices(
    side: Side, options: Sequence[tuple[Sequence[Type], Type]], kinds: Sequence[int]
) -> dict[tuple[Type, ...], list[_Run]]:
    """Return the layouts of a side's arguments by whole types, those that explain most first.

    `options` are whole types and the block type of each kind of arguments, `kinds` the kind of each argument.
    """
    hints, found, seen = hints_of(side), list[_Run](), set[Hashable]()
    for mesh in meshes(side.grid.size):
        laid = [
            sorted(
                ((each, tables_of([each])) for whole in some for each in layouts_of(whole, local, mesh)),
                key=lambda pair: (len(pair[1]), -len(hints & pair[1])),
            )
            for some, local in options
        ]
        fewest = int(_MOST_CHOICES ** (1 / max(len(laid), 1)))
        for chosen in product(*(each[:fewest] for each in laid)):
            layouts = [chosen[kind][0] for kind in kinds]
            key = tuple((each.type, places_of(each)) for each in layouts)
            if key not in seen:
                seen.add(key)
                found.append(_Run(mesh, layouts, frozenset().union(*(tables for _, tables in chosen))))
    by_wholes: dict[tuple[Type, ...], list[_Run]] = defaultdict(list)
    for each in sorted(found, key=lambda each: (-len(hints & each.tables), len(each.tables))):
        by_wholes[tuple(layout.type for layout in each.layouts)].append(each)
    return by_wholes


def _made(side: Side, choice: _Run, seed: int) -> list[Array]:
    """Return whole arrays whose blocks are like generated arguments of a program."""
    rows = [arguments.make(side.module, side.function.symbol, seed + rank) for rank in range(side.grid.size)]
    columns = [np.stack([np.asarray(each) for each in column]) for column in zip(*rows, strict=True)]
    return [unshard_stacked(column, layout) for column, layout in zip(columns, choice.layouts, strict=True)]


def _runner(side: Side) -> Callable[[Sequence[Array]], Sequence[Array]]:
    """Return a function that runs a side on arrays of all processes, in 64-bit floats if all its ops are
    defined there.
    """
    written = Perturbed(side.grid.size, side.meant, WIDE, moves=False)
    try:
        return wide_runner(side, written.function(side.function.body, side.function.body.terminator.operands))
    except SpmdError:
        return side.runner()


def _judged(
    side: Side,
    run: Callable[[Sequence[Array]], Sequence[Array]],
    choice: _Run,
    inputs: Sequence[Array],
    results: Sequence[Sequence[Type]],
) -> _Run:
    """Return the choice with a side's results of whole arrays divided like that."""
    size = side.grid.size
    cut = [shard_stacked(array, layout, size) for array, layout in zip(inputs, choice.layouts, strict=True)]
    given = run([np.broadcast_to(array, (size, *array.shape[1:])) for array in cut])
    found = []
    for blocks, wholes, local in zip(given, results, side.function.type.results, strict=True):
        layouts = {(whole, places_of(each)): each for whole in wholes for each in layouts_of(whole, local, choice.mesh)}
        judged = sorted((_consistent(np.asarray(blocks), each) for each in layouts.values()), key=lambda each: each[0])
        found.append([each for each in judged if each[0] <= ROUNDING] or judged[:1])
    return replace(choice, results=found)


def _consistent(blocks: Array, layout: ShardedType) -> tuple[float, ShardedType, Array]:
    """Return the distance of replicas of blocks in a layout, the layout, and the whole array."""
    as_given = of_dtype(layout, blocks)
    whole = unshard_stacked(blocks, as_given)
    return apart(blocks, as_given, whole)[0], layout, whole


def _joint(pair: Sequence[_Run], inputs: Sequence[Array], hints: Sequence[frozenset[Hashable]]) -> Joint:
    """Return the layouts of both sides' results that agree best, given the arguments' layouts in a pair of runs."""
    chosen, distance, share = list[tuple[ShardedType, ShardedType]](), 0.0, 0.0
    for ours, theirs in zip(pair[0].results, pair[1].results, strict=True):
        options = [
            (max(own, others, units_apart(x[None], y[None])), share_apart(x, y), at, one, other)
            for at, ((own, one, x), (others, other, y)) in enumerate(product(ours, theirs))
            if one.type == other.type
        ]
        if not options:
            left, right = (Blocks(each.layouts, ()) for each in pair)
            return Joint(left, right, inputs, -1, False, np.inf, np.inf)
        far, part, _, one, other = min(options)
        distance, share = max(distance, far), share + part
        chosen.append((one, other))
    left, right = (Blocks(run.layouts, [each[at] for each in chosen]) for at, run in enumerate(pair))
    tables = [tables_of((*each.in_shardings, *each.out_shardings)) for each in (left, right)]
    explained = sum(len(hint & each) for hint, each in zip(hints, tables, strict=True))
    return Joint(left, right, inputs, explained, explained == sum(map(len, hints)), distance, share)
