"""Other ways of running a StableHLO program of one process, where JAX is installed: XLA, and the reference interpreter.

They are what a program's results can be compared with, no back ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax._src.interpreters.mlir import make_ir_context
from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from spmd.ir import Module
from spmd.support.arrays import Array
from spmd.types import Type


def xla(module: Module, arrays: Sequence[Array]) -> list[Array]:
    """The results of @main on XLA's CPU client."""
    device = jax.devices("cpu")[0]
    with make_ir_context():
        parsed = ir.Module.parse(module.to_string(generic=True))
        executable = device.client.compile_and_load(parsed, _jax.DeviceList((device,)), _jax.CompileOptions())
    with jax.enable_x64(True):  # otherwise arrays of 64-bit elements become others
        results = executable.execute([jax.device_put(array, device) for array in arrays])
    return [np.asarray(result) for result in results]


def reference(module: Module, arrays: Sequence[Array]) -> list[Array]:
    """The results of @main by StableHLO's reference interpreter."""
    with make_ir_context():
        parsed = ir.Module.parse(module.to_string(generic=True))
        given = [
            _constant(array, type) for array, type in zip(arrays, module.function("main").type.inputs, strict=True)
        ]
        return [np.array(result) for result in stablehlo.eval_module(parsed, given)]


def _constant(array: Array, type: Type) -> ir.DenseElementsAttr:
    """An argument as the interpreter takes it: booleans are bits there."""
    contiguous = np.ascontiguousarray(array)
    data = np.packbits(contiguous, axis=None, bitorder="little") if array.dtype == bool else contiguous
    return ir.DenseElementsAttr.get(data.view(np.uint8).data, type=ir.Type.parse(str(type)))
