"""What a program takes in memory, in sizes of its text: tables and places must not outgrow what they stand for."""

import gc
import tracemalloc

import pytest

import spmd
from benchmarks.language import layers, numbered


@pytest.mark.parametrize("text", [layers(5_000), numbered(layers(5_000))], ids=["named", "numbered"])
def test_reading_takes_three_times_the_text(text: str) -> None:
    spmd.parse(text)
    gc.collect()
    tracemalloc.start()
    module = spmd.parse(text)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert module.functions[0].body.ops[-1].name == "func.return"
    assert len(text) + held <= 2.7 * len(text)
    assert len(text) + peak <= 3 * len(text)
