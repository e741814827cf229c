"""What the shared suite draws, and how any transport is held against the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np

import collectives as c
from collectives.communicator import Communicator
from tests.collectives import oracle

INTEGERS = [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64]
SMALL_INTEGERS = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]
FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
ODD_FLOATS = [ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.float8_e3m4, ml_dtypes.float6_e2m3fn, ml_dtypes.float4_e2m1fn]
COMPLEX = [np.complex64, np.complex128]
DTYPES = [np.dtype(t) for t in (np.bool_, *INTEGERS, *SMALL_INTEGERS, *FLOATS, *ODD_FLOATS, *COMPLEX)]

STRATEGIES = {
    "cross_replica": (c.cross_replica, oracle.cross_replica),
    "cross_partition": (c.cross_partition, oracle.cross_partition),
    "cross_replica_and_partition": (c.cross_replica_and_partition, oracle.cross_replica_and_partition),
    "flattened_ids": (c.flattened_ids, lambda groups, replicas, partitions: groups),
}


@dataclass(frozen=True)
class CollectiveCase:
    grid: c.ProcessGrid
    strategy: str
    ids: tuple[tuple[int, ...], ...]
    op: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    dim: int
    other_dim: int
    reduction: str
    reproducible: bool
    root: int
    pairs: tuple[tuple[int, int], ...]
    seed: int
    form: str

    @property
    def groups(self) -> list[list[int]]:
        plain = STRATEGIES[self.strategy][1]
        return plain([list(row) for row in self.ids], self.grid.num_replicas, self.grid.num_partitions)

    def operand(self, rank: int) -> np.ndarray[Any, Any]:
        rng = np.random.default_rng([self.seed, rank])
        return draw_values(rng, self.dtype, self.shape, self.reduction == "multiply" and "reduce" in self.op)

    def expected(self) -> oracle.ByRank:
        operands = {rank: self.operand(rank) for rank in range(self.grid.size)}
        match self.op:
            case "all_reduce":
                return oracle.all_reduce(operands, self.groups, self.reduction)
            case "reduce_scatter":
                return oracle.reduce_scatter(operands, self.groups, self.reduction, self.dim)
            case "all_gather":
                return oracle.all_gather(operands, self.groups, self.dim)
            case "all_to_all":
                return oracle.all_to_all(operands, self.groups, self.dim, self.other_dim)
            case "collective_permute":
                return oracle.collective_permute(operands, list(self.pairs))
            case "collective_broadcast":
                return oracle.collective_broadcast(operands, self.groups, self.root)
        return oracle.collective_reduce(operands, self.groups, self.reduction, self.root)

    def operation(self, size: int) -> c.Operation:
        reduction = c.MONOIDS[self.reduction]
        match self.op:
            case "all_reduce":
                return c.AllReduce(self.shape, self.dtype, reduction, self.reproducible)
            case "reduce_scatter":
                return c.ReduceScatter(self.shape, self.dtype, reduction, self.dim, self.reproducible)
            case "all_gather":
                return c.AllGather(self.shape, self.dtype, self.dim)
            case "all_to_all":
                return c.AllToAll(self.shape, self.dtype, self.dim, self.other_dim, size)
            case "collective_permute":
                return c.CollectivePermute(self.shape, self.dtype, self.pairs)
            case "collective_broadcast":
                return c.CollectiveBroadcast(self.shape, self.dtype, self.root)
        return c.CollectiveReduce(self.shape, self.dtype, reduction, self.root, self.reproducible)

    def run(self, world: Communicator) -> np.ndarray[Any, Any]:
        """This process's result; `world` has at least the grid's processes and this is one of them."""
        groups = STRATEGIES[self.strategy][0](self.grid, self.ids)
        grid_members = tuple(range(self.grid.size))
        members = grid_members if self.op == "collective_permute" else groups.find(world.world_rank)
        assert members is not None
        group = world.group(members)
        operation = self.operation(group.size)
        array = self.operand(world.world_rank)
        match self.form:
            case "start":
                return group.bind_start(operation)(array).wait()
            case "out":
                out = np.full(operation.result_shape(group.size), 1, self.dtype)
                assert group.bind(operation)(array, out) is out
                return out
            case "in place" if operation.result_shape(group.size) == self.shape:
                assert group.bind(operation)(array, array) is array
                return array
            case "strided":
                return group.bind(operation)(np.array(array, order="F"))
        result = group.bind(operation)(array)
        assert same(array, self.operand(world.world_rank)), "the operand was written to"
        assert not np.shares_memory(result, array)
        return result


def draw_values(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], tame: bool) -> Any:
    """Values whose sums and products are exact; NaN, infinities and zeros of both signs where the type has them."""
    if dtype == np.bool_:
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    if dtype.kind == "c":
        parts = rng.integers(-1, 2, (2, *shape)) if tame else rng.integers(-3, 4, (2, *shape))
        return np.asarray(parts[0] + 1j * parts[1]).astype(dtype)
    if "int" in dtype.name:
        low, high = (0, 4) if dtype.name.startswith("u") else (-2, 2)
        return np.asarray(rng.integers(low, high, shape)).astype(np.int8).astype(dtype)
    pool = [-1.0, 1.0, 0.0, -0.0] if tame else [-2.0, -1.0, 0.0, -0.0, 1.0, 2.0]
    limits = ml_dtypes.finfo(dtype)
    if limits.bits > 6:
        if not np.isnan(np.array(np.inf).astype(dtype).astype(np.float64)):
            pool += [np.inf, -np.inf]
        pool += [np.nan]
    return np.asarray(rng.choice(pool, shape)).astype(dtype)


def same(actual: Any, expected: Any) -> bool:
    """Equal in type, shape and value, NaN being equal to NaN."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype.kind != "c" and actual.dtype != np.bool_:
        if "int" in actual.dtype.name:
            return bool((actual.astype(object) == expected.astype(object)).all())
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    return bool(np.array_equal(actual, expected, equal_nan=True))


def bits(array: Any) -> bytes:
    """The array's bits, all NaNs alike: which NaN an addition gives hangs on the processor's order of operands."""
    dense = np.array(array, order="C", ndmin=1)
    if dense.dtype.kind == "c":
        dense = dense.view(dense.real.dtype)
    nans = dense != dense
    if nans.any():
        dense[nans] = np.nan
    return dense.tobytes()


@st.composite
def cases(draw: st.DrawFn, most: int = 16) -> CollectiveCase:
    """Cases on grids of at most `most` processes and at most 4x4."""
    replicas = draw(st.integers(1, min(4, most)))
    partitions = draw(st.integers(1, min(4, most // replicas)))
    grid = c.ProcessGrid(replicas, partitions)
    strategy = draw(st.sampled_from(sorted(STRATEGIES)))
    count = {"cross_partition": partitions, "flattened_ids": grid.size}.get(strategy, replicas)
    ids = _rows(draw, count)
    op = draw(st.sampled_from(
        ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "collective_permute", "collective_broadcast",
         "collective_reduce"]
    ))  # fmt: skip
    size = len(ids[0]) * (partitions if strategy == "cross_replica_and_partition" else 1)
    dtype = draw(st.sampled_from(DTYPES))
    rank = draw(st.integers(1 if op in ("reduce_scatter", "all_gather", "all_to_all") else 0, 3))
    shape = [draw(st.integers(0, 3)) for _ in range(rank)]
    dim = draw(st.integers(0, max(0, rank - 1)))
    if op in ("reduce_scatter", "all_to_all"):
        shape[dim] *= size
    names = ["add", "multiply", "maximum", "minimum"]
    if dtype == np.bool_ or "int" in dtype.name:
        names += ["and", "or", "xor"]
    sources = draw(st.permutations(range(grid.size)))
    targets = draw(st.permutations(range(grid.size)))
    pairs = list(zip(sources, targets, strict=True))[: draw(st.integers(0, grid.size))]
    return CollectiveCase(
        grid, strategy, ids, op, dtype, tuple(shape), dim, draw(st.integers(0, max(0, rank - 1))),
        draw(st.sampled_from(names)), draw(st.booleans()), draw(st.integers(0, size - 1)), tuple(pairs),
        draw(st.integers(0, 99)), draw(st.sampled_from(["plain", "start", "out", "in place", "strided"])),
    )  # fmt: skip


def _rows(draw: st.DrawFn, count: int) -> tuple[tuple[int, ...], ...]:
    """All ids below `count` in rows of one length, in any order."""
    order = draw(st.permutations(range(count)))
    length = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    return tuple(tuple(order[i : i + length]) for i in range(0, count, length))
