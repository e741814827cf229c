"""What a program takes in memory, in sizes of its text: tables and places must not outgrow what they stand for."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

import spmd
from benchmarks.language import layers, numbered


@pytest.mark.parametrize("count", [5_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("named", [str, numbered])
def test_reading_takes_three_times_the_text(named: Callable[[str], str], count: int) -> None:
    text = named(layers(count))
    spmd.parse(text)
    gc.collect()
    tracemalloc.start()
    module = spmd.parse(text)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert module.functions[0].body.ops[-1].name == "func.return"
    assert len(text) + held <= 2.7 * len(text)
    assert len(text) + peak <= 3 * len(text)
