"""The table of back ends: the first that is named runs what it can."""

import numpy as np
import pytest

import spmd
from spmd.backends.native import BACKENDS, NUMPY, native_backend
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.prepare import prepare
from spmd.compiler.schedule.schedule import NativeRegion

TEXT = """func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = stablehlo.add %x, %x : tensor<8xf32>
  %z = stablehlo.tanh %y : tensor<8xf32>
  return %z : tensor<8xf32>
}"""


@pytest.mark.parametrize(
    ("backends", "native"),
    [(("llvm", "numpy"), True), (("llvm",), True), (("numpy", "llvm"), False), (("numpy",), False)],
)
def test_the_order_of_back_ends_is_heeded(backends: tuple[str, ...], native: bool) -> None:
    prepared = prepare(spmd.parse(TEXT), backends=backends)
    lowering = ModuleLowering(prepared.module, prepared.options)
    parts = lowering.schedule(lowering.flatten(prepared.function).body).entries
    assert [isinstance(part, NativeRegion) for part in parts] == ([True] if native else [False, False])
    _, plan = lowering.entry(prepared.function)
    assert [step.native is not None for step in plan.steps] == [isinstance(part, NativeRegion) for part in parts]
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    np.testing.assert_allclose(spmd.compile(prepared.module, backends=backends)(x)[0], np.tanh(2 * x), rtol=1e-6)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_back_end_of_the_table_is_there(name: str) -> None:
    backend = native_backend((name,))
    assert backend is None if name == NUMPY else backend is not None and backend.name == name
