"""Products of 8-bit integers in native code: sums of 32 bits, which wrap; every size, signed and not."""

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.integer_products import supports_pairs
from spmd.backends.llvm.products import integer_product_of

TYPES = {"i8": np.int8, "ui8": np.uint8}


def product(left: str, right: str, rows: int, depth: int, columns: int) -> spmd.Module:
    a, b, c = f"{rows}x{depth}x{left}", f"{depth}x{columns}x{right}", f"{rows}x{columns}xi32"
    return spmd.parse(f"""func.func @main(%a: tensor<{a}>, %b: tensor<{b}>) -> tensor<{c}> {{
      %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<{a}>, tensor<{b}>) -> tensor<{c}>
      return %r : tensor<{c}>
    }}""")


@pytest.mark.skipif(not supports_pairs(), reason="another kind of processor")
@pytest.mark.parametrize(("left", "right"), [("i8", "i8"), ("ui8", "ui8"), ("i8", "ui8"), ("ui8", "i8")])
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(1, 2, 1), (3, 1, 5), (13, 33, 33), (12, 64, 32), (25, 127, 70), (2, 3000, 17)]
)
def test_integer_products_are_exact(left: str, right: str, rows: int, depth: int, columns: int) -> None:
    module = product(left, right, rows, depth, columns)
    assert integer_product_of(module.functions[0].body.ops[0]) is not None or 1 in (rows, depth, columns)
    rng = np.random.default_rng(depth)
    for extreme in (False, True):
        inputs = []
        for name, shape in ((left, (rows, depth)), (right, (depth, columns))):
            least, most = np.iinfo(TYPES[name]).min, np.iinfo(TYPES[name]).max
            array = rng.integers(least, most, shape, TYPES[name], endpoint=True)
            inputs.append(rng.choice(np.array([least, most], TYPES[name]), shape) if extreme else array)
        (native,) = spmd.compile(module)(*inputs)
        np.testing.assert_array_equal(native, inputs[0].astype(np.int32) @ inputs[1].astype(np.int32))


@pytest.mark.parametrize("depth", [133_200, 0])
def test_sums_wrap_and_those_of_nothing_are_zero(depth: int) -> None:
    a, b = np.full((2, depth), -128, np.int8), np.full((depth, 3), -128, np.int8)
    (native,) = spmd.compile(product("i8", "i8", 2, depth, 3))(a, b)
    assert native.tolist() == [[(128 * 128 * depth + 2**31) % 2**32 - 2**31] * 3] * 2
