"""On the wire: types below a byte share bytes, and come back as they were."""

import pickle
from dataclasses import replace

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from collectives import layout
from collectives.reduction import ADD, Arithmetic

PACKED = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.float4_e2m1fn,
          ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn]  # fmt: skip


@given(st.sampled_from(PACKED), st.integers(1, 3), st.integers(0, 17), st.integers(0, 99))
def test_packing_keeps_every_code(dtype: type, chunks: int, count: int, seed: int) -> None:
    element = np.dtype(dtype)
    width = 1 << (6 if "6" in element.name else 4 if "4" in element.name else 2)
    codes = np.random.default_rng(seed).integers(0, width, (chunks, count)).astype(np.uint8)
    elements = codes.view(element)
    data = layout.pack(elements)
    assert data.shape == (chunks, layout.packed_size(count, element))
    np.testing.assert_array_equal(layout.unpack(data, count, element).view(np.uint8), codes)


def test_two_int4_share_a_byte_and_four_float6_three() -> None:
    assert layout.packed_size(8, np.dtype(ml_dtypes.int4)) == 4
    assert layout.packed_size(8, np.dtype(ml_dtypes.float6_e2m3fn)) == 6


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_splitting_and_concatenating_are_inverse(dim: int) -> None:
    array = np.arange(4 * 6 * 2).reshape(4, 6, 2)
    chunks = layout.splitter(array.shape, dim, 2)(array)
    assert chunks.flags.c_contiguous
    part = tuple(n // 2 if i == dim else n for i, n in enumerate(array.shape))
    np.testing.assert_array_equal(chunks.reshape(2, *part), np.stack(np.split(array, 2, dim)))
    join = layout.concatenator(part, dim, 2)
    out = np.empty_like(array)
    if join is None:
        out = chunks.reshape(array.shape)
    else:
        join(chunks, out)
    np.testing.assert_array_equal(out, array)


@pytest.mark.parametrize("name", ["float64", "float32", "int32", "uint16", "complex64", "bool"])
def test_an_array_that_was_pickled_travels_as_any_other(name: str) -> None:
    """Its dtype is a copy, of which NumPy says that it is not built in: ranks of both kinds meet in one call."""
    dtype, copied = np.dtype(name), pickle.loads(pickle.dumps(np.zeros(1, name))).dtype
    assert copied.isbuiltin != dtype.isbuiltin
    assert layout.wire_dtype(copied) == layout.wire_dtype(dtype) == dtype
    accumulator = Arithmetic(ADD, dtype, dtype, np.add)
    assert replace(accumulator, dtype=copied, accumulator=copied).native == accumulator.native
