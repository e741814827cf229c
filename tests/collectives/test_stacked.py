"""What a collective means on stacked operands is what it means on a list of them, group by group."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.operations import Operation
from collectives.reduction import MONOIDS, arithmetic
from collectives.stacked import ARRAYS, fold_first
from tests.collectives.cases import DTYPES, CollectiveCase, bits, cases
from tests.effort import examples


@settings(max_examples=examples(200))
@given(cases(), st.integers(1, 3), st.integers(1, 3))
def test_every_operation(case: CollectiveCase, outer: int, inner: int) -> None:
    size = case.grid.size if case.op == "collective_permute" else len(case.groups[0])
    operation: Operation = case.operation(size)
    operands = [[[case.operand(a + 3 * g + 7 * b) for b in range(inner)] for g in range(size)] for a in range(outer)]
    stacked = np.array(operands).reshape(outer, size, inner, *case.shape).astype(case.dtype)
    results = operation.stacked(stacked, (outer, size, inner), ARRAYS)
    for a in range(outer):
        for b in range(inner):
            expected = operation.evaluate([operands[a][g][b] for g in range(size)])
            for g in range(size):
                part = results[a, g if results.shape[1] > 1 else 0, b]
                assert part.shape == expected[g].shape
                assert bits(part) == bits(expected[g])


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("width", [0, 1, 2, 3, 9, 1000])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 130, 4099])
def test_a_fold_keeps_its_order(name: str, width: int, count: int) -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        slabs = (rng.standard_normal((count, width)) * 2.0 ** rng.integers(-9, 9, (count, width))).astype(dtype)
        slabs[rng.integers(0, 5, slabs.shape) == 0] = -0.0
        slabs[rng.integers(0, 9, slabs.shape) == 0] = 0.0
        steps = arithmetic(MONOIDS[name], np.dtype(dtype))
        assert bits(fold_first(slabs, steps)) == bits(steps.fold(list(slabs)))
        strided = np.asfortranarray(slabs)
        assert bits(fold_first(strided, steps)) == bits(steps.fold(list(slabs)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_fold_of_scalars(dtype: np.dtype) -> None:
    scalars = np.random.default_rng(0).integers(0, 2, 37).astype(np.int8).astype(dtype)
    steps = arithmetic(MONOIDS["add"], dtype)
    assert bits(fold_first(scalars, steps)) == bits(steps.fold([scalars[k : k + 1] for k in range(37)]))
