"""The part of a stacked program that runs process by process: calls of a function as each active process."""

from __future__ import annotations

import numpy as np

from collectives.grid import ProcessGrid
from spmd.analysis.custom_calls import call_attributes
from spmd.backends.custom_calls import target
from spmd.backends.kernels import Context, Kernel
from spmd.errors import SpmdError
from spmd.ir import Op
from spmd.runtime.process import Process
from spmd.support.arrays import Array, Results
from spmd.types import TensorType


@target("spmd.each_process")
def each_process(op: Op, context: Context) -> Kernel:
    """Call the function as each active process, on its rows of stacked arguments; the last operand is the mask. Errors
    name the process.
    """
    config = call_attributes(op)["backend_config"]
    grid = ProcessGrid(*np.asarray(config["grid"]).tolist())
    ranks = np.asarray(config["ranks"]).tolist()
    stacked = np.asarray(config["stacked"], bool).tolist()
    program = context.on_grid(grid).function(str(op["called_computations"][0]), op)
    types = [value.type for value in op.results]

    def call(process: Process, *values: Array) -> Results:
        *operands, here = values
        results = [np.zeros(type.static_shape, type.dtype) if isinstance(type, TensorType) else None for type in types]
        for row in np.flatnonzero(here).tolist():
            me = process.member(grid, ranks[row])
            own = [value[row, ...] if up else value for value, up in zip(operands, stacked, strict=True)]
            try:
                parts = program(me, *own)
            except SpmdError as error:
                error.add_note(f"in process {me.rank} {me.id}")
                raise
            for result, part in zip(results, parts, strict=True):
                if result is not None:
                    result[row] = part
        return results[0] if len(results) == 1 else tuple(results)

    return Kernel(call, needs_process=True)
