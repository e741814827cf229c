"""A partitioned program gives what the unpartitioned one gives, whatever the program, the mesh and the shardings.

`SPMD_PROPERTY_DRAWS` says how many programs are drawn of each kind; of the first there are three times as many.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from tests.effort import some_slow
from tests.partitioner.drawn_collectives import draw_collectives
from tests.partitioner.drawn_factors import draw_factors
from tests.partitioner.drawn_manual import draw_manual
from tests.partitioner.drawn_programs import Drawn, draw
from tests.partitioner.running import run_parts, run_whole

_DRAWS = int(os.environ.get("SPMD_PROPERTY_DRAWS", "40"))
_BATCH = 20


def _batches(draws: int) -> list[range]:
    return [range(first, min(first + _BATCH, draws)) for first in range(0, draws, _BATCH)]


def _compare(drawn: Drawn, seed: int) -> None:
    expected = run_whole(drawn.whole, drawn.arguments)
    results = run_parts(drawn.sharded, drawn.arguments, drawn.devices)
    for result, whole in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, whole, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}\n{drawn.sharded}")


@pytest.mark.parametrize("seeds", some_slow(_batches(3 * _DRAWS), 1), ids=str)
def test_parts_agree_with_the_whole(seeds: range) -> None:
    for seed in seeds:
        _compare(draw(seed), seed)


@pytest.mark.parametrize("seeds", some_slow(_batches(_DRAWS), 1), ids=str)
@pytest.mark.parametrize("draw_one", [draw_collectives, draw_factors])
def test_explicit_collectives_agree_with_the_whole(draw_one: Callable[[int], Drawn], seeds: range) -> None:
    for seed in seeds:
        _compare(draw_one(seed), seed)


@pytest.mark.parametrize("seeds", some_slow(_batches(_DRAWS), 1), ids=str)
def test_manual_computations_work_on_their_blocks(seeds: range) -> None:
    for seed in seeds:
        drawn = draw_manual(seed)
        (result,) = run_parts(drawn.text, [drawn.argument], drawn.devices)
        np.testing.assert_array_equal(result, drawn.result, err_msg=f"seed {seed}\n{drawn.text}")
