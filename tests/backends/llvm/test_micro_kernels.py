"""Micro-kernels out of line: the bits of the tiles that stand where they are used, and one piece of code for all."""

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.emit import math_library as functions
from spmd.backends.llvm.matmul import tiles
from spmd.backends.llvm.matmul.micro_kernels import MicroKernel


def product(rows: int, depth: int, columns: int, element: str) -> str:
    left, right, result = (f"tensor<{m}x{n}x{element}>" for m, n in ((rows, depth), (depth, columns), (rows, columns)))
    return f"""func.func @main(%a: {left}, %b: {right}) -> {result} {{
      %0 = stablehlo.dot %a, %b : ({left}, {right}) -> {result}
      return %0 : {result}
    }}"""


#: Images of two sizes that leave rows and columns over, with strides, dilation and groups.
CONVOLUTION = """func.func @main(%a: tensor<2x9x15x6xf32>, %b: tensor<2x3x3x70xf32>) -> tensor<2x8x7x70xf32> {
  %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [1, 2], rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
    : (tensor<2x9x15x6xf32>, tensor<2x3x3x70xf32>) -> tensor<2x8x7x70xf32>
  return %0 : tensor<2x8x7x70xf32>
}"""


@pytest.mark.parametrize(
    ("text", "shapes", "dtype"),
    [
        (product(13, 5, 37, "f32"), [(13, 5), (5, 37)], np.float32),
        (product(25, 1, 32, "f64"), [(25, 1), (1, 32)], np.float64),
        (product(1, 9, 65, "f32"), [(1, 9), (9, 65)], np.float32),
        (CONVOLUTION, [(2, 9, 15, 6), (2, 3, 3, 70)], np.float32),
    ],
)
def test_bits_do_not_depend_on_where_tiles_stand(
    text: str, shapes: list[tuple[int, ...]], dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    results = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(tiles, "_LEAST_OUTLINED", least)
        executable = spmd.compile(spmd.parse(text))
        results.append(executable(*arrays)[0])
    np.testing.assert_array_equal(results[0].view(np.uint8), results[1].view(np.uint8))


def test_products_of_other_sizes_share_a_kernel() -> None:
    def kernels() -> set[object]:
        return {callee for _, callee in functions._LIBRARIES if isinstance(callee, MicroKernel)}

    spmd.compile(spmd.parse(product(24, 64, 64, "f32")))
    before = kernels()
    assert before
    spmd.compile(spmd.parse(product(48, 96, 128, "f32")))
    assert kernels() == before
