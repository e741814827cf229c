"""The blocks of an array hold each of its elements once, or are refused."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd import checkpoint
from spmd.checkpoint import ArrayBlock, CheckpointError
from spmd.checkpoint.blocks import Box, check_cover, cover_fault


def counted(shape: tuple[int, ...], boxes: list[Box]) -> np.ndarray:
    """Return how many of `boxes` hold each element."""
    count = np.zeros(shape, int)
    for box in boxes:
        count[tuple(slice(start, start + size) for start, size in zip(box.start, box.shape, strict=True))] += 1
    return count


def cut(draw: st.DrawFn, box: Box, times: int) -> list[Box]:
    """Cut `box` into two along some dimension, and each part again."""
    sides = [d for d, size in enumerate(box.shape) if size > 1]
    if times == 0 or not sides:
        return [box]
    d = draw(st.sampled_from(sides))
    at = draw(st.integers(1, box.shape[d] - 1))
    first = Box(box.start, (*box.shape[:d], at, *box.shape[d + 1 :]))
    start = (*box.start[:d], box.start[d] + at, *box.start[d + 1 :])
    second = Box(start, (*box.shape[:d], box.shape[d] - at, *box.shape[d + 1 :]))
    return [*cut(draw, first, times - 1), *cut(draw, second, times - 1)]


@st.composite
def blocks(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Box]]:
    """An array cut into blocks, some of which may be moved, made longer, left out or added."""
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=3)))
    boxes = cut(draw, Box((0,) * len(shape), shape), draw(st.integers(0, 4)))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(boxes) - 1))
        start = tuple(draw(st.integers(0, max(size - 1, 0))) for size in shape)
        room = tuple(size - begin for size, begin in zip(shape, start, strict=True))
        other = Box(start, tuple(draw(st.integers(0, size)) for size in room))
        boxes = [*boxes[:place], *([other] if draw(st.booleans()) else []), *boxes[place + 1 :]] or [other]
    return shape, draw(st.permutations(boxes))


@given(blocks())
def test_a_cover_is_what_holds_each_element_once(drawn: tuple[tuple[int, ...], list[Box]]) -> None:
    shape, boxes = drawn
    assert (cover_fault(shape, boxes) is None) == bool((counted(shape, boxes) == 1).all())


def test_blocks_that_overlap_and_leave_a_hole_are_refused() -> None:
    """The numbers of elements agree."""
    boxes = [Box((0,), (500_000,)), Box((250_000,), (500_000,))]
    message = re.escape("x: the blocks [0:500000] and [250000:750000] overlap, and are not the same block")
    with pytest.raises(CheckpointError, match=message):
        check_cover(["x"], [(1_000_000,)], [[box] for box in boxes])


def test_the_same_block_on_several_processes_is_one() -> None:
    rows = [Box((0, 0), (2, 3)), Box((2, 0), (2, 3))]
    check_cover(["x"], [(4, 3)], [[box] for box in (*rows, *rows)])


def test_columns_of_thousands_of_processes() -> None:
    columns = [Box((0, k), (8, 1)) for k in range(4096)]
    assert cover_fault((8, 4096), columns) is None
    assert cover_fault((8, 4096), [*columns[:-1], columns[7]]) is not None


def test_one_process_that_holds_a_part_cannot_save(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"x: the blocks of all processes have 3 elements, its shape \(4,\) has 4"
    ):
        checkpoint.save(tmp_path, 1, {"x": np.zeros(3)}, {"x": ArrayBlock((4,), (slice(0, 3),))})
