"""Meshes as prime sub-axes."""

from __future__ import annotations

import pytest

from partitioner.mesh import Grid, MeshBuilder, MeshError, primes


def _grid(*axes: tuple[str, int], devices: tuple[int, ...] | None = None) -> Grid:
    return Grid(axes, devices)


def test_axes_are_runs_of_prime_sub_axes() -> None:
    grid = _grid(("x", 4), ("y", 2))
    builder = MeshBuilder([grid])
    assert builder.mesh.sizes == (2, 2, 2)
    assert builder.axes(grid) == [(0, 1), (2,)]
    assert builder.mesh.format((0, 1, 2)) == '"x", "y"'
    assert builder.mesh.format((1, 0)) == '"x":(2)2, "x":(1)2'


def test_groups_hold_the_devices_that_differ_along_the_axes_in_block_order() -> None:
    mesh = MeshBuilder([_grid(("x", 4), ("y", 2))]).mesh
    assert mesh.groups((0, 1)).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert mesh.groups((2,)).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh.groups((1, 0)).tolist() == [[0, 4, 2, 6], [1, 5, 3, 7]]


def test_a_transposed_mesh_shares_the_sub_axes() -> None:
    first, second = _grid(("x", 4), ("y", 2)), _grid(("a", 2), ("b", 4), devices=(0, 2, 4, 6, 1, 3, 5, 7))
    builder = MeshBuilder([first, second])
    assert builder.axes(second) == [(2,), (0, 1)]


def test_axes_of_one_device_cut_nothing() -> None:
    single, grid = _grid(("i", 1), devices=(3,)), _grid(("x", 4), ("y", 2))
    builder = MeshBuilder([single, grid])
    assert builder.mesh is builder.mesh_of(single) is builder.mesh_of(grid)
    assert builder.mesh.text == '"x"=4, "y"=2'
    assert builder.axes(single) == [()]


def test_any_device_order_is_kept() -> None:
    devices = (0, 3, 4, 6, 1, 2, 5, 7)
    grid = _grid(("a", 2), ("b", 4), devices=devices)
    mesh = MeshBuilder([grid]).mesh
    blocks = mesh.block_index(MeshBuilder([grid]).axes(grid)[0])
    assert [int(blocks[device]) for device in devices] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_meshes_without_common_parts_are_refused() -> None:
    with pytest.raises(MeshError):
        MeshBuilder([_grid(("x", 2), ("y", 3)), _grid(("x", 3), ("y", 2))])
    with pytest.raises(MeshError):
        MeshBuilder([_grid(("x", 2)), _grid(("x", 4))])


@pytest.mark.parametrize(("number", "factors"), [(1, []), (2, [2]), (12, [2, 2, 3]), (49, [7, 7]), (97, [97])])
def test_primes(number: int, factors: list[int]) -> None:
    assert primes(number) == factors
