"""Whole programs as text, run here and by the reference interpreter on the same arrays."""

from collections.abc import Sequence

import numpy as np

import spmd
from spmd.types import element_type_of
from tests.reference import context


def type_of(array: np.ndarray | np.generic | tuple[str, Sequence[int]]) -> str:
    """`tensor<...>` of an array, or of (element type, shape)."""
    if isinstance(array, tuple):
        element, shape = array
    else:
        element, shape = str(element_type_of(np.asarray(array).dtype)), np.shape(array)
    return "tensor<" + "".join(f"{size}x" for size in shape) + f"{element}>"


def main(body: str, arrays: Sequence[np.ndarray], results: str) -> str:
    """A function of `arrays` (%0, %1, ...) with the given lines; `results` is `%a, %b : type, type`."""
    arguments = ", ".join(f"%{index}: {type_of(array)}" for index, array in enumerate(arrays))
    types = results.split(" : ", 1)[1]
    return f"func.func @main({arguments}) -> ({types}) {{\n{body}\nreturn {results}\n}}\n"


def op(text: str, arrays: Sequence[np.ndarray], *results: tuple[str, Sequence[int]]) -> str:
    """A function that returns the results of one op in generic form without its types: `"name"(%0) {...}`."""
    types = ", ".join(type_of(result) for result in results)
    operands = ", ".join(type_of(array) for array in arrays)
    values = ", ".join(f"%r#{index}" for index in range(len(results)))
    return main(f"%r:{len(results)} = {text} : ({operands}) -> ({types})", arrays, f"{values} : {types}")


def here(text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(result) for result in spmd.compile(spmd.parse(text))(*arrays)]


def with_numpy(text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """What the back end of plain NumPy gives: the bits that only it promises."""
    return [np.asarray(result) for result in spmd.compile(spmd.parse(text), backends=("numpy",))(*arrays)]


def reference(text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    """The reference interpreter's results; arrays of f32, f64 and signed integers."""
    with context():
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo

        inputs = [
            ir.DenseElementsAttr.get(np.ascontiguousarray(array), type=ir.Type.parse(type_of(array)))
            for array in arrays
        ]
        return [np.array(result) for result in stablehlo.eval_module(ir.Module.parse(text), inputs)]


def assert_as_reference(text: str, *arrays: np.ndarray, tolerance: float = 0.0) -> None:
    """The program gives what the reference interpreter gives: the same, or relatively within `tolerance`."""
    assert_are_of_reference(here(text, *arrays), text, *arrays, tolerance=tolerance)


def assert_are_of_reference(
    results: Sequence[np.ndarray], text: str, *arrays: np.ndarray, tolerance: float = 0.0
) -> None:
    """`results` are what the reference interpreter gives for the program: the same, or within `tolerance`."""
    for got, want in zip(results, reference(text, *arrays), strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def region(arguments: int, element: str, lines: str, returned: str, result: str | None = None) -> str:
    """A region on scalars %a0, %a1, ... of one element type."""
    names = ", ".join(f"%a{index}: tensor<{element}>" for index in range(arguments))
    return f"({{\n^bb0({names}):\n{lines}\nstablehlo.return {returned} : tensor<{result or element}>\n}})"


def monoid(name: str, element: str) -> str:
    """A region that applies one op to its two arguments."""
    return region(2, element, f"%folded = stablehlo.{name} %a0, %a1 : tensor<{element}>", "%folded")


def pair_kept(direction: str, element: str) -> str:
    """A region on pairs of `element` and i32: the first one where its first part compares so, else the second."""
    return f"""({{
    ^bb0(%a: tensor<{element}>, %b: tensor<i32>, %c: tensor<{element}>, %d: tensor<i32>):
      %p = stablehlo.compare {direction}, %a, %c : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
      %v = stablehlo.select %p, %a, %c : tensor<i1>, tensor<{element}>
      %w = stablehlo.select %p, %b, %d : tensor<i1>, tensor<i32>
      stablehlo.return %v, %w : tensor<{element}>, tensor<i32>
    }})"""


def ints(values: Sequence[int]) -> str:
    """`array<i64: ...>`."""
    return f"array<i64: {', '.join(map(str, values))}>" if len(values) else "array<i64>"


def dense(values: Sequence[Sequence[int]]) -> str:
    """`dense<[[...]]> : tensor<nx2xi64>`, of pairs."""
    if not values:
        return "dense<> : tensor<0x2xi64>"
    return f"dense<{[list(pair) for pair in values]}> : tensor<{len(values)}x2xi64>"
