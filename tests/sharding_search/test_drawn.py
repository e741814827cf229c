"""Drawn programs: what is found beside all layouts of arguments there are, and its results beside one process's."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import spmd
from partitioner.search.model import NONE, fits
from spmd.sharding_search.layouts import ProgramLayout, Spec, annotated, mesh_op_of
from spmd.sharding_search.search import ShardingSearch, spec_of
from tests.partitioner.running import run_module
from tests.sharding_search.programs import MACHINE, NETWORK, shape, traced

Drawn = tuple[Callable[..., Any], tuple[Any, ...]]
#: Programs of few layouts: products, a step of training, rows looked up.
SEEDS = (0, 7, 10)
#: How much slower than the best there is, at most.
MOST = 1.15


def products(draw: Callable[[int, int], int]) -> Drawn:
    rows, width, hidden = draw(5, 14), draw(5, 11), draw(5, 12)
    return (lambda x, up, down: jax.nn.relu(x @ up) @ down), (
        shape(rows, width),
        shape(width, hidden),
        shape(hidden, width),
    )


def training(draw: Callable[[int, int], int]) -> Drawn:
    rows, width, hidden = draw(5, 12), draw(5, 10), draw(5, 10)

    def step(up: Any, down: Any, x: Any) -> Any:
        slopes = jax.grad(lambda up, down: jnp.mean((jnp.tanh(x @ up) @ down) ** 2), (0, 1))(up, down)
        return up - 0.1 * slopes[0], down - 0.1 * slopes[1]

    return step, (shape(width, hidden), shape(hidden, width), shape(rows, width))


def attention(draw: Callable[[int, int], int]) -> Drawn:
    sizes = draw(1, 4), draw(4, 8), draw(1, 4), draw(3, 5)

    def attended(query: Any, key: Any, value: Any) -> Any:
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", query, key))
        return jnp.einsum("bhqk,bkhd->bqhd", weights, value)

    return attended, (shape(*sizes),) * 3


def experts(draw: Callable[[int, int], int]) -> Drawn:
    count, rows, width, hidden = draw(2, 4), draw(2, 8), draw(5, 9), draw(5, 10)

    def computed(x: Any, up: Any, down: Any) -> Any:
        return jnp.einsum("ech,ehd->ecd", jax.nn.relu(jnp.einsum("ecd,edh->ech", x, up)), down)

    return computed, (shape(count, rows, width), shape(count, width, hidden), shape(count, hidden, width))


def lookup(draw: Callable[[int, int], int]) -> Drawn:
    width, hidden = draw(5, 9), draw(5, 10)
    arguments = shape(draw(8, 13), width), shape(draw(5, 12), dtype=np.int32), shape(width, hidden)
    return (lambda table, rows, weight: jnp.tanh(table[rows]) @ weight), arguments


def norm(draw: Callable[[int, int], int]) -> Drawn:
    rows, width = draw(5, 13), draw(5, 11)

    def normed(x: Any, scale: Any, weight: Any) -> Any:
        centred = x - jnp.mean(x, -1, keepdims=True)
        return x + centred * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * scale @ weight

    return normed, (shape(rows, width), shape(width), shape(width, width))


KINDS = (products, training, attention, experts, lookup, norm)


def drawn(seed: int, largest: int = 14) -> tuple[spmd.Module, dict[str, int], random.Random]:
    """A program, and a mesh to lay it out over."""
    source = random.Random(seed)
    function, arguments = KINDS[seed % len(KINDS)](lambda low, high: 2 ** min(source.randint(low, high), largest))
    mesh = source.choice([{"a": 4}, {"a": 8}, {"a": 2, "b": 2}, {"a": 4, "b": 2}])
    return traced(function, *arguments), mesh, source


def search(module: spmd.Module, mesh: dict[str, int]) -> ShardingSearch:
    return ShardingSearch(module, "main", mesh_op_of(module, mesh), MACHINE, NETWORK)


def all_layouts(of: ShardingSearch) -> list[list[Spec]]:
    """Every way to cut each argument."""
    names, sizes = [name for name, _ in of.model.axes], of.model.sizes
    every = []
    for tensor in of.model.arguments:
        assert tensor is not None
        rank = len(tensor.spec.shape)
        ways = product((NONE, *range(rank)), repeat=len(names))
        every.append([spec_of(places, rank, names) for places in ways if _fits(tensor.spec.shape, places, sizes)])
    return every


def _fits(extents: tuple[int, ...], places: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    blocks = [1] * len(extents)
    for place, size in zip(places, sizes, strict=True):
        if place != NONE:
            blocks[place] *= size
    return all(count == 1 or fits(extent, count) for extent, count in zip(extents, blocks, strict=True))


def check_against_all(seed: int, most: int) -> bool:
    """False where there are more layouts than `most`: nothing is checked."""
    module, mesh, _ = drawn(seed)
    mine, other = search(module, mesh), search(module, mesh)
    every = all_layouts(other)
    if np.prod([len(each) for each in every]) > most:
        return False
    found = mine.run()
    assert found is not None
    nothing = (None,) * len(other.model.results)
    priced = [other.pricer.price(ProgramLayout(layout, nothing)) for layout in product(*every)]
    assert found.seconds <= MOST * min(each.seconds for each in priced if each is not None)
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_found_is_as_fast_as_the_best_of_all_layouts(seed: int) -> None:
    assert check_against_all(seed, 81)


@pytest.mark.slow
def test_what_is_found_is_as_fast_as_the_best_of_many_programs() -> None:
    assert sum(check_against_all(seed, 81) for seed in range(30)) > 12


def check_right(seed: int) -> None:
    module, mesh, source = drawn(seed, largest=6)
    of = search(module, mesh)
    of.run()
    rng = np.random.default_rng(seed)
    arrays = []
    for type in module.function("main").type.inputs:
        sizes, dtype = type.static_shape, type.dtype  # type: ignore[attr-defined]
        values = rng.integers(0, 32, sizes) if dtype.kind == "i" else rng.standard_normal(sizes) / 8
        arrays.append(values.astype(dtype))
    expected = spmd.compile(module, spmd.ProcessGrid(1, 1))(*arrays)
    told = [each for each in of.priced if each.layout.inner]
    for each in source.sample(of.priced, min(3, len(of.priced))) + told[:2]:
        laid_out = annotated(module, of.mesh, each.layout, "main")
        for mine, want in zip(run_module(laid_out, arrays, int(np.prod(list(mesh.values())))), expected, strict=True):
            np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", (7,))
def test_what_is_laid_out_is_right(seed: int) -> None:
    check_right(seed)


@pytest.mark.slow
def test_what_is_laid_out_of_many_programs_is_right() -> None:
    for seed in range(14):
        check_right(seed)
