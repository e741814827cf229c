"""A partitioned program gives what the unpartitioned one gives, whatever the program, the mesh and the shardings.

`SPMD_PROPERTY_DRAWS` says how many programs are drawn of each kind; of the first there are three times as many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import spmd
from spmd.support.arrays import Array
from tests.collectives.every_reduction import is_integer
from tests.effort import some_slow
from tests.partitioner.drawn_collectives import draw_collectives
from tests.partitioner.drawn_factors import draw_factors
from tests.partitioner.drawn_manual import draw_manual
from tests.partitioner.drawn_programs import Drawn, draw
from tests.partitioner.running import run_module, run_parts, run_whole
from tests.partitioner.wrapping import WRAPPERS, wrap

_DRAWS = int(os.environ.get("SPMD_PROPERTY_DRAWS", "40"))
_BATCH = 20
#: Types whose numbers are rounded early.
_ROUNDED = ("bf16", "f16", "f8E4M3FN", "f8E5M2")
_TYPES = ("i4", "i8", "i16", "i32", "i64", "ui4", "ui8", "ui16", "ui32", "ui64", "f64", *_ROUNDED)


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


@pytest.mark.parametrize("seeds", some_slow(_batches(3 * _DRAWS), 1), ids=str)
def test_programs_of_every_type_agree_with_the_whole(seeds: range) -> None:
    """Parts of them in calls, loops, branches and manual computations, on threads and stacked: bit for bit."""
    for seed in seeds:
        random = np.random.default_rng([seed, 3])
        drawn = draw(seed, rich=True)
        element = _TYPES[int(random.integers(len(_TYPES)))]
        typed = drawn.of(element)
        module = spmd.parse(typed.sharded)
        if random.integers(2):
            module = wrap(module, random, [*WRAPPERS], 3)
        expected = run_whole(typed.whole, typed.arguments)
        if element in _ROUNDED:
            exact = drawn.of("f64")
            if not _are_equal(run_whole(exact.whole, exact.arguments), expected):
                continue  # what is rounded on the way depends on the order of sums
        results = run_module(module, typed.arguments, typed.devices, mode=["threads", "stacked"][random.integers(2)])
        assert _are_equal(results, expected), f"seed {seed}, {element}\n{module}"


def _are_equal(some: Sequence[Array], others: Sequence[Array]) -> bool:
    """Whether all numbers are the same, if not their types; zeros have no signs here."""
    wides = [np.int64 if is_integer(a.dtype) else np.float64 for a in some]
    pairs = zip(some, others, wides, strict=True)
    return all(np.array_equal(a.astype(wide), b.astype(wide), equal_nan=wide is np.float64) for a, b, wide in pairs)
