"""LAPACK's factorizations of many small matrices at once: a step in NumPy serves all matrices of the batch.

A call of LAPACK for each matrix costs microseconds of Python, many times what the factorization of a small one takes.
Results are LAPACK's in layout, pivots and `info`; the last bits may differ, sums being taken in another order.
"""

from __future__ import annotations

import numpy as np

from spmd.support.arrays import Array

#: So many matrices are worth it.
MANY = 16
#: Above this size LAPACK factorizes one by one faster; so many matrices for each row have to share a step.
_SMALL, _SHARED = 12, 8


def lu_of_many(a: Array) -> tuple[Array, Array, Array] | None:
    """(LU, pivots counted from 1, info) of matrices (count, m, n), by rows exchanged for the largest pivot.

    None for what LAPACK does better: larger matrices, and numbers that are not finite.
    """
    size = max(a.shape[1:])
    if size > _SMALL or size * _SHARED > len(a) or not np.isfinite(a).all():
        return None
    lu, every = a.copy(), np.arange(len(a))
    steps = min(a.shape[1:])
    pivots, info = np.empty((len(a), steps), np.int32), np.zeros(len(a), np.int32)
    for k in range(steps):
        below = lu[:, k:, k]
        sizes = np.abs(below.real) + np.abs(below.imag) if np.iscomplexobj(a) else np.abs(below)
        chosen = sizes.argmax(1) + k
        pivots[:, k] = chosen + 1
        row = lu[every, chosen]
        lu[every, chosen], lu[:, k] = lu[:, k], row
        pivot = row[:, k]
        singular = pivot == 0
        info[singular & (info == 0)] = k + 1
        lu[:, k + 1 :, k] /= np.where(singular, 1, pivot)[:, None]
        lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * lu[:, k, None, k + 1 :]
    return lu, pivots, info


def cholesky_of_many(a: Array, lower: bool) -> tuple[Array, Array] | None:
    """(factor in its triangle, `a` in the other one; info) of matrices (count, n, n); None where one has no factor."""
    try:
        factor = np.linalg.cholesky(a, upper=not lower)
    except np.linalg.LinAlgError:
        return None
    triangle = np.tri(a.shape[-1], dtype=np.bool_)
    return np.where(triangle if lower else triangle.T, factor, a), np.zeros(len(a), np.int32)
