"""Programs that need more memory than there is are refused by name and size; compiling takes little of its own."""

import tracemalloc

import numpy as np
import pytest

import spmd
from spmd.analysis import memory
from spmd.analysis.memory import memory_here, too_large
from spmd.types import F32, I8, TensorType, TupleType

HUGE = "tensor<1000000000000000xf32>"
SMALL = """%u = stablehlo.slice %t [0:1] : (HUGE) -> tensor<1xf32>
  %v = stablehlo.reshape %u : (tensor<1xf32>) -> tensor<f32>
  return %v : tensor<f32>"""


def test_what_is_too_large() -> None:
    assert 1 << 20 < memory_here() < 4 << 50
    assert too_large([TensorType((2, 3), F32), TensorType((None,), F32)]) is None
    fault = too_large([TensorType((3,), I8), TensorType((1 << 60,), F32)])
    assert fault is not None and "tensor<1152921504606846976xf32> takes 4 EiB" in fault
    assert too_large([TupleType((TensorType((1 << 60,), F32),))]) is not None


@pytest.mark.parametrize(
    ("lines", "op"),
    [
        (f"%t = stablehlo.iota dim = 0 : HUGE\n{SMALL}", "stablehlo.iota"),
        ("%t = stablehlo.iota dim = 0 : HUGE\nreturn %t : HUGE", "stablehlo.iota|result of @main"),
        ("%t = stablehlo.constant dense<1.0> : HUGE\nreturn %t : HUGE", "result of @main"),
        (
            "%s = stablehlo.constant dense<1.0> : HUGE\n%t = stablehlo.add %s, %s : HUGE\nreturn %t : HUGE",
            "stablehlo.add|result of @main",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("backends", [("numpy",), ("llvm", "numpy")])
def test_what_does_not_fit_is_refused(lines: str, op: str, backends: tuple[str, ...]) -> None:
    result = "tensor<f32>" if "%v" in lines else HUGE
    text = f"func.func @main() -> {result} {{ {lines} }}".replace("HUGE", HUGE)
    if backends[0] == "llvm" and result != HUGE:
        pytest.skip("native code never holds the whole")
    with pytest.raises(spmd.CompileError, match=rf"({op}).*takes 3.55 PiB"):
        spmd.compile(spmd.parse(text), backends=backends)


PRODUCTS = """func.func @main(%a: tensor<30000000x1xf32>) -> tensor<1x1xf32> {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1]
      : (tensor<30000000x1xf32>, tensor<30000000x1xf32>) -> tensor<30000000x30000000xf32>
  %1 = stablehlo.dot_general %0, %0, contracting_dims = [1] x [0]
      : (tensor<30000000x30000000xf32>, tensor<30000000x30000000xf32>) -> tensor<30000000x30000000xf32>
  %2 = stablehlo.slice %1 [0:1, 0:1] : (tensor<30000000x30000000xf32>) -> tensor<1x1xf32>
  return %2 : tensor<1x1xf32>
}"""


@pytest.mark.parametrize("backends", [("numpy",), ("llvm", "numpy")])
def test_what_stands_between_ops_and_does_not_fit_is_refused_before_it_runs(backends: tuple[str, ...]) -> None:
    module = spmd.parse(PRODUCTS, "products.mlir")
    with pytest.raises(spmd.CompileError, match=r"products\.mlir:2:8: stablehlo.dot_general: .*takes 3.2 PiB"):
        spmd.compile(module, backends=backends)
    with pytest.raises(spmd.CompileError, match=r"products\.mlir:2:8: stablehlo.dot_general: .*takes (3.2|12.8) PiB"):
        spmd.simulate(module, spmd.ProcessGrid(4, 1), backends=backends)(np.ones((4, 30000000, 1), np.float32))


def test_what_is_too_large_together_tells_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_here", lambda: 1 << 20)
    text = """func.func @main(%a: tensor<400x400xf32>) -> tensor<400x1xf32> {
      %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
          : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
      %1 = stablehlo.dot_general %0, %a, contracting_dims = [1] x [0]
          : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
      %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [1]
          : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
      %3 = stablehlo.slice %2 [0:400, 0:1] : (tensor<400x400xf32>) -> tensor<400x1xf32>
      return %3 : tensor<400x1xf32> }"""
    with pytest.raises(spmd.CompileError, match=r"takes 625 KiB, .* at the same time 1\.22 MiB, and"):
        spmd.compile(spmd.parse(text), backends=("llvm", "numpy"))


@pytest.mark.parametrize("element", ["i8", "ui16", "bf16", "i4"])
def test_compiling_an_iota_takes_little_more_than_it_holds(element: str) -> None:
    size = 4_000_000
    type = f"tensor<{size}x{element}>"
    module = spmd.parse(f"func.func @main() -> {type} {{ %r = stablehlo.iota dim = 0 : {type}\n return %r : {type} }}")
    tracemalloc.start()
    try:
        program = spmd.compile(module, backends=("numpy",))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (got,) = program()
    assert peak < 2 * got.nbytes + (4 << 20)
    if element == "i8":
        np.testing.assert_array_equal(got, np.arange(size).astype(np.int8))
