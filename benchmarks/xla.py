"""Compile and run a program's text on XLA's CPU client, as a peer. Needs the ``jax`` extra."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def is_installed() -> bool:
    return importlib.util.find_spec("jaxlib") is not None


class XlaProgram:
    """A program of one process, compiled by XLA for the CPU."""

    @classmethod
    def of_hlo(cls, text: str) -> "XlaProgram":
        """Compile HLO text."""
        from jaxlib import xla_client

        module = xla_client.hlo.hlo_module_from_text(text)
        computation = xla_client.XlaComputation(module.as_serialized_hlo_module_proto())
        return cls(xla_client._xla.mlir.xla_computation_to_mlir_module(computation))

    def __init__(self, text: str | bytes) -> None:
        import jax
        from jax._src.interpreters import mlir
        from jaxlib import _jax
        from jaxlib.mlir import ir

        jax.config.update("jax_platforms", "cpu")
        self._device = jax.devices("cpu")[0]
        client = self._device.client
        with mlir.make_ir_context():
            module = ir.Module.parse(text)
            devices = _jax.DeviceList((self._device,))
            self._executable = client.compile_and_load(module, devices, _jax.CompileOptions())

    def put(self, arrays: Sequence[npt.NDArray[Any]]) -> list[Any]:
        """Copy the arrays to XLA's device."""
        import jax

        return [jax.device_put(array, self._device) for array in arrays]

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on arrays of the device, and wait for the results."""
        results = self._executable.execute(arrays)
        for result in results:
            result.block_until_ready()
        return list(results)

    def __call__(self, *arrays: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Run on NumPy arrays and return NumPy arrays."""
        return [np.asarray(result) for result in self.run(self.put(arrays))]

    def memory(self) -> int:
        """Return XLA's own estimate for one run, in bytes: arguments, results and temporaries."""
        stats = self._executable.get_compiled_memory_stats()
        return int(stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes)
