"""Updates in order, of which several may write to the same element."""

import numpy as np
import pytest

import spmd
from spmd.analysis.scalar.build import maximum, minimum
from spmd.analysis.scalar.expression import F32, F64, MachineType, Primitive, parameter, walk
from spmd.backends.llvm.loops.ordered_updates import without_extrema
from spmd.types import ELEMENT_TYPES
from tests.backends.llvm.harness import LoopForm, native_loops

SPECIAL = [0.0, -0.0, 1.0, -1.0, 5e-324, -1e-45, 1e300, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("type", [F32, F64])
def test_extrema_of_one_lane_have_no_branch(type: MachineType) -> None:
    """NaN propagates and -0 < +0, by comparisons and bits."""
    x, y = (parameter(number, type) for number in (0, 1))
    roots = without_extrema([maximum(x, y), minimum(x, y)])
    assert not {Primitive.MAXIMUM, Primitive.MINIMUM} & {node.primitive for node in walk(roots)}
    with np.errstate(over="ignore"):
        values = np.array(SPECIAL, np.float32 if type is F32 else np.float64)
    a, b = (each.ravel() for each in np.meshgrid(values, values))
    element = ELEMENT_TYPES[type.value]
    larger, smaller = native_loops([LoopForm(roots, [element] * 2, [element] * 2, 1)])[0](a, b)
    np.testing.assert_array_equal(larger, np.maximum(a, b))
    np.testing.assert_array_equal(smaller, np.minimum(a, b))
    zeros = (a == 0) & (b == 0)
    np.testing.assert_array_equal(np.signbit(larger[zeros]), (np.signbit(a) & np.signbit(b))[zeros])
    np.testing.assert_array_equal(np.signbit(smaller[zeros]), (np.signbit(a) | np.signbit(b))[zeros])


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_scattered_extrema_have_the_reference_bits(name: str, element: str) -> None:
    rng = np.random.default_rng(0)
    count, bins = 1003, 301
    dtype = np.float32 if element == "f32" else np.float64
    with np.errstate(over="ignore"):
        values = np.where(rng.random(count) < 0.4, rng.choice(SPECIAL[:-1], count), rng.standard_normal(count))
        values = values.astype(dtype)
    values[::97] = np.nan
    rows = rng.integers(-5, bins + 5, (count, 1)).astype(np.int32)
    whole = f"tensor<{bins}x{element}>"
    module = spmd.parse(f"""
    func.func @main(%x: {whole}, %i: tensor<{count}x1xi32>, %u: tensor<{count}x{element}>) -> {whole} {{
      %r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
          inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
        ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
          %m = stablehlo.{name} %a, %b : tensor<{element}>
          stablehlo.return %m : tensor<{element}>
      }}) : ({whole}, tensor<{count}x1xi32>, tensor<{count}x{element}>) -> {whole}
      return %r : {whole}
    }}""")
    x = rng.choice(values[1:], bins)
    (mine,), (expected,) = (spmd.compile(module, backends=each)(x, rows, values) for each in (("llvm",), ("numpy",)))
    np.testing.assert_array_equal(mine, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(mine[numbers]), np.signbit(expected[numbers]))
