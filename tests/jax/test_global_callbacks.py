"""Python functions that a program of the global view calls are called once, by one process, and all have the value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import partitioner
import spmd

jax = pytest.importorskip("jax")

from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import spmd.jax  # noqa: E402
from tests.jax.global_callbacks import FUNCTIONS, NOTES, X, global_view, note, on_one_device  # noqa: E402
from tests.jax_meshes import abstract_mesh  # noqa: E402


@pytest.fixture(params=["shardy", "gspmd"])
def of_partitioner(request: pytest.FixtureRequest) -> Iterator[str]:
    """JAX lowers for either partitioner."""
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param == "shardy")
    yield request.param
    jax.config.update("jax_use_shardy_partitioner", before)


def on_threads(function: Any, count: int, *arguments: Any) -> list[tuple[Any, ...]]:
    """The results of each of `count` processes, threads of this one; tokens left out."""
    module = spmd.jax.jit(function).lower(*arguments)
    grid = spmd.ProcessGrid(1, count)
    parts = partitioner.partition(module, grid)
    tokens = sum(layout.sharding is None for layout in parts.in_shardings)
    layouts = parts.in_shardings[tokens:]
    blocks = [
        [partitioner.shard_array(value, layout, rank) for value, layout in zip(arguments, layouts, strict=True)]
        for rank in range(count)
    ]
    results = spmd.run_parallel(parts.module, grid, [[*(None,) * tokens, *own] for own in blocks], timeout=30)
    outs = parts.out_shardings
    return [
        tuple(
            partitioner.join_blocks([other[index] for other in results], outs[index])
            if not outs[index].sharding.is_replicated
            else own[index]
            for index in range(tokens, len(outs))
        )
        for own in results
    ]


def check(leaves: Any, expected: Any) -> None:
    for actual, desired in zip(leaves, jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(actual, desired)
        if desired.dtype.kind in "fc":
            np.testing.assert_array_equal(np.signbit(actual.real), np.signbit(desired.real))


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("name", "count"), [*((name, 4) for name in FUNCTIONS), ("once", 1), ("ordered", 2), ("kinds", 8)]
)
def test_once_on_threads(name: str, count: int, of_partitioner: str) -> None:
    expected, notes = on_one_device(name)
    NOTES.clear()
    of_processes = on_threads(global_view(name, count), count, X)
    assert notes == NOTES
    for own in of_processes:
        check(own, expected)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_once_stacked(name: str, of_partitioner: str) -> None:
    expected, notes = on_one_device(name)
    many = spmd.jax.simulate(global_view(name, 8))
    NOTES.clear()
    results = many(X)
    assert notes == NOTES
    check(jax.tree.leaves(many.unshard(results)), expected)


def test_callbacks_of_manual_code_are_each_process_s_own(of_partitioner: str) -> None:
    mesh = abstract_mesh((2, 2), ("a", "b"))

    def function(x: Any) -> Any:
        jax.debug.callback(lambda v: note("whole", v), x)

        def own(v: Any) -> Any:
            jax.debug.callback(lambda a, b, v: note("part", a, b, v), *map(jax.lax.axis_index, ("a", "b")), v)
            return jax.lax.psum(v, "a")

        return jax.shard_map(own, mesh=mesh, in_specs=P(("a", "b")), out_specs=P("b"))(x)

    x = np.arange(4, dtype=np.float32)
    NOTES.clear()
    for own in on_threads(jax.jit(function), 4, x):
        np.testing.assert_array_equal(own[0], [2, 4])
    assert sorted(NOTES, key=str) == [
        *[("part", a, b, [2.0 * a + b]) for a in range(2) for b in range(2)],
        ("whole", x.tolist()),
    ]


def test_callbacks_of_partly_manual_code_are_issued_once_for_each_part(of_partitioner: str) -> None:
    mesh = abstract_mesh((2, 2), ("a", "b"))

    def own(v: Any) -> Any:
        jax.debug.callback(lambda v: note("part", v), v)
        return jax.lax.psum(v, "a")

    mapped = jax.shard_map(own, mesh=mesh, in_specs=P("a"), out_specs=P(), axis_names={"a"})
    x = np.arange(8, dtype=np.float32)
    function = jax.jit(mapped, in_shardings=NamedSharding(mesh, P(("a", "b"))))
    NOTES.clear()
    for results in on_threads(function, 4, x):
        np.testing.assert_array_equal(results[0], x[:4] + x[4:])
    assert sorted(NOTES) == [("part", [0, 1, 2, 3]), ("part", [4, 5, 6, 7])]
    many = spmd.jax.simulate(function)
    NOTES.clear()
    np.testing.assert_array_equal(many.unshard(many(x)), x[:4] + x[4:])
    assert sorted(NOTES) == [("part", [0, 1, 2, 3]), ("part", [4, 5, 6, 7])]
