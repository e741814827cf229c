"""Products keep subnormal numbers: at any precision and shape, on any number of threads, in both back ends."""

import numpy as np
import pytest

import spmd

TINY = np.float32(2.0**-130)


def product(shapes: tuple[str, str, str], dimensions: str, precision: str, **options: object) -> spmd.Executable:
    left, right, result = (f"{shape}x" if shape else "" for shape in shapes)
    config = f", precision = [{precision}, {precision}]" if precision else ""
    text = f"""func.func @main(%a: tensor<{left}f32>, %b: tensor<{right}f32>) -> tensor<{result}f32> {{
      %p = stablehlo.dot_general %a, %b, {dimensions}{config}
        : (tensor<{left}f32>, tensor<{right}f32>) -> tensor<{result}f32>
      return %p : tensor<{result}f32>
    }}"""
    return spmd.compile(spmd.parse(text), **options)


#: Shapes of operands and results, and dimensions: tiles, BLAS, batches, a matrix and a vector, vectors, outer products.
FORMS = [
    (("3x3", "3x3", "3x3"), "contracting_dims = [1] x [0]"),
    (("200x200", "200x200", "200x200"), "contracting_dims = [1] x [0]"),
    (("7x40x40", "7x40x40", "7x40x40"), "batching_dims = [0] x [0], contracting_dims = [2] x [1]"),
    (("6x200x200", "6x200x200", "6x200x200"), "batching_dims = [0] x [0], contracting_dims = [2] x [1]"),
    (("40x40", "40", "40"), "contracting_dims = [1] x [0]"),
    (("40", "40", ""), "contracting_dims = [0] x [0]"),
    (("5", "9", "5x9"), "contracting_dims = [] x []"),
]


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"backends": ("numpy",)}], ids=str)
@pytest.mark.parametrize(("shapes", "dimensions"), FORMS)
@pytest.mark.parametrize("precision", ["", "HIGHEST"])
def test_products(shapes: tuple[str, str, str], dimensions: str, precision: str, options: dict[str, object]) -> None:
    """Subnormal operands, and subnormal results of normal ones: sums of n terms, which are exact."""
    left, right = (np.ones([int(size) for size in shape.split("x") if size], np.float32) for shape in shapes[:2])
    terms = 1 if "[] x []" in dimensions else left.shape[-1]
    run = product(shapes, dimensions, precision, **options)
    for one, other in ((TINY, np.float32(2.0**100)), (np.float32(2.0**-70), np.float32(2.0**-70))):
        (result,) = run(left * one, right * other)
        np.testing.assert_array_equal(result, np.full(result.shape, np.float32(terms) * (one * other)))


@pytest.mark.parametrize("backend", ["llvm", "numpy"])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("precision", ["DEFAULT", "HIGH"])
def test_convolutions(window: int, precision: str, backend: str) -> None:
    image, kernel = np.full((1, 5, 2), TINY), np.full((window, 2, 3), 2.0**100, np.float32)
    places = 6 - window
    text = f"""func.func @main(%a: tensor<1x5x2xf32>, %k: tensor<{window}x2x3xf32>) -> tensor<1x{places}x3xf32> {{
      %c = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64,
         precision_config = [#stablehlo<precision {precision}>, #stablehlo<precision {precision}>]}}
        : (tensor<1x5x2xf32>, tensor<{window}x2x3xf32>) -> tensor<1x{places}x3xf32>
      return %c : tensor<1x{places}x3xf32>
    }}"""
    (result,) = spmd.compile(spmd.parse(text), backends=(backend,))(image, kernel)
    np.testing.assert_array_equal(result, np.full((1, places, 3), 2 * window * TINY * 2.0**100, np.float32))
