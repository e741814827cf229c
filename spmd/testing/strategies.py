"""Hypothesis strategies for distributed programs: grids, replica groups, shardings, arrays, small programs.

    from hypothesis import given
    from spmd.testing import strategies as st

    @given(st.programs())
    def test_results_do_not_depend_on_the_order(program):
        assert spmd.explore(program.module, program.grid, program.inputs, orders=10)

Needs Hypothesis: ``pip install hypothesis``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Protocol

import ml_dtypes
import numpy as np

import collectives.grid
import spmd
from collectives.grid import Group, ProcessGrid
from spmd.errors import UsageError
from spmd.support.arrays import Array, DType

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy
except ImportError:
    raise UsageError("spmd.testing.strategies needs Hypothesis: pip install hypothesis") from None


class Draw(Protocol):
    """The function that draws from strategies, which Hypothesis passes to composite ones."""

    def __call__(self, strategy: SearchStrategy[Any]) -> Any: ...


def grids(max_processes: int = 8) -> SearchStrategy[ProcessGrid]:
    """Return process grids of up to `max_processes` processes, in any number of replicas and partitions."""
    shapes = [(r, p) for r in range(1, max_processes + 1) for p in range(1, max_processes // r + 1)]
    return st.sampled_from([ProcessGrid(*shape) for shape in sorted(shapes, key=lambda shape: (prod(shape), shape))])


@dataclass(frozen=True)
class ReplicaGroups:
    """The groups of a collective on `grid`, as in its attributes: rows of `ids`, and a grouping strategy `kind`.

    Source: StableHLO specification, "Collective ops".
    """

    grid: ProcessGrid
    kind: str
    ids: tuple[tuple[int, ...], ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """The ranks of each group, in group order."""
        return tuple(getattr(collectives.grid, self.kind)(self.grid, self.rows))

    @property
    def rows(self) -> Array:
        """The ids as in the attribute: short rows are padded with -1."""
        width = max(map(len, self.ids))
        return np.array([[*row, *[-1] * (width - len(row))] for row in self.ids], np.int64)

    @property
    def attributes(self) -> str:
        """The attributes of an op that define the groups, as text."""
        rows = self.rows
        text = f"replica_groups = dense<{rows.tolist()}> : tensor<{rows.shape[0]}x{rows.shape[1]}xi64>"
        if self.kind != "cross_replica":
            text += ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
        return text + (", use_global_device_ids" if self.kind == "flattened_ids" else "")


#: The grouping strategies. The middle two need ops that support them.
KINDS = ("cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_ids")


@st.composite
def replica_groups(
    draw: Draw, grid: ProcessGrid | None = None, kinds: Sequence[str] = KINDS, *, uneven: bool = True
) -> ReplicaGroups:
    """Return groups of all processes of `grid` (drawn by default), by one of `kinds`; of different sizes if `uneven`.

    "cross_partition" applies to collective_broadcast, collective_permute and all_to_all, "cross_replica_and_partition"
    and "flattened_ids" to all_gather, all_reduce and reduce_scatter, "cross_replica" to all.
    """
    grid = draw(grids()) if grid is None else grid
    kind = draw(st.sampled_from(kinds))
    counts = {"cross_partition": grid.num_partitions, "flattened_ids": grid.size}
    ids = draw(st.permutations(range(counts.get(kind, grid.num_replicas))))
    if uneven:
        cuts = sorted(draw(st.sets(st.integers(1, len(ids) - 1)))) if len(ids) > 1 else []
    else:
        size = draw(st.sampled_from([each for each in range(1, len(ids) + 1) if len(ids) % each == 0]))
        cuts = list(range(size, len(ids), size))
    rows = tuple(tuple(ids[a:b]) for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True))
    return ReplicaGroups(grid, kind, rows)


def meshes(max_devices: int = 8, names: Sequence[str] = ("x", "y", "z")) -> SearchStrategy[dict[str, int]]:
    """Return meshes, as sizes by axis name, of up to `max_devices` devices."""
    axes = st.lists(st.integers(1, max_devices), max_size=len(names)).filter(lambda each: prod(each) <= max_devices)
    return axes.map(lambda sizes: dict(zip(names, sizes, strict=False)))


@st.composite
def shardings(
    draw: Draw, mesh: Mapping[str, int], shape: Sequence[int], *, name: str = "mesh", even: bool = True
) -> str:
    """Return a sharding of an array of `shape` over `mesh`, as Shardy's text `#sdy.sharding<@mesh, [{"x"}, {}]>`.

    Each axis splits one dimension or none; if `even`, only dimensions that all their axes divide.
    """
    dimensions: list[list[str]] = [[] for _ in shape]
    left = list(shape)
    for axis in draw(st.permutations(sorted(mesh))):
        allowed = [at for at, size in enumerate(left) if not even or (size and size % mesh[axis] == 0)]
        at = draw(st.sampled_from([None, *allowed]))
        if at is not None:
            dimensions[at].append(axis)
            left[at] //= mesh[axis]
    text = ", ".join("{" + ", ".join(f'"{axis}"' for axis in axes) + "}" for axes in dimensions)
    return f"#sdy.sharding<@{name}, [{text}]>"


def values_that_hurt(dtype: DType | type | str) -> Array:
    """Return values of `dtype` at which programs fail: extremes, signed zeros, infinities, NaNs, subnormals."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind == "c":
        part = values_that_hurt(np.zeros((), dtype).real.dtype)
        both = np.empty((len(part), len(part)), dtype)
        both.real, both.imag = part[:, None], part[None, :]
        return both.reshape(-1)
    if dtype.kind in "iu" or dtype.name.startswith(("int", "uint")):
        ends = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        values = [0, 1, ends.min, ends.max, ends.max // 2, ends.min // 2 if ends.min else 2]
        return np.array([int(each) for each in values], object).astype(dtype)
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    numbers = [0.0, 1.0, info.max, info.smallest_normal, info.smallest_subnormal, info.eps, np.inf, np.nan]
    with np.errstate(all="ignore"):
        found = np.array([float(each) for each in numbers], np.float64).astype(dtype)
        return np.concatenate([found, (-found.astype(np.float64)).astype(dtype)])


@st.composite
def arrays(draw: Draw, dtype: DType | type | str, shape: Sequence[int] | SearchStrategy[Any] | None = None) -> Array:
    """Return arrays of critical values and random bits; by default of up to three dimensions of sizes 0 to 5."""
    dtype = np.dtype(dtype)
    if shape is None:
        shape = st.lists(st.integers(0, 5), max_size=3)
    sizes = tuple(draw(shape) if isinstance(shape, SearchStrategy) else shape)
    hurting = values_that_hurt(dtype)
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    chosen = hurting[random.integers(0, len(hurting), sizes)]
    if dtype.kind not in "iuf" or draw(st.booleans()):
        return np.asarray(chosen, dtype)
    bits = random.integers(0, 256, (*sizes, dtype.itemsize), np.uint8)
    return np.where(random.integers(0, 2, sizes) > 0, chosen, bits.view(dtype).reshape(sizes)).astype(dtype)


@dataclass(frozen=True)
class GridProgram:
    """A program of `grid`'s processes, as text, and each process's arrays, of whole numbers, so that sums are exact.

    Its first argument is equal on all processes, its second is not.
    """

    text: str
    grid: ProcessGrid
    inputs: tuple[tuple[Array, ...], ...]

    @property
    def module(self) -> spmd.Module:
        return spmd.parse(self.text, name="drawn.mlir")


_TYPE, _SIZE = "tensor<4xf32>", 4


@st.composite
def programs(draw: Draw, grid: ProcessGrid | None = None, max_ops: int = 8) -> GridProgram:
    """Return small programs that terminate and return all that they compute.

    They contain arithmetic, all_reduce, all_gather, permutations and broadcasts of drawn groups, in counted loops and
    in branches that all processes take alike.
    """
    grid = draw(grids(6)) if grid is None else grid
    lines: list[str] = []
    values = ["%same", "%own"]
    for number in range(draw(st.integers(1, max_ops))):
        step = draw(st.sampled_from((_arithmetic, _all_reduce, _all_reduce, _permutation, _chosen)))
        body = step(draw, grid, f"%v{number}", values)
        lines.append(_looped(body, number, draw(st.integers(0, 3))) if draw(st.booleans()) else body)
        values.append(f"%v{number}")
    returned, types = ", ".join(values[2:]), ", ".join([_TYPE] * (len(values) - 2))
    text = (
        f"module attributes {{mhlo.num_replicas = {grid.num_replicas} : i32, "
        f"mhlo.num_partitions = {grid.num_partitions} : i32}} {{\n"
        f"func.func @main(%same: {_TYPE}, %own: {_TYPE}) -> ({types}) {{\n"
        + "\n".join(lines)
        + f"\nreturn {returned} : {types}\n}}\n}}"
    )
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    same = random.integers(-4, 5, _SIZE).astype(np.float32)
    inputs = [(same, random.integers(-4, 5, _SIZE).astype(np.float32)) for _ in range(grid.size)]
    return GridProgram(text, grid, tuple(inputs))


def _arithmetic(draw: Draw, grid: ProcessGrid, name: str, values: Sequence[str]) -> str:
    pick = partial(draw, st.sampled_from(values))
    return (
        f"{name} = stablehlo.{draw(st.sampled_from(('maximum', 'minimum', 'subtract')))} {pick()}, {pick()} : {_TYPE}"
    )


def _all_reduce(draw: Draw, grid: ProcessGrid, name: str, values: Sequence[str]) -> str:
    groups = draw(replica_groups(grid, ("cross_replica", "cross_replica_and_partition", "flattened_ids")))
    kind = draw(st.sampled_from(("maximum", "minimum")))
    return (
        f'{name} = "stablehlo.all_reduce"({draw(st.sampled_from(values))}) <{{{groups.attributes}}}> ({{\n'
        f"^bb0(%l: tensor<f32>, %r: tensor<f32>):\n%f = stablehlo.{kind} %l, %r : tensor<f32>\n"
        f"stablehlo.return %f : tensor<f32>\n}}) : ({_TYPE}) -> {_TYPE}"
    )


def _permutation(draw: Draw, grid: ProcessGrid, name: str, values: Sequence[str]) -> str:
    ids = draw(st.permutations(range(grid.num_replicas)))
    pairs = [[source, target] for source, target in enumerate(ids)][: draw(st.integers(1, len(ids)))]
    given = f"source_target_pairs = dense<{pairs}> : tensor<{len(pairs)}x2xi64>"
    operand = draw(st.sampled_from(values))
    return f'{name} = "stablehlo.collective_permute"({operand}) <{{{given}}}> : ({_TYPE}) -> {_TYPE}'


def _chosen(draw: Draw, grid: ProcessGrid, name: str, values: Sequence[str]) -> str:
    """Return the text that selects one of two values by the process's number."""
    row = draw(st.integers(0, grid.size))
    pick = partial(draw, st.sampled_from(values))
    kind = draw(st.sampled_from(("replica", "partition")))
    return (
        f"{name}_id = stablehlo.{kind}_id : tensor<ui32>\n{name}_at = stablehlo.constant dense<{row}> : tensor<ui32>\n"
        f"{name}_p = stablehlo.compare LT, {name}_id, {name}_at : (tensor<ui32>, tensor<ui32>) -> tensor<i1>\n"
        f"{name} = stablehlo.select {name}_p, {pick()}, {pick()} : tensor<i1>, {_TYPE}"
    )


def _looped(body: str, number: int, turns: int) -> str:
    """Return the text of a loop that runs `body`, which defines `%v<number>`, `turns` times."""
    name, integer = f"%v{number}", "tensor<i32>"
    inner = body.replace(name, f"{name}_in")
    return (
        f"{name}_zero = stablehlo.constant dense<0> : {integer}\n{name}_one = stablehlo.constant dense<1> : {integer}\n"
        f"{name}_end = stablehlo.constant dense<{turns}> : {integer}\n"
        f"{name}_i, {name} = stablehlo.while(%i = {name}_zero, %carried = %own) : {integer}, {_TYPE}\ncond {{\n"
        f"%go = stablehlo.compare LT, %i, {name}_end : ({integer}, {integer}) -> tensor<i1>\n"
        f"stablehlo.return %go : tensor<i1>\n}} do {{\n%next = stablehlo.add %i, {name}_one : {integer}\n{inner}\n"
        f"%both = stablehlo.maximum {name}_in, %carried : {_TYPE}\n"
        f"stablehlo.return %next, %both : {integer}, {_TYPE}\n}}"
    )
