"""What tests of the builder share: computations run in every way in which they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import spmd
from collectives.grid import ProcessGrid
from spmd.builder import Shape, XlaBuilder, XlaComputation, XlaOp
from spmd.ir import Module
from spmd.support.arrays import Array
from spmd.syntax import same_program


def sound(computation: XlaComputation) -> Module:
    """The computation's module, which verifies, prints, and parses back to itself."""
    module = computation.to_stablehlo()
    spmd.verify(module)
    for generic in (False, True):
        assert same_program(spmd.parse(module.to_string(generic=generic)), module)
    return module


def run(computation: XlaComputation, *arrays: Any, hlo: bool = True) -> Any:
    """The result on `arrays`: an array, or a tuple. With `hlo`, HLO text of the program must give the same."""
    module = sound(computation)
    results = spmd.compile(module)(*arrays)
    if hlo:
        again = spmd.compile(spmd.parse(computation.as_hlo_text(), "printed.hlo"))(*arrays)
        assert len(again) == len(results)
        for one, two in zip(results, again, strict=True):
            np.testing.assert_array_equal(one, two)
    return results if computation.program_shape().result_shape.is_tuple() else results[0]


def run_replicas(computation: XlaComputation, *inputs: Sequence[Any], hlo: bool = True) -> list[Any]:
    """The result on every replica; `inputs` has the arrays of each."""
    module, grid = sound(computation), ProcessGrid(num_replicas=len(inputs))
    results = spmd.run_parallel(module, grid, inputs)
    if hlo:
        again = spmd.run_parallel(spmd.parse(computation.as_hlo_text(), "printed.hlo"), grid, inputs)
        for one, two in zip(results, again, strict=True):
            assert all(np.array_equal(left, right) for left, right in zip(one, two, strict=True))
    single = not computation.program_shape().result_shape.is_tuple()
    return [result[0] if single else result for result in results]


def build(function: Callable[..., Any], *arrays: Any, name: str = "test") -> XlaComputation:
    """The computation of `function(builder, *parameters)`, its parameters shaped as `arrays`."""
    builder = XlaBuilder(name)
    parameters = []
    for number, array in enumerate(arrays):
        shape = array if isinstance(array, Shape) else Shape.array_shape(array.dtype, array.shape)
        parameters.append(builder.Parameter(number, shape, f"x{number}"))
    root = function(builder, *parameters)
    return builder.Build(root if isinstance(root, XlaOp) else None)


def evaluate(function: Callable[..., Any], *arrays: Any, hlo: bool = True) -> Any:
    """`function(builder, *parameters)` built and run on `arrays`."""
    arrays_in = [np.asarray(array) for array in arrays]
    return run(build(function, *arrays_in), *arrays_in, hlo=hlo)


def scalars(name: str, types: Sequence[str], function: Callable[..., Any]) -> XlaComputation:
    """A computation on scalars of `types`."""
    return build(lambda _, *parameters: function(*parameters), *(Shape.scalar_shape(type) for type in types), name=name)


def f32(values: Any) -> Array:
    return np.array(values, dtype=np.float32)


def s32(values: Any) -> Array:
    return np.array(values, dtype=np.int32)


def equal(got: Any, expected: Any) -> None:
    """The same values and the same shape; a list of them for a tuple."""
    if isinstance(expected, (list, tuple)) and isinstance(got, tuple):
        assert len(got) == len(expected)
        for one, two in zip(got, expected, strict=True):
            equal(one, two)
        return
    want = np.asarray(expected)
    assert np.shape(got) == want.shape
    np.testing.assert_array_equal(np.asarray(got), want)
