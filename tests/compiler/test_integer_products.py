"""Products of integers are native, and wrap as NumPy's do, whatever is batched, contracted and left."""

import os

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.target import LlvmTarget
from tests.compiler.schedule.test_schedule import units_of

DTYPES = {"i8": np.int8, "ui8": np.uint8, "i16": np.int16, "i32": np.int32, "ui32": np.uint32, "i64": np.int64}
#: Subscripts, sizes of their letters, and the dimension numbers that they stand for.
CASES = {
    "ab,bc->ac": ({"a": 5, "b": 7, "c": 70}, "contracting_dims = [1] x [0]"),
    "ab,cb->ac": ({"a": 3, "b": 130, "c": 4}, "contracting_dims = [1] x [1]"),
    "ba,bc->ac": ({"a": 1, "b": 9, "c": 33}, "contracting_dims = [0] x [0]"),
    "zab,zbc->zac": ({"z": 2, "a": 3, "b": 1, "c": 17}, "batching_dims = [0] x [0], contracting_dims = [2] x [1]"),
    "abz,czb->zac": ({"z": 3, "a": 2, "b": 5, "c": 6}, "batching_dims = [2] x [1], contracting_dims = [1] x [2]"),
    "abd,dbc->ac": ({"a": 2, "b": 3, "d": 4, "c": 5}, "contracting_dims = [1, 2] x [1, 0]"),
    "ab,b->a": ({"a": 40, "b": 65}, "contracting_dims = [1] x [0]"),
    "b,b->": ({"b": 1001}, "contracting_dims = [0] x [0]"),
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("subscripts", CASES)
def test_products_wrap(subscripts: str, element: str) -> None:
    sizes, numbers = CASES[subscripts]
    inputs, output = subscripts.split("->")
    shapes = [tuple(sizes[letter] for letter in letters) for letters in (*inputs.split(","), output)]
    left, right, result = ("tensor<" + "".join(f"{size}x" for size in shape) + f"{element}>" for shape in shapes)
    module = spmd.parse(f"""func.func @main(%x: {left}, %y: {right}) -> {result} {{
      %r = stablehlo.dot_general %x, %y, {numbers} : ({left}, {right}) -> {result}
      return %r : {result}
    }}""")
    info = np.iinfo(DTYPES[element])
    rng = np.random.default_rng(len(subscripts))
    arrays = [rng.integers(info.min, info.max, shape, info.dtype, endpoint=True) for shape in shapes[:2]]
    for array in arrays:
        array.flat[0], array.flat[-1] = info.min, info.max
    units = units_of(str(module))
    assert (
        all(unit.fused or LlvmTarget().supports(unit.outputs[0]) for unit in units)
        or os.environ.get("SPMD_BACKENDS") == "numpy"
    )
    (got,) = spmd.compile(module)(*arrays)
    assert got.dtype == info.dtype
    np.testing.assert_array_equal(got, np.einsum(subscripts, *arrays, dtype=info.dtype, casting="unsafe"))


def test_sums_of_nothing_are_zero() -> None:
    module = spmd.parse("""func.func @main(%x: tensor<3x0xi32>, %y: tensor<0x4xi32>) -> tensor<3x4xi32> {
      %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
        : (tensor<3x0xi32>, tensor<0x4xi32>) -> tensor<3x4xi32>
      return %r : tensor<3x4xi32>
    }""")
    (got,) = spmd.compile(module)(np.empty((3, 0), np.int32), np.empty((0, 4), np.int32))
    np.testing.assert_array_equal(got, np.zeros((3, 4), np.int32))
