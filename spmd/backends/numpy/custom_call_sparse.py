"""Sparse matrix custom calls of jax.experimental.sparse on CPU, by SciPy."""

from __future__ import annotations

from spmd.backends.custom_calls import target
from spmd.backends.kernels import Context, Kernel
from spmd.backends.numpy.late import Late
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import Op
from spmd.support.arrays import Array

sparse = Late("scipy.sparse")


def _failure(op: Op, text: str) -> ExecutionError:
    return ExecutionError(Diagnostic(op.location, text, op.name))


@target("cpu_csr_sparse_dense_ffi")
def csr_sparse_dense(op: Op, context: Context) -> Kernel:
    """Return the product of a CSR matrix (values, row starts, columns) and a vector or matrix.

    Entries after the end of the last row are padding. ExecutionError for rows or columns out of range, which SciPy does
    not check.
    """
    shape = (*op.result.tensor.static_shape[:1], *op.operands[3].tensor.static_shape[:1])

    def call(values: Array, starts: Array, columns: Array, dense: Array) -> Array:
        count = int(starts[-1])
        if starts[0] != 0 or (starts[1:] < starts[:-1]).any() or count > len(values):
            raise _failure(op, f"row starts must be 0, in order, and at most {len(values)}, got {starts.tolist()[:9]}")
        if count and not 0 <= columns[:count].min() <= columns[:count].max() < shape[1]:
            raise _failure(
                op, f"columns must be 0 to {shape[1] - 1}, got {columns[:count].min()} to {columns[:count].max()}"
            )
        matrix = sparse.csr_matrix((values[:count], columns[:count], starts), shape=shape)
        product: Array = matrix @ dense
        return product

    return Kernel(call)
