"""Pairs of programs in several types: each planted fault is found, and what differs by rounding alone is equal."""

from __future__ import annotations

import re
import textwrap
from functools import cache
from typing import Any

import ml_dtypes  # noqa: F401  (files bfloat16 as a dtype)
import numpy as np
import pytest

import partitioner
import spmd
from partitioner.annotate import with_shardings
from spmd.support.arrays import Array
from tests.comparison.families import FAMILIES, Family, lines

jax = pytest.importorskip("jax")


def arrays(family: Family, dtype: str) -> list[Array]:
    random = np.random.default_rng(7)
    return [
        random.integers(0, family.below, shape, np.int32)
        if name in "ijn"
        else np.asarray(family.scale * random.standard_normal(shape) + family.offset).astype(np.dtype(dtype))
        for name, shape in family.shapes.items()
    ]


@cache
def lowered(name: str, dtype: str, replacement: str = "") -> spmd.Module:
    """The program of a family, or of what a replacement makes of it."""
    family, space = FAMILIES[name], {"jax": jax, "jnp": jax.numpy}
    body = textwrap.indent(textwrap.dedent(family.replaced(replacement)), "    ")
    exec(f"def main({', '.join(family.shapes)}):\n{body}", space)
    with jax.enable_x64(dtype == "float64"):
        return spmd.parse(jax.jit(space["main"], keep_unused=True).lower(*arrays(family, dtype)).as_text())


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(name, dtype, replacement, id=f"{name}-{dtype}-{number}")
        for name, family in FAMILIES.items()
        for dtype in family.dtypes
        for number, replacement in enumerate(lines(getattr(family, kind)))
        if kind == "same" or shows(replacement, dtype)
    ]


def shows(replacement: str, dtype: str) -> bool:
    """Whether the type tells each number that is new from those that it replaces, and from 1."""
    old, new = (
        np.array([1.0, *map(float, re.findall(r"\d+\.?\d*(?:e-?\d+)?", part))]) for part in replacement.split(" -> ", 1)
    )
    with np.errstate(over="ignore"):
        is_same = new.astype(np.dtype(dtype))[:, None] == old.astype(np.dtype(dtype))
    return not np.any(is_same & (new[:, None] != old))


TYPED = [pytest.param(name, dtype) for name, family in FAMILIES.items() for dtype in family.dtypes]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "dtype", "replacement"), cases("faults"))
def test_a_planted_fault_is_found(name: str, dtype: str, replacement: str) -> None:
    given = arrays(FAMILIES[name], dtype)
    found = spmd.compare(lowered(name, dtype), lowered(name, dtype, replacement), given)
    assert not found and found.first is not None, found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "dtype", "replacement"), cases("same"))
def test_what_means_the_same_is_equal(name: str, dtype: str, replacement: str) -> None:
    given = arrays(FAMILIES[name], dtype)
    found = spmd.compare(lowered(name, dtype), lowered(name, dtype, replacement), given)
    assert found, found


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_back_ends_differ_by_rounding(name: str, dtype: str) -> None:
    from spmd.jax.peers import xla

    module, given = lowered(name, dtype), arrays(FAMILIES[name], dtype)
    for way in ("numpy", xla):
        found = spmd.compare((module, "llvm"), (module, way), given)
        assert found, found


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_a_partitioned_program_differs_by_rounding(name: str, dtype: str) -> None:
    """The first axis of each argument is cut in two, and the last one in two where there are several."""
    module = lowered(name, dtype)
    specs = [
        ("x", *[None] * (len(shape) - 2), *["y"] * (len(shape) > 1)) if shape else ()
        for shape in FAMILIES[name].shapes.values()
    ]
    split = partitioner.partition(with_shardings(module, {"x": 2, "y": 2}, specs)).module
    found = spmd.compare(module, split, arrays(FAMILIES[name], dtype))
    assert found, found
