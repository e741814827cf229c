"""Scatters of one element to each row of one value become selections, with the bits of a scatter."""

import numpy as np
import pytest

import spmd
from spmd.compiler.transforms.scatter_expansion import expand_scatters
from spmd.compiler.transforms.simplify import remove_dead
from tests.compiler.stacking import same_bits

#: Indices inside, at both ends and outside.
PLACES = [[0, 6, -1], [7, 3, 127]]


def program(
    combination: str, *, filling: str = "-0.0", element: str = "f32", index: str = "i32", updates: str = "2x3"
) -> str:
    """A scatter to rows of seven of a value: a batch of 3x2 rows, whose indices and updates are 2x3."""
    row, kept = f"tensor<3x7x2x{element}>", f"tensor<{updates}x{element}>"
    body = "" if combination == "second" else f"%c = stablehlo.{combination} %a, %b : tensor<{element}>"
    returned = "%b" if combination == "second" else "%c"
    return f"""func.func @main(%i: tensor<2x3x1x{index}>, %u: {kept}, %o: {row}) -> {row} {{
      %z = stablehlo.constant dense<{filling}> : tensor<{element}>
      %s = stablehlo.broadcast_in_dim %z, dims = [] : (tensor<{element}>) -> {row}
      %r = "stablehlo.scatter"(%s, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<
          inserted_window_dims = [1], input_batching_dims = [0, 2], scatter_indices_batching_dims = [1, 0],
          scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}}> ({{
        ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
          {body}
          stablehlo.return {returned} : tensor<{element}>
      }}) : ({row}, tensor<2x3x1x{index}>, {kept}) -> {row}
      return %r : {row}
    }}"""


def scatters(text: str) -> int:
    module = spmd.parse(text)
    function = module.function("main")
    expand_scatters(function.body)
    remove_dead(function.body)
    spmd.verify(module)
    return sum(op.name == "stablehlo.scatter" for op in function.walk())


@pytest.mark.parametrize("combination", ["add", "subtract", "maximum", "divide"])
@pytest.mark.parametrize(("element", "index"), [("f32", "i32"), ("f64", "ui64"), ("bf16", "i8"), ("f32", "ui8")])
def test_a_scatter_to_rows_of_one_value_is_a_selection(combination: str, element: str, index: str) -> None:
    text = program(combination, element=element, index=index)
    assert scatters(text) == 0
    module = spmd.parse(text)
    native, plain = (spmd.compile(module, backends=backends) for backends in (("llvm", "numpy"), ("numpy",)))
    places = np.array(PLACES)[..., None].astype(native.in_types[0].dtype)  # type: ignore[union-attr]
    values = np.array([[-0.0, np.nan, 1e-45], [np.inf, -3.5, 0.0]]).astype(native.in_types[1].dtype)  # type: ignore[union-attr]
    whole = np.zeros((3, 7, 2), values.dtype)
    assert same_bits(native(places, values, whole)[0], plain(places, values, whole)[0])


@pytest.mark.parametrize(
    "text",
    [
        program("add").replace('"(%s,', '"(%o,'),  # what is written to differs
        program("multiply").replace("stablehlo.multiply %a, %b", "stablehlo.multiply %b, %b"),
        program("second"),
    ],
)
def test_other_scatters_stay(text: str) -> None:
    assert scatters(text) == 1
