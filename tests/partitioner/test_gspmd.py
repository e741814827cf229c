"""GSPMD's sharding strings in both editions."""

from __future__ import annotations

import numpy as np
import pytest

from partitioner.gspmd import parse_sharding
from partitioner.mesh import MeshError
from partitioner.reading import ShardingReader
from partitioner.sharding import Sharding
from spmd import parse

_PROGRAM = """
module attributes {mhlo.num_partitions = 8 : i32} {
  func.func @main(%arg0: tensor<TYPE> {mhlo.sharding = "TEXT"}) -> tensor<TYPE> { return %arg0 : tensor<TYPE> }
}
"""


def _layout(text: str, shape: tuple[int, ...]) -> Sharding:
    kind = "x".join(map(str, shape)) + "xf32"
    module = parse(_PROGRAM.replace("TYPE", kind).replace("TEXT", text))
    reader = ShardingReader(module)
    function = module.function("main")
    (annotation,) = reader.of_attributes(dict(function.argument_attributes[0]), [function.type.inputs[0]], function)
    assert annotation is not None
    return annotation.sharding


def _tiles(layout: Sharding, shape: tuple[int, ...]) -> list[list[tuple[int, int]]]:
    return [[(part.start, part.stop) for part in layout.index(device, shape)] for device in range(8)]


@pytest.mark.parametrize(
    "text",
    [
        "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
        "{devices=[4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}",
        "{devices=[4,1,2]<=[4,2] last_tile_dims={replicated}}",
        "{devices=[4,1,2]<=[8] last_tile_dim_replicate metadata={op_name=\\22a\\22}}",
    ],
)
def test_partial_replication(text: str) -> None:
    tiles = _tiles(_layout(text, (8, 3)), (8, 3))
    assert tiles == [[(device // 2 * 2, device // 2 * 2 + 2), (0, 3)] for device in range(8)]


@pytest.mark.parametrize(
    "text", ["{devices=[8,1]<=[4,2]T(1,0)}", "{devices=[8,1]0,2,4,6,1,3,5,7}", "{devices=[8,1]<=[2,2,2]T(2,0,1)}"]
)
def test_transposed_order(text: str) -> None:
    layout = _layout(text, (16, 2))
    order = np.arange(8).reshape(4, 2).T.ravel()
    for tile, device in enumerate(order):
        assert layout.index(int(device), (16, 2))[0] == slice(2 * tile, 2 * tile + 2)


@pytest.mark.parametrize("text", ["", "{replicated}", "{maximal device=3}"])
def test_whole_values(text: str) -> None:
    assert _layout(text, (4,)).is_replicated


def test_tuples_and_manual() -> None:
    kinds = [sharding.kind for sharding in parse_sharding("{{replicated}, {manual}, {devices=[2]<=[2]}}")]
    assert kinds == ["replicated", "manual", "tiled"]
    (mixed,) = parse_sharding("{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}")
    assert mixed.subgroups == ("manual", "replicated")
    assert mixed.rank == 2


@pytest.mark.parametrize("text", ["replicated", "{devices=4}", "{devices=[3]<=[4]}", "{devices=[4]<=[4]T(1)}"])
def test_what_is_no_sharding(text: str) -> None:
    with pytest.raises(MeshError):
        parse_sharding(text)
