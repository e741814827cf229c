"""How a program of one process of many is cut of a whole one, where neither says it.

What `spmd partition` prints, and what is written by hand, has the types of blocks alone. Dimensions that are shorter
than the whole program's are cut; along which parts of the processes is found by trying: under the right layout the
results agree. Where they agree under none, the layout is that whose partitioned program is most like the one given.
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

#: Layouts of all arguments that are run, and those whose programs are made to see which is most like the one given.
_MOST_RUN, _MOST_MADE = 512, 12
#: Layouts of all results that are kept for each of the arguments.
_MOST_RESULTS = 16
#: Units of the last place of the largest element up to which results under the right layout differ.
ROUNDING = 256.0
#: How near elements are that may be the same, relative to their size.
_NEAR = 1e-2
#: Axes that are tried in any order.
_MOST_AXES = 4


@dataclass(frozen=True)
class _Found:
    """A layout of arguments and results, by how much the results then differ, and the share of elements that do."""

    mesh: DeviceMesh
    arguments: Sequence[ShardedType]
    results: Sequence[ShardedType]
    distance: float
    share: float


def are_blocks(whole: Sequence[Type], local: Sequence[Type], processes: int) -> bool:
    """Whether values of the types `local` may be blocks, on so many processes, of values of the types `whole`."""
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
    """Return the program of `whole` with the layout, over the processes of `local`, of which `local` is the program.

    None where no layout of all its arguments and results has such blocks.

    `whole` takes and gives whole arrays, `inputs` with a leading axis of size 1; results agree up to rounding.
    `partition` makes a side of the programs that are tried.
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
    # Of those of which the program says as much, the ones that need the fewest tables: most programs cut few ways.
    order = [(-len(hints & each), len(each), one.share) for each, one in zip(tables, found, strict=True)]
    nearest = sorted(range(len(found)), key=order.__getitem__)[:_MOST_MADE]
    made = [found[number] for number in dict.fromkeys([*nearest, *range(min(len(found), _MOST_MADE))])]
    return _annotated(whole, max(made, key=lambda each: _likeness(partition(_annotated(whole, each)), local)))


def _trials(whole: Side, local: Side, inputs: Sequence[Array], wanted: Sequence[Array]) -> Iterator[list[_Found]]:
    """Runs `local` under layout after layout of its arguments, each with layouts of the results, the best fit first."""
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
    """Which block of each dimension each process holds."""
    if layout.sharding is None:
        return None
    return tuple(tuple(layout.sharding.mesh.block_index(run).tolist()) for run in layout.sharding.dimensions if run)


def hints_of(local: Side) -> frozenset[Hashable]:
    """What a program of one process says of where arrays are cut: tables by process, and groups of processes."""
    found: set[Hashable] = set()
    for op in local.function.walk():
        if op.name == "stablehlo.constant" and op.result.tensor.shape == (local.grid.size,):
            found.add(tuple(op["value"].array.tolist()))
        groups = op.attributes.get("replica_groups")
        if groups is not None:
            found.add(_members(np.asarray(getattr(groups, "array", groups)).tolist()))
    return frozenset(found)


def _members(groups: Sequence[Sequence[int]]) -> Hashable:
    """Who is in each group, in whatever order."""
    return frozenset(frozenset(group) for group in groups)


def tables_of(layouts: Sequence[ShardedType]) -> frozenset[Hashable]:
    """What a program whose arrays are cut so may say of that."""
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
    """How far what blocks are a layout of is from what is wanted, and the share of elements that are."""
    whole = unshard_stacked(blocks, layout)
    pairs = (whole[None], wanted[None]), (shard_stacked(whole, layout, len(blocks)), without_padding(blocks, layout))
    return max(units_apart(*pair) for pair in pairs), sum(share_apart(*pair) for pair in pairs)


def of_dtype(layout: ShardedType, array: Array) -> ShardedType:
    """Return the layout for arrays of the dtype of `array`, as of 64-bit floats in place of others."""
    type = layout.type
    if not isinstance(type, TensorType) or type.dtype == array.dtype:
        return layout
    return replace(layout, type=TensorType(type.shape, element_type_of(array.dtype)))


def units_apart(ours: Array, theirs: Array) -> float:
    """How far two arrays are apart, in units of the last place of the largest element."""
    far = float(np.max(gaps(ours, theirs), initial=0.0))
    return far / (of_largest(ours, 1.0) or np.finfo(np.float64).tiny) if far else 0.0


def share_apart(ours: Array, theirs: Array) -> float:
    """The share of elements that are not nearly the same."""
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        near = np.isclose(ours.astype(wide), theirs.astype(wide), rtol=_NEAR, atol=0.0, equal_nan=True)
    return float(1 - near.mean()) if near.size else 0.0


def meshes(size: int) -> Iterator[DeviceMesh]:
    """The meshes that so many processes may be, in order of rank: those of few axes first."""
    for sizes in sorted(_factored(size), key=len):
        yield DeviceMesh(tuple(SubAxis(f"axis_{place}", 1, each, each) for place, each in enumerate(sizes)))


def _factored(size: int) -> Iterator[tuple[int, ...]]:
    """The ways to write a number as a product of numbers above 1, in any order."""
    if size == 1:
        yield ()
    for first in range(2, size + 1):
        if size % first == 0:
            yield from ((first, *rest) for rest in _factored(size // first))


def layouts_of(whole: Type, local: Type, mesh: DeviceMesh) -> Iterator[ShardedType]:
    """The layouts of a value of type `whole` whose blocks are of type `local`, runs of axes in their order first."""
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
    else:  # parts that lie beside one another alone
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
    """How far a run of axes is from neighbours in their order."""
    return sum(abs(b - a - 1) for a, b in pairwise(run)), len(run)


def nearest_first(choices: Sequence[Sequence[T]]) -> Iterator[tuple[T, ...]]:
    """One of each of `choices`, those of the first of each before the others; not all, where they are too many."""
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
    """How much the ops of two programs have in common, 0 to 1."""
    keys = [[key_of(op) for op in each.function.body.ops] for each in (side, other)]
    return float(SequenceMatcher(None, keys[0], keys[1], autojunk=False).ratio())
