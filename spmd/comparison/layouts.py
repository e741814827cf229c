"""The layout of a program of one process of many, relative to a whole one, if neither states it.

What `spmd partition` prints, and what is written by hand, has only the types of blocks. Dimensions that are shorter
than the whole program's are divided; the mesh axes are found by trying: under the right layout the results agree. If
they agree under none, the layout is the one whose partitioned program resembles the given one most.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import islice, pairwise, permutations, product
from math import prod
from typing import TypeVar

import numpy as np

from partitioner.annotate import with_shardings
from partitioner.mesh import DeviceMesh, SubAxis
from partitioner.sharding import ShardedType, Sharding, shard_stacked, unshard_stacked, without_padding
from spmd.comparison.correspondence import key_of
from spmd.comparison.distance import gaps, of_largest
from spmd.comparison.sides import Side
from spmd.ir import Module
from spmd.runtime.simulation import simulate
from spmd.support.arrays import Array
from spmd.types import TensorType, Type, element_type_of

T = TypeVar("T")

#: Limits on the layouts of all arguments that are run, and on those partitioned to compare the programs.
_MOST_RUN, _MOST_MADE = 512, 12
#: Limit on the layouts of all results that are kept for each of the arguments.
_MOST_RESULTS = 16
#: Units of the last place of the largest element by which results may differ under the right layout.
ROUNDING = 256.0
#: Relative distance of elements that may be the same.
_NEAR = 1e-2
#: Number of axes up to which all orders are tried.
_MOST_AXES = 4


@dataclass(frozen=True)
class _Found:
    """A layout of arguments and results, the distance of the results, and the share of elements that differ."""

    mesh: DeviceMesh
    arguments: Sequence[ShardedType]
    results: Sequence[ShardedType]
    distance: float
    share: float


def are_blocks(whole: Sequence[Type], local: Sequence[Type], processes: int) -> bool:
    """Return whether values of the types `local` may be blocks, on so many processes, of values of the
    types `whole`.
    """
    return len(whole) == len(local) and all(
        any(next(layouts_of(one, other, mesh), None) is not None for mesh in meshes(processes))
        for one, other in zip(whole, local, strict=True)
    )


def laid_out(
    whole: Side,
    local: Side,
    inputs: Sequence[Array],
    partition: Callable[[Module], Side],
) -> Module | None:
    """Return the program of `whole` with the layout, over the processes of `local`, that makes it the program `local`.

    None if no layout of all its arguments and results has such blocks. `whole` takes and returns whole arrays, `inputs`
    with a leading axis of size 1; results agree up to rounding. `partition` makes a side of the programs that are
    tried.
    """
    wanted = [array[0] for array in whole.run(inputs)]
    found: list[_Found] = []
    for best_first in _trials(whole, local, inputs, wanted):
        if best_first[0].distance <= ROUNDING:
            return _annotated(whole, best_first[0])
        found += best_first
    if not found:
        return None
    hints = hints_of(local)
    tables = [tables_of((*each.arguments, *each.results)) for each in found]
    # Of those that explain as many hints, the ones with the fewest tables: most programs divide few ways.
    order = [(-len(hints & each), len(each), one.share) for each, one in zip(tables, found, strict=True)]
    nearest = sorted(range(len(found)), key=order.__getitem__)[:_MOST_MADE]
    made = [found[number] for number in dict.fromkeys([*nearest, *range(min(len(found), _MOST_MADE))])]
    return _annotated(whole, max(made, key=lambda each: _likeness(partition(_annotated(whole, each)), local)))


def _trials(whole: Side, local: Side, inputs: Sequence[Array], wanted: Sequence[Array]) -> Iterator[list[_Found]]:
    """Run `local` under successive layouts of its arguments, each with layouts of the results, the best first."""
    size = local.grid.size
    run = simulate(local.module, local.grid, local.function.symbol, backends=local.backends, reproducible=True)
    types = whole.function.type, local.function.type
    tried: set[Hashable] = set()
    for mesh in meshes(size):
        arguments = [list(layouts_of(*pair, mesh)) for pair in zip(types[0].inputs, types[1].inputs, strict=True)]
        results = [list(layouts_of(*pair, mesh)) for pair in zip(types[0].results, types[1].results, strict=True)]
        if not all((*arguments, *results)):
            continue
        hints = hints_of(local)
        for chosen in sorted(nearest_first(arguments), key=lambda each: -len(hints & tables_of(each))):
            key = tuple(places_of(each) for each in (*chosen, *(each for layouts in results for each in layouts)))
            if key in tried:
                continue
            if len(tried) == _MOST_RUN:
                return
            tried.add(key)
            cut = [shard_stacked(array[0], each, size) for array, each in zip(inputs, chosen, strict=True)]
            given = run(*(np.broadcast_to(array, (size, *array.shape[1:])) for array in cut))
            judged = [
                sorted(((apart(blocks, each, array), each) for each in layouts), key=lambda pair: pair[0])
                for blocks, layouts, array in zip(given, results, wanted, strict=True)
            ]
            yield [_found(mesh, chosen, each) for each in islice(nearest_first(judged), _MOST_RESULTS)]


def _found(
    mesh: DeviceMesh, arguments: Sequence[ShardedType], judged: Sequence[tuple[tuple[float, float], ShardedType]]
) -> _Found:
    worst = max((apart for (apart, _), _ in judged), default=0.0)
    share = sum(share for (_, share), _ in judged)
    return _Found(mesh, arguments, [each for _, each in judged], worst, share)


def places_of(layout: ShardedType) -> Hashable:
    """Return the block of each dimension that each process holds."""
    if layout.sharding is None:
        return None
    return tuple(tuple(layout.sharding.mesh.block_index(run).tolist()) for run in layout.sharding.dimensions if run)


def hints_of(local: Side) -> frozenset[Hashable]:
    """Return a program's hints on how arrays are divided: tables by process, and groups of processes."""
    found: set[Hashable] = set()
    for op in local.function.walk():
        if op.name == "stablehlo.constant" and op.result.tensor.shape == (local.grid.size,):
            found.add(tuple(op["value"].array.tolist()))
        groups = op.attributes.get("replica_groups")
        if groups is not None:
            found.add(_members(np.asarray(getattr(groups, "array", groups)).tolist()))
    return frozenset(found)


def _members(groups: Sequence[Sequence[int]]) -> Hashable:
    """Return the members of each group, without order."""
    return frozenset(frozenset(group) for group in groups)


def tables_of(layouts: Sequence[ShardedType]) -> frozenset[Hashable]:
    """Return the hints that a program with these layouts may contain."""
    found: set[Hashable] = set()
    for each in layouts:
        if each.sharding is None or not isinstance(each.type, TensorType):
            continue
        blocks = each.sharding.local_shape(each.type.static_shape)
        for run, block in zip(each.sharding.dimensions, blocks, strict=True):
            if run:
                found.add(tuple((each.sharding.mesh.block_index(run) * block).tolist()))
                found.add(_members(each.sharding.mesh.groups(run).tolist()))
    return frozenset(found)


def apart(blocks: Array, layout: ShardedType, wanted: Array) -> tuple[float, float]:
    """Return the distance of the whole array of blocks from the wanted one, and the share of elements that differ."""
    whole = unshard_stacked(blocks, layout)
    pairs = (whole[None], wanted[None]), (shard_stacked(whole, layout, len(blocks)), without_padding(blocks, layout))
    return max(units_apart(*pair) for pair in pairs), sum(share_apart(*pair) for pair in pairs)


def of_dtype(layout: ShardedType, array: Array) -> ShardedType:
    """Return the layout for arrays of the dtype of `array`, such as 64-bit floats in place of others."""
    type = layout.type
    if not isinstance(type, TensorType) or type.dtype == array.dtype:
        return layout
    return replace(layout, type=TensorType(type.shape, element_type_of(array.dtype)))


def units_apart(ours: Array, theirs: Array) -> float:
    """Return the distance of two arrays, in units of the last place of the largest element."""
    far = float(np.max(gaps(ours, theirs), initial=0.0))
    return far / (of_largest(ours, 1.0) or np.finfo(np.float64).tiny) if far else 0.0


def share_apart(ours: Array, theirs: Array) -> float:
    """Return the share of elements that are not nearly equal."""
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        near = np.isclose(ours.astype(wide), theirs.astype(wide), rtol=_NEAR, atol=0.0, equal_nan=True)
    return float(1 - near.mean()) if near.size else 0.0


def meshes(size: int) -> Iterator[DeviceMesh]:
    """Yield the meshes of so many processes, in order of rank: those of few axes first."""
    for sizes in sorted(_factored(size), key=len):
        yield DeviceMesh(tuple(SubAxis(f"axis_{place}", 1, each, each) for place, each in enumerate(sizes)))


def _factored(size: int) -> Iterator[tuple[int, ...]]:
    """Yield the ordered factorizations of a number into factors above 1."""
    if size == 1:
        yield ()
    for first in range(2, size + 1):
        if size % first == 0:
            yield from ((first, *rest) for rest in _factored(size // first))


def layouts_of(whole: Type, local: Type, mesh: DeviceMesh) -> Iterator[ShardedType]:
    """Yield the layouts of a value of type `whole` with blocks of type `local`, axes in their order first."""
    if not isinstance(whole, TensorType) or not isinstance(local, TensorType):
        if whole == local:
            yield ShardedType(whole, None)
        return
    if (
        whole.rank != local.rank
        or not (whole.is_static and local.is_static)
        or whole.with_shape(()) != local.with_shape(())
    ):
        return
    axes = range(len(mesh.sub_axes))
    if len(axes) <= _MOST_AXES:
        runs = [run for count in range(len(axes) + 1) for run in permutations(axes, count)]
    else:  # only contiguous runs
        runs = [(), *(tuple(axes[first:stop]) for stop in range(1, len(axes) + 1) for first in range(stop))]
    runs.sort(key=_unevenness)
    choices = [
        [run for run in runs if -(-size // mesh.count(run)) == block and (run == () or size != block)]
        for size, block in zip(whole.static_shape, local.static_shape, strict=True)
    ]
    for dimensions in product(*choices):
        if len(set(sum(dimensions, ()))) == sum(map(len, dimensions)):
            yield ShardedType(whole, Sharding(mesh, dimensions))


def _unevenness(run: Sequence[int]) -> tuple[int, int]:
    """Return how far a run of axes is from contiguous."""
    return sum(abs(b - a - 1) for a, b in pairwise(run)), len(run)


def nearest_first(choices: Sequence[Sequence[T]]) -> Iterator[tuple[T, ...]]:
    """Yield one of each of `choices`, those near the start of each first, limited in number."""
    most = max(map(len, choices), default=1)
    while prod(min(len(each), most) for each in choices) > _MOST_RUN and most > 1:
        most -= 1
    places = product(*(range(min(len(each), most)) for each in choices))
    for chosen in sorted(places, key=lambda each: (len(set(each)), sum(each))):
        yield tuple(each[place] for each, place in zip(choices, chosen, strict=True))


def _annotated(whole: Side, found: _Found) -> Module:
    axes = found.mesh.sub_axes
    names = {axis.name: axis.full_size for axis in axes}
    arguments, results = (
        [
            None
            if each.sharding is None
            else [tuple(axes[axis].name for axis in run) for run in each.sharding.dimensions]
            for each in layouts
        ]
        for layouts in (found.arguments, found.results)
    )
    return with_shardings(whole.module, names, arguments, results, whole.function.symbol)


def _likeness(side: Side, other: Side) -> float:
    """Return the similarity of the ops of two programs, 0 to 1."""
    keys = [[key_of(op) for op in each.function.body.ops] for each in (side, other)]
    return float(SequenceMatcher(None, keys[0], keys[1], autojunk=False).ratio())
