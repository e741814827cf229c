"""`spmd.autoshard`: what it gives, keeps and refuses, and that what it lays out is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import spmd
from spmd.sharding_search.layouts import ProgramLayout
from tests.partitioner.running import run_module
from tests.sharding_search.programs import searched, shape, traced, train

MLP = """func.func @main(%x: tensor<64x256xf32>{X}, %up: tensor<256x1024xf32>, %down: tensor<1024x256xf32>)
    -> tensor<64x256xf32> {
  %0 = stablehlo.dot_general %x, %up, contracting_dims = [1] x [0]
    : (tensor<64x256xf32>, tensor<256x1024xf32>) -> tensor<64x1024xf32>
  %1 = stablehlo.tanh %0 : tensor<64x1024xf32>
  %2 = stablehlo.dot_general %1, %down, contracting_dims = [1] x [0]
    : (tensor<64x1024xf32>, tensor<1024x256xf32>) -> tensor<64x256xf32>
  return %2 : tensor<64x256xf32>
}
"""


def program(of_x: str = "") -> spmd.Module:
    return spmd.parse(MLP.replace("{X}", of_x), name="mlp.mlir")


def test_the_program_is_one_that_could_have_been_written() -> None:
    module, plan = searched(program(), {"model": 4})
    assert str(module).count("{sdy.sharding = #sdy.sharding<@mesh, [{") == 4
    again = spmd.parse(str(module))
    assert str(again) == str(module)
    assert plan.explain().startswith("a step of ") and "next best" in plan.explain()


def test_the_same_program_has_the_same_plan() -> None:
    told: list[tuple[int, int]] = []
    module = traced(train, [shape(64, 64)] * 2, shape(256, 64), shape(256, 64))
    first = searched(module, {"a": 2, "b": 2}, progress=lambda *numbers: told.append(numbers))
    second = searched(module, {"a": 2, "b": 2})
    assert str(first[0]) == str(second[0]) and first[1] == second[1]
    numbers = [number for number, _ in told]
    assert numbers == sorted(numbers) and numbers[0] == 1 and numbers[-1] > 4 and len({most for _, most in told}) == 1


def test_what_is_laid_out_stays_so() -> None:
    text = ' {sdy.sharding = #sdy.sharding<@grid, [{}, {"model"}]>}'
    module = spmd.parse('sdy.mesh @grid = <["model"=4]>\n' + MLP.replace("{X}", text))
    laid_out, plan = searched(module, {"model": 4})
    assert plan.arguments[0].spec == ((), ("model",))
    assert str(laid_out).count("sdy.mesh") == 1
    with pytest.raises(spmd.CompileError, match="must be over the mesh model=8, got model=4"):
        searched(module, {"model": 8})


def test_a_state_comes_back_as_it_was_given() -> None:
    state = [shape(512, 512)] * 2
    _, plan = searched(traced(train, state, shape(512, 512), shape(512, 512)), {"a": 4})
    assert list(plan.results) == [each.spec for each in plan.arguments[:2]]


def test_memory_is_a_limit() -> None:
    module = traced(train, [shape(1024, 1024)] * 2, shape(1 << 12, 1024), shape(1 << 12, 1024))
    _, free = searched(module, {"x": 8})
    limit = 0.8 * free.memory.total
    _, small = searched(module, {"x": 8}, memory=limit)
    assert small.memory.total <= limit and small.seconds >= free.seconds


def test_too_little_memory_says_how_much_is_needed_and_by_what() -> None:
    with pytest.raises(spmd.CompileError) as caught:
        searched(program(), {"model": 4}, memory="10kB")
    text = str(caught.value)
    assert "mlp.mlir:1:1: func.func: no layout of @main over model=4 was found that needs at most 10 kB" in text
    assert "the smallest needs" in text and "%up: tensor<256x1024xf32> 262 kB" in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mesh": {}}, "mesh must be a mapping of names to sizes"),
        ({"mesh": {"a": 0}}, "positive integers by name"),
        ({"mesh": {"a": 1}}, "at least two processes"),
        ({"mesh": {"a": 2}, "memory": "plenty"}, 'such as "16GB"'),
        ({"mesh": {"a": 2}, "memory": -1}, 'such as "16GB"'),
        ({"mesh": {"a": 2}, "machine": 3}, "a file written by spmd calibrate"),
        ({"mesh": {"a": 2}, "topology": 3}, "a file that describes a network"),
    ],
)
def test_what_is_none_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(spmd.UsageError, match=told):
        spmd.autoshard(program(), **options)


def test_results_are_those_of_one_process() -> None:
    rng = np.random.default_rng(0)
    module = traced(train, [shape(32, 64), shape(64, 32)], shape(16, 32), shape(16, 32))
    arrays = [rng.standard_normal(each.static_shape).astype(np.float32) for each in module.function("main").type.inputs]  # type: ignore[attr-defined]
    expected = spmd.compile(module, spmd.ProcessGrid(1, 1))(*arrays)
    laid_out, _ = searched(module, {"x": 8})
    for found, want in zip(run_module(laid_out, arrays, 8), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-5)


def test_a_layout_is_its_values() -> None:
    layout = ProgramLayout(((("x",), ()),), (None,))
    assert layout == ProgramLayout(((("x",), ()),), (None,)) and hash(layout) == hash(layout)
