"""What a notebook shows of values."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import partitioner
import spmd
from partitioner import ShardedType, Sharding
from partitioner.mesh import Grid, MeshBuilder
from spmd.compiler.pipeline.prepare import prepare
from spmd.predict.machine import default_machine
from spmd.predict.prediction import predict
from spmd.types import F32, TensorType
from spmd.viewing.blocks import blocks
from tests.predict.programs import DATA_PARALLEL
from tests.viewing.programs import HOSTILE, LAYERS, shown

MESH = MeshBuilder([Grid((("x", 2), ("y", 3)))]).mesh
X, Y = (0,), (1,)


class Reader(HTMLParser):
    """The cells of tables, and what tags there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] == ["td"]:
            self.cells[-1] += data


def html(value: object) -> str:
    return str(value._repr_html_())  # type: ignore[attr-defined]


def test_a_grid_is_a_table_of_its_ranks() -> None:
    assert Reader(html(spmd.ProcessGrid(2, 3))).cells == list("012345")
    large = html(spmd.ProcessGrid(1 << 10, 1 << 10))
    assert "1,048,576 ranks, the first of them" in large and len(large) < 10_000


@pytest.mark.parametrize(
    ("shape", "dimensions", "cells"),
    [
        ((4, 6), (X, Y), ["0", "1", "2", "3", "4", "5"]),
        ((4, 6), ((), Y), ["0, 3", "1, 4", "2, 5"]),
        ((5,), ((0, 1),), ["0", "1", "2", "3", "4", "5"]),
        ((2, 4, 6), (X, (), Y), ["0", "1", "2", "3", "4", "5"]),
        ((), (), ["0-5"]),
    ],
)
def test_a_layout_is_a_table_of_who_holds_what(
    shape: tuple[int, ...], dimensions: tuple[tuple[int, ...], ...], cells: list[str]
) -> None:
    layout = ShardedType(TensorType(shape, F32), Sharding(MESH, dimensions))
    assert Reader(html(layout)).cells == cells
    assert Reader(html(layout.sharding)).cells == cells


def test_blocks_are_those_that_each_rank_holds() -> None:
    module = spmd.parse(LAYERS)
    for layout in partitioner.partition(module).in_shardings:
        found = blocks(layout, 8)  # two replicas of four devices
        assert sorted(rank for block in found.values() for rank in block.ranks) == list(range(8))
        assert all(layout.index(rank) == block.part for block in found.values() for rank in block.ranks)


@pytest.mark.parametrize("text", [DATA_PARALLEL, HOSTILE])
def test_programs_are_a_page_in_a_frame_of_its_own(text: str) -> None:
    module = spmd.parse(text, verify=False)
    assert Reader(html(module)).tags == ["iframe"]
    assert Reader(html(spmd.compile(module))).tags == ["iframe"]
    assert Reader(html(shown(text))).tags == ["iframe"]


def test_a_prediction_is_its_page_of_text() -> None:
    prediction = predict(prepare(spmd.parse(DATA_PARALLEL)), default_machine())
    told = html(prediction)
    assert Reader(told).tags == ["pre"] and "waiting for others" in told
