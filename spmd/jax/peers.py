"""Peers that run a StableHLO program of one process, if JAX is installed: XLA, and the reference interpreter.

They are references for comparing results, not back ends.
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
    """Return the results of @main on XLA's CPU client."""
    device = jax.devices("cpu")[0]
    with make_ir_context():
        parsed = ir.Module.parse(module.to_string(generic=True))
        executable = device.client.compile_and_load(parsed, _jax.DeviceList((device,)), _jax.CompileOptions())
    with jax.enable_x64(True):  # otherwise 64-bit elements are converted
        results = executable.execute([jax.device_put(array, device) for array in arrays])
    return [np.asarray(result) for result in results]


def reference(module: Module, arrays: Sequence[Array]) -> list[Array]:
    """Return the results of @main by StableHLO's reference interpreter."""
    with make_ir_context():
        parsed = ir.Module.parse(module.to_string(generic=True))
        given = [
            _constant(array, type) for array, type in zip(arrays, module.function("main").type.inputs, strict=True)
        ]
        return [np.array(result) for result in stablehlo.eval_module(parsed, given)]


def _constant(array: Array, type: Type) -> ir.DenseElementsAttr:
    """Return an argument as the interpreter takes it: booleans as bits."""
    contiguous = np.ascontiguousarray(array)
    data = np.packbits(contiguous, axis=None, bitorder="little") if array.dtype == bool else contiguous
    return ir.DenseElementsAttr.get(data.view(np.uint8).data, type=ir.Type.parse(str(type)))
