"""Sparse matrices by the custom calls that jax.experimental.sparse lowers to on CPU, through SciPy."""

from __future__ import annotations

from spmd.backends.numpy.core import Context, Kernel
from spmd.backends.numpy.custom_call import target
from spmd.backends.numpy.late import Late
from spmd.ir import Op
from spmd.support.arrays import Array

sparse = Late("scipy.sparse")


@target("cpu_csr_sparse_dense_ffi")
def csr_sparse_dense(op: Op, context: Context) -> Kernel:
    """A matrix of compressed sparse rows (values, row starts, columns) by a vector or a matrix.

    What lies behind the last row's end is padding. ValueError for rows or columns that the matrix does not have.
    """
    shape = (*op.result.tensor.static_shape[:1], *op.operands[3].tensor.static_shape[:1])

    def call(values: Array, starts: Array, columns: Array, dense: Array) -> Array:
        count = int(starts[-1])
        matrix = sparse.csr_matrix((values[:count], columns[:count], starts), shape=shape)
        matrix.check_format(full_check=True)
        product: Array = matrix @ dense
        return product

    return Kernel(call)
