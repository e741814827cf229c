"""Random manual computations, nested ones too, with what they give: every manual block is computed by itself.

A computation is manual over some axes of a mesh, whose devices may stand in another order than the program's; what it
leaves free its body may cut as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np

from spmd.support.arrays import Array
from tests.partitioner.drawing import Shape, tensor
from tests.partitioner.drawn_axes import Mesh, mesh_line, orders

_MESHES: tuple[Mesh, ...] = (
    (("x", 4),),
    (("x", 2), ("y", 2)),
    (("x", 2), ("y", 4)),
    (("x", 2), ("y", 2), ("z", 2)),
    (("x", 4), ("y", 2)),
    (("x", 2), ("y", 3)),
    (("x", 3), ("y", 2), ("z", 3)),
)
#: The axes that cut each dimension, by name.
_Cuts = list[list[str]]
#: What a value is at each place along the manual axes, in the order in which these came.
_Blocks = dict[tuple[int, ...], Array]


@dataclass
class DrawnManual:
    """The program, its argument, its result, and the number of devices."""

    text: str
    argument: Array
    result: Array
    devices: int


@dataclass
class _Value:
    name: str
    shape: Shape
    blocks: _Blocks


@dataclass
class _Draw:
    random: np.random.Generator
    mesh: Mesh
    meshes: dict[str, list[int]]
    lines: list[str] = field(default_factory=list)
    manual: list[str] = field(default_factory=list)
    mesh_name: str = "mesh"
    count: int = 0

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.mesh)

    @property
    def free(self) -> list[str]:
        return [axis for axis, _ in self.mesh if axis not in self.manual]

    @property
    def devices(self) -> Array:
        """The device at each place of the mesh, a dimension an axis."""
        sizes = tuple(self.sizes.values())
        return np.array(self.meshes[self.mesh_name] or range(prod(sizes))).reshape(sizes)

    def below(self, limit: int) -> int:
        return int(self.random.integers(limit))

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def dealt(self, axes: list[str], rank: int) -> _Cuts:
        cuts: _Cuts = [[] for _ in range(rank)]
        for index in self.random.permutation(len(axes)):
            place = self.below(rank + 1)
            if place < rank:
                cuts[place].append(axes[index])
        return cuts

    def sharding(self, cuts: _Cuts, *, opened: bool = False) -> str:
        texts = []
        for axes in cuts:
            told = [f'"{axis}"' for axis in axes] + (["?"] if opened and self.below(2) else [])
            texts.append("{" + ", ".join(told) + "}")
        return f"<@{self.mesh_name}, [{', '.join(texts)}]>"

    def parts(self, axes: list[str]) -> int:
        return prod(self.sizes[axis] for axis in axes)

    def place(self, cuts: _Cuts, shape: Shape, at: dict[str, int]) -> tuple[slice, ...]:
        """Where the block of `shape` that stands at coordinates `at` lies in the whole."""
        slices = []
        for size, axes in zip(shape, cuts, strict=True):
            index = 0
            for axis in axes:
                index = index * self.sizes[axis] + at[axis]
            slices.append(slice(index * size, (index + 1) * size))
        return tuple(slices)

    def coordinates(self, axes: list[str]) -> Iterator[tuple[int, ...]]:
        return np.ndindex(*(self.sizes[axis] for axis in axes))


def _double(d: _Draw, value: _Value) -> _Value:
    name = d.name()
    d.lines.append(f"{name} = stablehlo.add {value.name}, {value.name} : {tensor(value.shape)}")
    return _Value(name, value.shape, {at: block + block for at, block in value.blocks.items()})


def _below_largest(d: _Draw, value: _Value) -> _Value:
    """Elements less the largest of their row: what a block gives hangs on where it begins and ends."""
    place = d.below(len(value.shape))
    kept = [dimension for dimension in range(len(value.shape)) if dimension != place]
    start, folded, spread, name = d.name(), d.name(), d.name(), d.name()
    whole, part = tensor(value.shape), tensor(tuple(value.shape[dimension] for dimension in kept))
    d.lines += [
        f"{start} = stablehlo.constant dense<-1.0e30> : tensor<f32>",
        f"{folded} = stablehlo.reduce({value.name} init: {start}) applies stablehlo.maximum across dimensions = "
        f"[{place}] : ({whole}, tensor<f32>) -> {part}",
        f"{spread} = stablehlo.broadcast_in_dim {folded}, dims = {kept} : ({part}) -> {whole}",
        f"{name} = stablehlo.subtract {value.name}, {spread} : {whole}",
    ]
    blocks = {at: block - block.max(place, keepdims=True) for at, block in value.blocks.items()}
    return _Value(name, value.shape, blocks)


def _reverse(d: _Draw, value: _Value) -> _Value:
    name, place = d.name(), d.below(len(value.shape))
    d.lines.append(f"{name} = stablehlo.reverse {value.name}, dims = [{place}] : {tensor(value.shape)}")
    return _Value(name, value.shape, {at: np.flip(block, place) for at, block in value.blocks.items()})


def _constraint(d: _Draw, value: _Value) -> _Value:
    name, sharding = d.name(), d.sharding(d.dealt(d.free, len(value.shape)), opened=True)
    d.lines.append(f"{name} = sdy.sharding_constraint {value.name} {sharding} : {tensor(value.shape)}")
    return _Value(name, value.shape, value.blocks)


def _sum_along_an_axis(d: _Draw, value: _Value) -> _Value:
    """A collective of manual code, its groups written out: the devices that differ along one manual axis."""
    if not d.manual:
        return value
    index, name = d.below(len(d.manual)), d.name()
    d.lines.append(f"{name} = {_sum(d, value, index)}")
    return _Value(name, value.shape, {at: _total(d, value, at, index) for at in value.blocks})


def _sum(d: _Draw, value: _Value, index: int) -> str:
    """The sum of `value` along manual axis number `index`, as text."""
    axis = d.manual[index]
    groups = np.moveaxis(d.devices, list(d.sizes).index(axis), -1).reshape(-1, d.sizes[axis])
    attributes = (
        f"replica_groups = dense<{groups.tolist()}> : tensor<{groups.shape[0]}x{groups.shape[1]}xi64>, "
        f"channel_handle = #stablehlo.channel_handle<handle = {d.count}, type = 1>, use_global_device_ids"
    )
    return (
        f'"stablehlo.all_reduce"({value.name}) <{{{attributes}}}> ({{\n^bb0(%l: tensor<f32>, %r: tensor<f32>):'
        "\n%s = stablehlo.add %l, %r : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}) : "
        f"({tensor(value.shape)}) -> {tensor(value.shape)}"
    )


def _total(d: _Draw, value: _Value, at: tuple[int, ...], index: int) -> Array:
    """That sum at the place `at`."""
    others = range(d.sizes[d.manual[index]])
    return np.sum([value.blocks[(*at[:index], other, *at[index + 1 :])] for other in others], axis=0, dtype=np.float32)


def _branch_by_place(d: _Draw, value: _Value) -> _Value:
    """A branch by the place along a manual axis: devices at its begin sum along another manual axis, or negate.

    partition_id has a meaning where all axes are manual.
    """
    if not d.manual or d.free:
        return value
    index = d.below(len(d.manual))
    others = [other for other in range(len(d.manual)) if other != index]
    summed = others[d.below(len(others))] if others and d.below(2) else None
    places = np.empty(d.devices.size, np.int64)
    places[d.devices.ravel()] = np.indices(d.devices.shape)[list(d.sizes).index(d.manual[index])].ravel()
    device, table, entry, place, name = (d.name() for _ in range(5))
    whole, vector = tensor(value.shape), f"tensor<{len(places)}xi32>"
    first = f"stablehlo.negate {value.name} : {whole}" if summed is None else _sum(d, value, summed)
    d.lines += [
        f"{device} = stablehlo.partition_id : tensor<ui32>",
        f"{table} = stablehlo.constant dense<{places.tolist()}> : {vector}",
        f"{entry} = stablehlo.dynamic_slice {table}, {device}, sizes = [1] : ({vector}, tensor<ui32>) -> tensor<1xi32>",
        f"{place} = stablehlo.reshape {entry} : (tensor<1xi32>) -> tensor<i32>",
        f'{name} = "stablehlo.case"({place}) ({{\n%y = {first}\nstablehlo.return %y : {whole}\n}}, {{\n'
        f"%y = stablehlo.add {value.name}, {value.name} : {whole}\nstablehlo.return %y : {whole}\n}}) : "
        f"(tensor<i32>) -> {whole}",
    ]
    at_begin = {
        at: -block if summed is None else _total(d, value, at, summed)
        for at, block in value.blocks.items()
        if not at[index]
    }
    return _Value(name, value.shape, {at: at_begin.get(at, block + block) for at, block in value.blocks.items()})


def _computation(d: _Draw, value: _Value) -> _Value:
    """A manual computation on `value`; `value` itself where blocks would not be whole, or the result not one value."""
    if not d.free:
        return value
    d.mesh_name = d.mesh_name if d.manual else list(d.meshes)[d.below(len(d.meshes))]
    free = [d.free[index] for index in d.random.permutation(len(d.free))]
    chosen = 1 + d.below(len(free))
    returned = _computation_over(d, value, free[:chosen], free[chosen:])
    d.mesh_name = d.mesh_name if d.manual else "mesh"
    return returned or value


def _computation_over(d: _Draw, value: _Value, axes: list[str], rest: list[str]) -> _Value | None:
    taken = d.dealt(axes, len(value.shape))
    if any(size % d.parts(cut) for size, cut in zip(value.shape, taken, strict=True)):
        return None
    shape = tuple(size // d.parts(cut) for size, cut in zip(value.shape, taken, strict=True))
    blocks = {
        (*at, *more): block[d.place(taken, shape, dict(zip(axes, more, strict=True)))]
        for at, block in value.blocks.items()
        for more in d.coordinates(axes)
    }
    part = _Value(d.name(), shape, blocks)
    outer, d.lines = d.lines, []
    d.manual += axes
    returned = _body(d, part)
    body, d.lines = d.lines, outer
    del d.manual[-len(axes) :]
    joined = d.dealt(axes, len(returned.shape))
    result = _joined(d, value, returned, axes, joined)
    if result is not None:
        boundary = [
            d.sharding([manual + other for manual, other in zip(cuts, d.dealt(rest, len(cuts)), strict=True)])
            for cuts in (taken, joined)
        ]
        names = ", ".join(f'"{axis}"' for axis in axes)
        d.lines += [
            f"{result.name} = sdy.manual_computation({value.name}) in_shardings=[{boundary[0]}] "
            f"out_shardings=[{boundary[1]}] manual_axes={{{names}}} ({part.name}: {tensor(shape)}) {{",
            *body,
            f"sdy.return {returned.name} : {tensor(returned.shape)}",
            f"}} : ({tensor(value.shape)}) -> {tensor(result.shape)}",
        ]
    return result


def _joined(d: _Draw, value: _Value, returned: _Value, axes: list[str], cuts: _Cuts) -> _Value | None:
    """The blocks of `returned` put together; None where copies of one differ, which no program may say."""
    shape = tuple(size * d.parts(cut) for size, cut in zip(returned.shape, cuts, strict=True))
    blocks: _Blocks = {}
    for at in value.blocks:
        blocks[at] = np.full(shape, np.nan, np.float32)
        for more in d.coordinates(axes):
            there = blocks[at][d.place(cuts, returned.shape, dict(zip(axes, more, strict=True)))]
            if not np.isnan(there).all() and not np.array_equal(there, returned.blocks[(*at, *more)]):
                return None
            there[...] = returned.blocks[(*at, *more)]
    return _Value(d.name(), shape, blocks)


_STEPS = (_double, _below_largest, _reverse, _constraint, _sum_along_an_axis, _branch_by_place, _computation)


def _body(d: _Draw, value: _Value) -> _Value:
    for _ in range(1 + d.below(3)):
        value = _STEPS[d.below(len(_STEPS))](d, value)
    return value


def draw_manual(seed: int) -> DrawnManual:
    """The program of `seed`."""
    random = np.random.default_rng(seed)
    mesh = _MESHES[int(random.integers(len(_MESHES)))]
    devices = prod(size for _, size in mesh)
    meshes: dict[str, list[int]] = {"mesh": []}
    if order := orders(random, devices, 0.4):
        meshes["other"] = order
    d = _Draw(random, mesh, meshes)
    shape = tuple(devices * (1 + d.below(2)) for _ in range(1 + d.below(2)))
    argument = random.integers(-4, 5, shape).astype(np.float32)
    value = _Value("%a", shape, {(): argument})
    sharding = d.sharding(d.dealt(d.free, len(shape)))
    for _ in range(2):
        value = _body(d, _computation(d, value))
    lines = [
        *(mesh_line(mesh, order, name) for name, order in meshes.items()),
        f"func.func @main(%a: {tensor(shape)} {{sdy.sharding = #sdy.sharding{sharding}}}) -> {tensor(value.shape)} {{",
        *d.lines,
        f"return {value.name} : {tensor(value.shape)}\n}}",
    ]
    return DrawnManual("\n".join(lines), argument, value.blocks[()], devices)
