"""Whole programs in native code against the NumPy back end: fusion, buffers, rows, loops and products together."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spmd
from tests.backends.llvm.drawn import Program


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_native_code_and_numpy_agree(data: st.DataObject) -> None:
    program = Program(data)
    program.grow(data.draw(st.integers(1, 14)))
    module = program.build()
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in program.arguments]
    kept = [array.copy() for array in arrays]
    native = spmd.compile(module)(*arrays)
    plain = spmd.compile(module, backends=("numpy",))(*arrays)
    for mine, other in zip(_flat(native), _flat(plain), strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-4 * max(1, np.abs(other).max(initial=0)))
    for array, before in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, before)


def _flat(results: tuple) -> list:
    return [leaf for result in results for leaf in (result if isinstance(result, tuple) else (result,))]
