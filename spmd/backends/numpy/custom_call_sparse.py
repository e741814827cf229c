"""Sparse matrices by the custom calls that jax.experimental.sparse lowers to on CPU, through SciPy."""

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
    """Return a matrix of compressed sparse rows (values, row starts, columns) by a vector or a matrix.

    What lies behind the last row's end is padding. ExecutionError for rows or columns that the matrix does not have:
    SciPy reads where they say.
    """
    shape = (*op.result.tensor.static_shape[:1], *op.operands[3].tensor.static_shape[:1])

    def call(values: Array, starts: Array, columns: Array, dense: Array) -> Array:
        count = int(starts[-1])
        if starts[0] != 0 or (starts[1:] < starts[:-1]).any() or count > len(values):
            raise _failure(
                op, f"rows start at 0, in order, and end at {len(values)} at most, got {starts.tolist()[:9]}"
            )
        if count and not 0 <= columns[:count].min() <= columns[:count].max() < shape[1]:
            raise _failure(
                op, f"columns are 0 to {shape[1] - 1}, got {columns[:count].min()} to {columns[:count].max()}"
            )
        matrix = sparse.csr_matrix((values[:count], columns[:count], starts), shape=shape)
        product: Array = matrix @ dense
        return product

    return Kernel(call)
