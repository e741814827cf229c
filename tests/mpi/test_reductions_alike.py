"""Reductions between ranks have the bits that stacked processes have, for every element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.support.arrays import Array
from tests.backends.reduction_programs import TYPES, expect_alike, operands, program, run
from tests.effort import some_slow

pytestmark = pytest.mark.mpi


def _drawn(element: str, size: int) -> tuple[str, list[Array], dict[str, Any]]:
    """The program, the operand of each rank, and options: association shows in the bits, so that it is fixed."""
    random = np.random.default_rng([*element.encode()])
    ranks = random.permutation(size).tolist()
    groups, scattered = [([ranks], 0), ([ranks[:-1], ranks[-1:]], None)][random.integers(2)]
    options = {"reproducible": True, "excess_precision": bool(random.integers(2))}
    return program(element, groups, (size, 3), scattered), operands(element, (size, 3), size, random), options


@pytest.mark.parametrize("elements", some_slow([[*TYPES][first::6] for first in range(6)], 1), ids=str)
def test_ranks_agree_with_stacked_processes(elements: list[str]) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    stacked: list[Sequence[Any]] | None = None
    if world.rank == 0:
        drawn = [_drawn(element, world.size) for element in elements]
        runs = [run(text, arrays, mode="stacked", **options) for text, arrays, options in drawn]
        stacked = [*zip(*runs, strict=True)]
    expected = world.scatter(stacked)
    for element, results in zip(elements, expected, strict=True):
        text, arrays, options = _drawn(element, world.size)
        executable = spmd.compile(spmd.parse(text), spmd.ProcessGrid(world.size, 1), **options)
        expect_alike([executable(arrays[world.rank])], [results], element)
