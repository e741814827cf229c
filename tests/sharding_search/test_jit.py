"""`spmd.jax.jit` with a layout that is searched for: what it takes and says. That it runs: tests/mpi."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import spmd
import spmd.jax
from tests.sharding_search.programs import forward, shape

ARGUMENTS = [shape(64, 64), shape(64, 64)], shape(32, 64)


def test_leaves_are_searched_for_or_given() -> None:
    auto = spmd.jax.AUTO
    step = spmd.jax.jit(forward, mesh={"x": 2, "y": 2}, in_shardings=([auto, None], P("y")))
    with pytest.raises(spmd.UsageError, match="there is a plan once a program was compiled"):
        _ = step.plan
    module = step.lower(*ARGUMENTS)
    assert [each.spec for each in step.plan.arguments[1:]] == [((), ()), (("y",), ())]
    assert 'sdy.sharding<@mesh, [{"y"}, {}]>' in str(module)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mesh": {"x": 2}, "in_shardings": ("auto", P("z"))}, "is not a layout of an array of 2 dimensions over x=2"),
        ({"mesh": {"x": 2}, "in_shardings": ("auto", 3)}, 'must have "auto", AUTO, a PartitionSpec or None'),
        ({"mesh": {"x": 2}, "in_shardings": ("auto",)}, "a tree like the positional arguments"),
        ({"mesh": {"x": 0}}, "positive integers by name"),
        ({"mesh": {"x": 2}, "axes": {"x": 2}}, "takes a mesh, or the axes"),
        ({"in_shardings": "auto"}, "with a mesh over which a layout is searched for"),
    ],
)
def test_what_is_none_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(spmd.UsageError, match=told):
        spmd.jax.jit(forward, **options).lower(*ARGUMENTS)


def test_the_forms_of_arrays_are_enough() -> None:
    arrays = [np.ones((64, 64), np.float32)] * 2, np.ones((32, 64), np.float32)
    step = spmd.jax.jit(forward, mesh={"x": 2}, in_shardings="auto", memory="1GB")
    assert step.lower(*arrays) is step.lower(*ARGUMENTS)
