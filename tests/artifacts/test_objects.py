"""Objects of other libraries that hold a program are taken as the program."""

import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jaxlib.mlir import ir

import spmd
from tests.artifacts.programs import DOUBLE
from tests.reference import context

X = np.float32([[1, 2], [3, 4]])


def function(x: Any) -> Any:
    return jnp.tanh(x) @ x


def mlir_module() -> ir.Module:
    with context():
        return ir.Module.parse(DOUBLE.replace("3x", "2x2x"))


OBJECTS = {
    "Lowered": lambda: jax.jit(function).lower(X),
    "Traced": lambda: jax.jit(function).trace(X),
    "Exported": lambda: export.export(jax.jit(function))(jax.ShapeDtypeStruct(X.shape, X.dtype)),
    "a file of bytes": lambda: io.BytesIO(export.export(jax.jit(function))(X).serialize()),
    "a file of text": lambda: io.StringIO(jax.jit(function).lower(X).as_text()),
    "a bytearray": lambda: bytearray(export.export(jax.jit(function))(X).mlir_module_serialized),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_what_jax_gives(name: str) -> None:
    value = OBJECTS[name]()
    (got,) = spmd.compile(spmd.parse(value))(X)
    np.testing.assert_allclose(got, np.tanh(X) @ X, rtol=1e-6)
    if name not in ("a file of bytes", "a file of text", "a bytearray"):
        (got,) = spmd.compile(value)(X)
        np.testing.assert_allclose(got, np.tanh(X) @ X, rtol=1e-6)


@pytest.mark.parametrize("part", [lambda module: module, lambda module: module.operation])
def test_a_module_of_mlirs_bindings(part: Any) -> None:
    (got,) = spmd.compile(part(mlir_module()))(X)
    assert got.tolist() == (X + X).tolist()


def test_an_object_that_holds_none() -> None:
    with pytest.raises(spmd.UsageError, match="takes a program's text, got object"):
        spmd.parse(object())
