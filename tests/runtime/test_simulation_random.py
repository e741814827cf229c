"""Stacked processes against threads: random grids, groups, types, shapes and values that hurt, bit for bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.support.arrays import Array
from spmd.types import ELEMENT_TYPES
from tests.backends.modules import type_of
from tests.compiler.stacking import same_bits
from tests.effort import examples

ELEMENTS = ["i1", "i4", "ui8", "i32", "ui64", "f8E4M3FN", "bf16", "f16", "f32", "f64", "complex<f32>"]
REDUCING = ["all_reduce", "reduce_scatter", "collective_reduce", "all_gather"]
MOVING = ["all_to_all", "collective_broadcast", "collective_permute"]
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"


def values(element: str, shape: tuple[int, ...], seed: int) -> Array:
    """Random values; zeros of both signs, infinities and NaN where the type has them."""
    rng, dtype = np.random.default_rng(seed), ELEMENT_TYPES[element].dtype
    if element == "i1":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if "i" in element[:2]:
        return np.asarray(rng.integers(0, 256, shape)).astype(np.uint8).astype(dtype)
    drawn = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape)
    hurting = rng.choice([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf], shape)
    picked = np.where(rng.integers(0, 4, shape) == 0, hurting, drawn)
    with np.errstate(all="ignore"):
        if dtype.kind == "c":
            return np.asarray(picked + 1j * rng.standard_normal(shape)).astype(dtype)
        return np.asarray(picked).astype(np.float32).astype(dtype)


def drawn_groups(data: st.DataObject, count: int, uneven: bool) -> list[list[int]]:
    """All ids below `count` in rows, of one length unless `uneven`; sometimes as they lie in the grid."""
    order = list(range(count)) if data.draw(st.booleans()) else data.draw(st.permutations(range(count)))
    if uneven:
        cuts = sorted(data.draw(st.sets(st.integers(1, count - 1)))) if count > 1 else []
        return [order[a:b] for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
    length = data.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    rows = np.array(order).reshape(-1, length)
    return (rows if data.draw(st.booleans()) else np.array(order).reshape(length, -1).T).tolist()


def region(data: st.DataObject, element: str) -> str:
    """A monoid, or a fold that is none: the order of its operands shows."""
    names = ["add", "multiply", "maximum", "minimum", *(["and", "or", "xor"] if "i" in element[:2] else [])]
    name = data.draw(st.sampled_from([*names, "subtract"] if element != "i1" else names))
    e = f"tensor<{element}>"
    return f"({{\n^bb0(%a: {e}, %b: {e}):\n%c = stablehlo.{name} %a, %b : {e}\nstablehlo.return %c : {e}\n}})"


def attribute(rows: list[list[int]]) -> str:
    longest = max(map(len, rows))
    padded = [row + [-1] * (longest - len(row)) for row in rows]
    return f"dense<{padded}> : tensor<{len(rows)}x{longest}xi64>"


def drawn_program(data: st.DataObject) -> tuple[str, spmd.ProcessGrid, str, tuple[int, ...]]:
    """One collective on an argument, its result beside it in a sum where the shapes agree."""
    grid = spmd.ProcessGrid(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
    op = data.draw(st.sampled_from(REDUCING + MOVING))
    element = data.draw(st.sampled_from(ELEMENTS))
    channel, flat = data.draw(st.booleans()), op in REDUCING and data.draw(st.booleans())
    channel = channel or flat
    if op in MOVING:
        count = grid.num_partitions if channel else grid.num_replicas
    else:
        count = grid.size if flat else grid.num_replicas
    rows = drawn_groups(data, count, op in ("all_reduce", "collective_reduce") and data.draw(st.booleans()))
    if op == "collective_broadcast" and data.draw(st.booleans()):
        rows = rows[:1]
    joined = channel and not flat and op in REDUCING
    size = len(rows[0]) * (grid.num_partitions if joined else 1)
    rank = data.draw(st.integers(1 if op in ("reduce_scatter", "all_gather", "all_to_all") else 0, 3))
    shape = [data.draw(st.integers(0, 3)) for _ in range(rank)]
    dim, other = (data.draw(st.integers(0, max(0, rank - 1))) for _ in range(2))
    result, extra, body = list(shape), "", ""
    if op in ("reduce_scatter", "all_to_all"):
        result[dim] = max(1, shape[dim])
        shape[dim] = result[dim] * size
    if op == "all_to_all":
        result[other] *= size
        extra = f", split_dimension = {dim} : i64, concat_dimension = {other} : i64, split_count = {size} : i64"
    if op == "all_gather":
        shape[dim] = max(1, shape[dim])
        result[dim] = shape[dim] * size
        extra = f", all_gather_dim = {dim} : i64"
    if op == "reduce_scatter":
        extra = f", scatter_dimension = {dim} : i64"
    if op in ("all_reduce", "reduce_scatter", "collective_reduce"):
        body = region(data, element)
    who = f"replica_groups = {attribute(rows)}"
    if op == "collective_permute":
        ids = range(count)
        pairs = [*zip(data.draw(st.permutations(ids)), data.draw(st.permutations(ids)), strict=True)]
        if data.draw(st.booleans()):
            by = data.draw(st.integers(-count, count))
            pairs = [(k, k + by) for k in ids if 0 <= k + by < count]
        pairs = pairs[: data.draw(st.integers(0, count))]
        listed = f"dense<{[list(pair) for pair in pairs]}>" if pairs else "dense<>"
        who = f"source_target_pairs = {listed} : tensor<{len(pairs)}x2xi64>"
    flags = (f", {CHANNEL}" if channel else "") + (", use_global_device_ids" if flat else "")
    result_type, operand_type = type_of((element, shape)), type_of((element, result))
    text = f"""func.func @main(%x: {result_type}) -> {operand_type} {{
      %r = "stablehlo.{op}"(%x) {body} {{{who}{flags}{extra}}} : ({result_type}) -> {operand_type}
      return %r : {operand_type}
    }}"""
    return text, grid, element, tuple(shape)


@settings(max_examples=examples(150))
@given(st.data())
def test_one_collective(data: st.DataObject) -> None:
    text, grid, element, shape = drawn_program(data)
    module = spmd.parse(text)
    simulation = spmd.simulate(module, grid)
    spmd.verify(simulation.module)
    differs = data.draw(st.booleans())
    arguments = [values(element, shape, rank if differs else 0) for rank in range(grid.size)]
    expected = spmd.run_parallel(module, grid, [[array] for array in arguments])
    results = simulation(np.stack(arguments) if differs else arguments[0][None])
    for rank, of_process in enumerate(expected):
        for part, desired in zip(results, of_process, strict=True):
            assert same_bits(np.asarray(part[rank]), np.asarray(desired)), rank
