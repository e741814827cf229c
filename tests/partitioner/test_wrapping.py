"""What a sharding says goes through calls, loops, branches and manual computations: wrapping parts changes nothing.

`SPMD_PROPERTY_DRAWS` says how many programs are drawn, as in test_property.py.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import partitioner
import spmd
from tests.effort import some_slow
from tests.partitioner.drawn_programs import draw
from tests.partitioner.running import run_module, run_whole
from tests.partitioner.wrapping import WRAPPERS, wrap

_DRAWS = int(os.environ.get("SPMD_PROPERTY_DRAWS", "40"))
_BATCH = 20
_BATCHES = some_slow([range(first, first + _BATCH) for first in range(0, 3 * _DRAWS, _BATCH)], 1)


@pytest.mark.parametrize("seeds", _BATCHES, ids=str)
def test_calls_leave_no_trace(seeds: range) -> None:
    """The program of one process, and how its arguments and results lie, are the same to the letter."""
    for seed in seeds:
        drawn = draw(seed, rich=True)
        # As printed: a constant whose elements are one is told by that element.
        module, grid = spmd.parse(str(spmd.parse(drawn.sharded))), spmd.ProcessGrid(1, drawn.devices)
        wrapped = wrap(module, np.random.default_rng([seed, 1]), ["call"])
        plain, parts = partitioner.partition(module, grid), partitioner.partition(wrapped, grid)
        where = f"seed {seed}\n{wrapped}"
        assert str(parts.module) == str(plain.module), where
        assert str(parts.in_shardings) == str(plain.in_shardings), where
        assert str(parts.out_shardings) == str(plain.out_shardings), where


@pytest.mark.parametrize("seeds", _BATCHES, ids=str)
def test_wrapped_parts_give_what_they_give(seeds: range) -> None:
    """Results are the same; what is annotated and closed lies as it does without wrappers, unreduced axes, too."""
    for seed in seeds:
        drawn = draw(seed, rich=True)
        module, grid = spmd.parse(drawn.sharded), spmd.ProcessGrid(1, drawn.devices)
        wrapped = wrap(module, np.random.default_rng([seed, 2]), [*WRAPPERS], 3)
        where = f"seed {seed}\n{wrapped}"
        results = run_module(wrapped, drawn.arguments, drawn.devices)
        for result, whole in zip(results, run_whole(drawn.whole, drawn.arguments), strict=True):
            np.testing.assert_allclose(result, whole, rtol=1e-4, atol=1e-4, err_msg=where)
        plain, parts = partitioner.partition(module, grid), partitioner.partition(wrapped, grid)
        main = module.function("main")
        for entries, mine, others in (
            (main.argument_attributes, parts.in_shardings, plain.in_shardings),
            (main.result_attributes, parts.out_shardings, plain.out_shardings),
        ):
            for entry, one, other in zip(entries, mine, others, strict=True):
                if "sdy.sharding" in entry and all(each.is_closed for each in entry["sdy.sharding"].dimensions):
                    assert str(one) == str(other), where
