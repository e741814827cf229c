"""Values known before the program runs: what counts as a constant, and arrays at any address."""

import numpy as np
import pytest

import spmd
from spmd.analysis.constants import constant_array
from spmd.ir.attributes import aligned, is_splat

RESOURCE = """func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {
  %1 = stablehlo.constant dense_resource<blob> : tensor<4xf32>
  %2 = stablehlo.add %0, %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}"""


@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
def test_a_constant_whose_data_is_missing_is_none_and_refused_at_its_line(backends: tuple[str, ...]) -> None:
    module = spmd.parse(RESOURCE, name="res.mlir")
    assert constant_array(module.function("main").body.ops[0]) is None
    with pytest.raises(spmd.CompileError, match=r"res.mlir:2:8: stablehlo.constant: the file has no resource blob"):
        spmd.compile(module, backends=backends)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array(1), True),
        (np.ones((1, 1)), True),
        (np.broadcast_to(np.float32(2), (3, 4)), True),
        (np.ones((2, 2)), False),
        (np.empty((0, 3)), False),
        (np.broadcast_to(np.arange(3), (2, 3)), False),
    ],
)
def test_a_splat_lies_at_one_place(array: np.ndarray, expected: bool) -> None:
    assert is_splat(array) is expected


@pytest.mark.parametrize("count", [0, 1, 5])
def test_an_array_at_an_odd_address_is_copied_and_no_other(count: int) -> None:
    data = np.frombuffer(bytes(range(8 * count + 1)), np.uint8)
    odd = data[1:].view(np.int64)
    copy = aligned(odd)
    assert copy.flags.aligned and copy.tobytes() == odd.tobytes() and not copy.flags.writeable
    assert aligned(copy) is copy
