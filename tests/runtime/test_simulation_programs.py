"""Random programs stacked against the same as threads: bits, streams, and that both or neither fail."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.support.arrays import Array
from tests.compiler.stacking import same_bits
from tests.effort import examples
from tests.runtime.random_programs import draw_program

Outcome = tuple[list[tuple[Any, ...]], list[list[Any]]]


def outcome(
    module: spmd.Module, grid: spmd.ProcessGrid, inputs: Sequence[Any], fed: list[list[Array]], mode: str
) -> Outcome | None:
    """Results and what was written, process by process; None where the processes do not meet, or a stream ends."""
    outfeed: list[list[Any]] = [[] for _ in inputs]
    options: Any = {"mode": mode, "timeout": 120.0, "abort": True, "reproducible": True}
    infeed = [list(entries) for entries in fed]
    try:
        return spmd.run_parallel(module, grid, inputs, infeed=infeed, outfeed=outfeed, **options), outfeed
    except (spmd.CollectiveError, spmd.ExecutionError):
        return None


@settings(max_examples=examples(40))
@given(st.data())
def test_a_program(data: st.DataObject) -> None:
    text, program, inputs = draw_program(data)
    module = spmd.parse(text)
    threads, stacked = (outcome(module, program.grid, inputs, program.fed, mode) for mode in ("threads", "stacked"))
    assert (threads is None) == (stacked is None)
    if threads is None or stacked is None:
        return
    for kind in (0, 1):
        for rank, (expected, actual) in enumerate(zip(threads[kind], stacked[kind], strict=True)):
            pairs = zip(expected, actual, strict=True)
            assert all(same_bits(np.asarray(left), np.asarray(right)) for left, right in pairs), rank
