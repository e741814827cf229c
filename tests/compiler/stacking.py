"""Programs on processes stacked, against each process alone."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

import spmd
from spmd.support.arrays import Array

PROCESSES = 3


def same_bits(left: Array, right: Array) -> bool:
    """Equal bits, or both NaN; of complex numbers each part."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind == "c":
        return same_bits(left.real, right.real) and same_bits(left.imag, right.imag)
    nan = (left != left) & (right != right)
    raw = np.dtype(f"V{left.dtype.itemsize}")
    bits = np.ascontiguousarray(left).view(raw) == np.ascontiguousarray(right).view(raw)
    return bool((bits | nan).all())


def varied(array: Array, rank: int) -> Array:
    """The argument of process `rank`: the same numbers in other places, or the next number."""
    if array.size == 1 and array.dtype != np.bool_ and array.dtype.kind in "iufc":
        return (array + array.dtype.type(rank)).astype(array.dtype)
    if array.size == 1 and array.dtype == np.bool_:
        return array ^ bool(rank % 2)
    return np.roll(array.reshape(-1), rank).reshape(array.shape)


def assert_stacks(
    text: str,
    *arrays: Array,
    tolerance: float | None = None,
    serial: bool | None = False,
    varying: Any = varied,
    reproducible: bool = False,
) -> None:
    """Whichever arguments differ between processes, each gets what it gets alone.

    `serial` tells whether an op may be run process by process (None: it must be, when all arguments differ).
    """
    module = spmd.parse(text)
    alone = spmd.compile(module, spmd.ProcessGrid(1, 1), reproducible=reproducible)
    simulation = spmd.simulate(module, spmd.ProcessGrid(PROCESSES, 1), reproducible=reproducible)
    spmd.verify(simulation.module)
    spmd.parse(str(simulation.module))
    if serial is not None:
        assert serial or not simulation.serial, simulation.serial
    else:
        assert simulation.serial
    for flags in product((True, False), repeat=len(arrays)):
        columns_in = [
            [varying(array, rank if up else 0) for array, up in zip(arrays, flags, strict=True)]
            for rank in range(PROCESSES)
        ]
        stacked = [
            np.stack(column) if up else column[0][None]
            for column, up in zip(zip(*columns_in, strict=True), flags, strict=True)
        ]
        results = simulation(*stacked)
        expected = [alone(*arguments) for arguments in columns_in]
        _compare(results, expected, tolerance, flags)


def _compare(results: Sequence[Any], expected: Sequence[Any], tolerance: float | None, flags: Any) -> None:
    for rank, of_process in enumerate(expected):
        for actual, desired in zip(results, of_process, strict=True):
            actual, desired = np.asarray(actual[rank]), np.asarray(desired)
            if tolerance is None:
                assert same_bits(actual, desired), (flags, rank, actual, desired)
            else:
                np.testing.assert_allclose(actual, desired, rtol=tolerance, atol=tolerance, err_msg=str((flags, rank)))
