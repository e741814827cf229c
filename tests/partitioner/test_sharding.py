"""Blocks of arrays, and arrays from blocks."""

from __future__ import annotations

import numpy as np
import pytest

from partitioner import ShardedType, Sharding, join_blocks, shard_array
from partitioner.mesh import Grid, MeshBuilder
from spmd.types import F32, TensorType

_MESH = MeshBuilder([Grid((("x", 2), ("y", 2)), (0, 1, 2, 3))]).mesh


@pytest.mark.parametrize("shape", [(4, 6), (5, 3), (1, 7), (0, 2)])
@pytest.mark.parametrize("dimensions", [((0,), (1,)), ((0, 1), ()), ((), (1, 0)), ((), ())])
def test_blocks_join_to_the_array(shape: tuple[int, ...], dimensions: tuple[tuple[int, ...], ...]) -> None:
    layout = ShardedType(TensorType(shape, F32), Sharding(_MESH, dimensions))
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    blocks = [shard_array(array, layout, rank) for rank in range(4)]
    assert {block.shape for block in blocks} == {layout.local_type.shape}  # type: ignore[attr-defined]
    np.testing.assert_array_equal(join_blocks(blocks, layout), array)


def test_a_callback_makes_the_block() -> None:
    layout = ShardedType(TensorType((5, 4), F32), Sharding(_MESH, ((0,), ())))
    array = np.arange(20, dtype=np.float32).reshape(5, 4)
    indices = []

    def callback(index: tuple[slice, ...]) -> np.ndarray:
        indices.append(index)
        return array[index]

    for rank in range(4):
        np.testing.assert_array_equal(shard_array(callback, layout, rank), shard_array(array, layout, rank))
    assert indices[0] == (slice(0, 3), slice(0, 4))
    assert indices[3] == (slice(3, 5), slice(0, 4))


def test_wrong_arrays_are_refused() -> None:
    layout = ShardedType(TensorType((4,), F32), Sharding(_MESH, ((0,),)))
    with pytest.raises(ValueError, match="shape"):
        shard_array(np.zeros(5, np.float32), layout, 0)
    with pytest.raises(TypeError, match="dtype"):
        shard_array(np.zeros(4, np.float64), layout, 0)
    with pytest.raises(ValueError, match="callback"):
        shard_array(lambda index: np.zeros(4, np.float32), layout, 0)


def test_even_layouts_keep_whole_axes_that_give_equal_blocks() -> None:
    mesh = MeshBuilder([Grid((("x", 2), ("y", 4)), tuple(range(8)))]).mesh
    parts = {name: tuple(n for n, part in enumerate(mesh.sub_axes) if part.name == name) for name in "xy"}
    xy, yx = parts["x"] + parts["y"], parts["y"] + parts["x"]
    kept = Sharding(mesh, (xy, yx)).even((8, 8)), Sharding(mesh, (xy, yx)).even((6, 6))
    assert [layout.dimensions for layout in kept] == [(xy, yx), (parts["x"], ())]
    assert Sharding(mesh, (parts["y"][:1],)).even((8,)).dimensions == ((),)
