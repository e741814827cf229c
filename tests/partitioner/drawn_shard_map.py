"""Random functions of JAX with `shard_map` over some axes of a mesh, nested ones too, and the same on one device.

On one device an axis is a mapped one: blocks are stacked along it by `jax.vmap` with its name, so that collectives,
positions and derivatives mean what they mean in `shard_map`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.jax_meshes import abstract_mesh

_MESHES = (
    {"a": 2, "b": 2}, {"a": 4, "b": 2}, {"a": 2, "b": 4}, {"a": 2, "b": 2, "c": 2}, {"a": 4}, {"a": 3, "b": 2},
    {"a": 1, "b": 2},
)  # fmt: skip
#: The axes that cut each dimension.
Cuts = list[tuple[str, ...]]


@dataclass
class DrawnMap:
    """`sharded` is jitted for `devices`; `single` is the same for one device, jitted, too: op by op it takes longer."""

    sharded: Any
    single: Callable[[Any], Any]
    argument: np.ndarray[Any, Any]
    devices: int
    text: str


@dataclass
class _Draw:
    random: np.random.Generator
    sizes: dict[str, int]
    text: list[str] = field(default_factory=list)

    def below(self, limit: int) -> int:
        return int(self.random.integers(limit))

    def some(self, axes: list[str]) -> list[str]:
        """One axis or several, in any order."""
        return [axes[index] for index in self.random.permutation(len(axes))][: 1 + self.below(len(axes))]

    def dealt(self, axes: list[str], shape: tuple[int, ...]) -> Cuts:
        """Some of `axes` to cut the dimensions of `shape` along, in any order, into blocks of one size."""
        cuts: list[list[str]] = [[] for _ in shape]
        for axis in self.some(axes):
            place = self.below(len(shape) + 1)
            if place < len(shape) and shape[place] % prod(self.sizes[a] for a in (*cuts[place], axis)) == 0:
                cuts[place].append(axis)
        return [tuple(cut) for cut in cuts]

    def block(self, shape: tuple[int, ...], cuts: Cuts, *, joined: bool = False) -> tuple[int, ...]:
        counts = [prod(self.sizes[axis] for axis in cut) for cut in cuts]
        pairs = zip(shape, counts, strict=True)
        return tuple([size * count if joined else size // count for size, count in pairs])


def spec(cuts: Cuts) -> P:
    return P(*[None if not cut else cut[0] if len(cut) == 1 else cut for cut in cuts])


def _mapped(function: Callable[[Any], Any], sizes: dict[str, int], axes: list[str], taken: Cuts, given: Cuts) -> Any:
    """`function` of blocks as `shard_map` would map it over `axes`, on one device."""

    def whole(x: Any) -> Any:
        shape: list[int] = []
        place: dict[str, int] = {}
        for size, cut in zip(x.shape, taken, strict=True):
            for axis in cut:
                place[axis] = len(shape)
                shape.append(sizes[axis])
            shape.append(size // prod(sizes[axis] for axis in cut))
        there = [axis for axis in axes if axis in place]
        rest = [index for index in range(len(shape)) if index not in place.values()]
        blocks = jnp.transpose(x.reshape(shape), [*(place[axis] for axis in there), *rest])
        mapped = function
        for axis in reversed(axes):
            mapped = jax.vmap(mapped, 0 if axis in there else None, axis_name=axis, axis_size=sizes[axis])
        result = mapped(blocks)
        for index in reversed(range(len(axes))):
            if not any(axes[index] in cut for cut in given):
                result = jnp.take(result, 0, index)
        named = [axis for axis in axes if any(axis in cut for cut in given)]
        order: list[int] = []
        for dimension, cut in enumerate(given):
            order += [*(named.index(axis) for axis in cut), len(named) + dimension]
        ends = [
            size * prod(sizes[axis] for axis in cut)
            for size, cut in zip(result.shape[len(named) :], given, strict=True)
        ]
        return jnp.transpose(result, order).reshape(ends)

    return whole


#: A step is two functions of a block, for `shard_map` and for one device, and the shape of what they give.
_Step = tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[int, ...]]


def _local(d: _Draw, shape: tuple[int, ...]) -> _Step:
    place = d.below(len(shape))
    functions: list[Callable[[Any], Any]] = [
        lambda v: v + v,
        lambda v: v - v.max(place, keepdims=True),
        lambda v: jnp.flip(v, place),
        lambda v: jnp.cumsum(v, place),
        lambda v: v + jnp.arange(shape[place], dtype=v.dtype).reshape([-1 if i == place else 1 for i in range(v.ndim)]),
        lambda v: jnp.sort(v, place),
        lambda v: v @ jnp.ones((shape[-1], shape[-1]), v.dtype),
        lambda v: lax.fori_loop(0, 3, lambda i, w: jnp.roll(w, i, place) + 1, v),
    ]
    index = d.below(len(functions))
    d.text.append(f"local {index} along {place}")
    return functions[index], functions[index], shape


def _collective(d: _Draw, shape: tuple[int, ...], manual: list[str]) -> _Step:
    axis, place = manual[d.below(len(manual))], d.below(len(shape))
    size, other = d.sizes[axis], d.below(len(shape))
    by_name: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
        "psum": (lambda v: lax.psum(v, axis), shape),
        "pmax": (lambda v: lax.pmax(v, axis), shape),
        "shift": (lambda v: lax.ppermute(v, axis, [(i, (i + 1) % size) for i in range(size)]), shape),
        "first": (lambda v: lax.ppermute(v, axis, [(0, size - 1)]), shape),
        "index": (lambda v: v + lax.axis_index(axis).astype(v.dtype), shape),
        "gather": (
            lambda v: lax.all_gather(v, axis, axis=place, tiled=True),
            (*shape[:place], shape[place] * size, *shape[place + 1 :]),
        ),
    }
    if shape[place] % size == 0:
        smaller = (*shape[:place], shape[place] // size, *shape[place + 1 :])
        by_name["scatter"] = lambda v: lax.psum_scatter(v, axis, scatter_dimension=place, tiled=True), smaller
        if other != place:
            exchanged = tuple([n * size if i == other else n for i, n in enumerate(smaller)])
            by_name["exchange"] = lambda v: lax.all_to_all(v, axis, place, other, tiled=True), exchanged
    names = [name for name in by_name if prod(by_name[name][1]) <= 4096]
    name = names[d.below(len(names))]
    d.text.append(f"{name} over {axis} along {place}, {other}")

    def part(v: Any) -> Any:
        width = v.shape[place] // size
        return lax.dynamic_slice_in_dim(v, lax.axis_index(axis) * width, width, place)

    def first(v: Any) -> Any:
        of_first = lax.psum(jnp.where(lax.axis_index(axis) == 0, v, 0), axis)
        return jnp.where(lax.axis_index(axis) == size - 1, of_first, 0)

    of_one_device = {
        "first": first,
        "scatter": lambda v: part(lax.psum(v, axis)),
        "exchange": lambda v: part(lax.all_gather(v, axis, axis=other, tiled=True)),
    }
    return by_name[name][0], of_one_device.get(name, by_name[name][0]), by_name[name][1]


def _constraint(d: _Draw, shape: tuple[int, ...], free: list[str], manual: list[str]) -> _Step:
    """A layout over free axes; some dimensions are left open."""
    cuts = d.dealt(free, shape)
    entries: list[Any] = [cut or None for cut in cuts]
    for index, cut in enumerate(cuts):
        if not cut and d.below(2):
            entries[index] = P.UNCONSTRAINED
    d.text.append(f"constraint {entries}")
    mesh = abstract_mesh(tuple(d.sizes.values()), tuple(d.sizes))

    def constrained(v: Any) -> Any:
        wanted = P(*entries)
        return lax.with_sharding_constraint(v, wanted if manual else NamedSharding(mesh, wanted))

    return constrained, lambda v: v, shape


def _shard_map(d: _Draw, shape: tuple[int, ...], manual: list[str]) -> _Step:
    """`shard_map` over some of the axes that are not manual yet."""
    axes = d.some([axis for axis in d.sizes if axis not in manual])
    taken = d.dealt(axes, shape)
    d.text.append(f"shard_map over {axes} in {taken} {{")
    body, single, inner = _steps(d, d.block(shape, taken), manual + axes)
    given = d.dealt(axes, tuple(1 << 10 for _ in inner))
    lost = tuple(axis for axis in axes if not any(axis in cut for cut in given))
    d.text.append(f"}} out {given}")
    mesh = abstract_mesh(tuple(d.sizes.values()), tuple(d.sizes))
    ends = [lambda v, f=f: lax.pmax(f(v), lost) if lost else f(v) for f in (body, single)]
    mapped = jax.shard_map(
        ends[0], mesh=None if manual else mesh, in_specs=spec(taken), out_specs=spec(given),
        axis_names=set(axes), check_vma=False,
    )  # fmt: skip
    return mapped, _mapped(ends[1], d.sizes, axes, taken, given), d.block(inner, given, joined=True)


def _steps(d: _Draw, shape: tuple[int, ...], manual: list[str]) -> _Step:
    """Two to four steps, one after another."""
    pairs: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = []
    for _ in range(2 + d.below(3)):
        free = [axis for axis in d.sizes if axis not in manual]
        kind = d.below(5)
        if prod(shape) > 4096:
            break
        if kind == 0 and free:
            *pair, shape = _shard_map(d, shape, manual)
        elif kind == 1 and free:
            *pair, shape = _constraint(d, shape, free, manual)
        elif kind == 2 and manual:
            *pair, shape = _collective(d, shape, manual)
        else:
            *pair, shape = _local(d, shape)
        pairs.append((pair[0], pair[1]))

    def chained(which: int) -> Callable[[Any], Any]:
        def run(v: Any) -> Any:
            for pair in pairs:
                v = pair[which](v)
            return v

        return run

    return chained(0), chained(1), shape


def draw_shard_map(seed: int) -> DrawnMap:
    """The function of `seed`."""
    random = np.random.default_rng(seed)
    d = _Draw(random, dict(_MESHES[int(random.integers(len(_MESHES)))]))
    shape = tuple([(2, 4, 8, 12)[d.below(4)] for _ in range(1 + d.below(2))])
    argument = random.integers(-4, 5, shape).astype(np.float32)
    before, single_before, inner = _steps(d, shape, [])
    mapped, single_mapped, given = _shard_map(d, inner, [])
    after, single_after, last = _steps(d, given, [])
    names = list(d.sizes)
    mesh = abstract_mesh(tuple(d.sizes.values()), tuple(names))
    options: dict[str, Any] = {"in_shardings": NamedSharding(mesh, spec(d.dealt(names, shape)))}
    if d.below(2):
        options["out_shardings"] = NamedSharding(mesh, spec(d.dealt(names, last)))
    sharded = jax.jit(lambda x: after(mapped(before(x))), **options)
    text = f"seed {seed}: {d.sizes} {shape}\n" + "\n".join(d.text) + f"\n{options}"
    return DrawnMap(
        sharded,
        jax.jit(lambda x: single_after(single_mapped(single_before(x)))),
        argument,
        prod(d.sizes.values()),
        text,
    )
