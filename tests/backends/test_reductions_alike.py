"""Reductions between processes have the same bits stacked and on threads, on every back end, for every element type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.backends.reduction_programs import TYPES, expect_alike, operands, program, run
from tests.effort import examples

_BACKENDS = [("llvm", "numpy"), ("numpy",)]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("element", TYPES)
def test_all_groups_and_types(element: str) -> None:
    """Groups of one to five processes at once, or two groups of one size, whose members are dealt at random."""
    random = np.random.default_rng([*element.encode()])
    for _ in range(examples(12) - 2):
        if random.integers(2):
            order = random.permutation(15).tolist()
            _compare(element, [order[n * (n - 1) // 2 : n * (n + 1) // 2] for n in range(1, 6)], (3, 2), None, random)
        else:
            size = int(random.choice([2, 3, 4, 5, 7, 16]))
            groups = random.permutation(2 * size).reshape(2, size).tolist()
            shape, scattered = [((3 * size,), 0), ((2, size, 3), 1), ((), None), ((17 * size, 5), 0)][
                random.integers(4)
            ]
            _compare(element, groups, shape, scattered, random)


def _compare(
    element: str,
    groups: list[list[int]],
    shape: tuple[int, ...],
    scattered: int | None,
    random: np.random.Generator,
) -> None:
    text = program(element, groups, shape, scattered)
    arrays = operands(element, shape, sum(map(len, groups)), random)
    # Collectives round their sums once, whatever is said of the reductions of one process.
    options = {"reproducible": bool(random.integers(2)), "excess_precision": bool(random.integers(2))}
    expected = run(text, arrays, mode="threads", backends=_BACKENDS[random.integers(2)], **options)
    backends = _BACKENDS[random.integers(2)]
    results = run(text, arrays, mode="stacked", backends=backends, **options)
    expect_alike(results, expected, f"{element} in groups {groups}, stacked, {backends[0]}, {options}")


@pytest.mark.parametrize("mode", ["threads", "stacked"])
@pytest.mark.parametrize("backends", _BACKENDS)
def test_a_type_without_zero_is_summed_in_f32(mode: str, backends: tuple[str, ...]) -> None:
    """1 + 1/4 + 1/4, each sum rounded to a power of two, would be 1; their sum is 1.5, which is rounded to 2."""
    e8m0 = ml_dtypes.float8_e8m0fnu
    text = program("f8E8M0FNU", [[0, 1, 2]], (), None)
    arrays = [np.array(value, e8m0) for value in (1, 0.25, 0.25)]
    for results in run(text, arrays, mode=mode, backends=backends):
        assert float(results[0]) == 2
