"""Folders laid out as PyTorch/XLA's save_as_stablehlo does: the weights are bound, calling takes the inputs alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.artifacts.bytecode import write_bytecode
from spmd.types import FunctionType

MODULE = """
module @IrToHlo.8 {
  func.func @main(%arg0: tensor<3xf32>, %arg1: tensor<f32>, %arg2: tensor<2x4xf32>, %arg3: tensor<4x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.dot_general %arg2, %arg3, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<2x3xf32>
    %4 = stablehlo.add %0, %3 : tensor<2x3xf32>
    return %4 : tensor<2x3xf32>
  }
}
"""  # noqa: E501
NO_ARRAY = "func.func @main(%a: tensor<3xi17>, %b: tensor<f32>, %c: tensor<2x4xf32>, %d: tensor<4x3xf32>) { return }"
WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3)
BIAS = np.float32([1, -2, 3])
META: dict[str, Any] = {
    "name": "forward",
    "stablehlo_version": "0.0.0",
    "input_signature": [],
    "output_signature": [{"shape": [2, 3], "dtype": "float32", "dynamic_dims": []}],
    "input_locations": [
        {"type_": "parameter", "position": -1, "name": "fc.bias"},
        {"type_": "constant", "position": 0, "name": ""},
        {"type_": "input_arg", "position": 1, "name": ""},
        {"type_": "parameter", "position": -1, "name": "fc.weight"},
    ],
    "unused_inputs": [
        [{"type_": "input_arg", "position": 0, "name": ""}, {"shape": [5], "dtype": "int64", "dynamic_dims": []}],
        [
            {"type_": "input_arg", "position": 2, "name": ""},
            {"shape": [], "dtype": "<class 'int'>", "dynamic_dims": []},
        ],
    ],
    "input_pytree_spec": None,
    "output_pytree_spec": None,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("data", "constants", "functions"):
        (tmp_path / name).mkdir()
    for name, array in (("fc.weight", WEIGHT), ("fc.bias", BIAS)):
        with (tmp_path / "data" / name).open("wb") as file:
            np.save(file, array)
    with (tmp_path / "constants" / "0").open("wb") as file:
        np.save(file, np.float32(10))
    functions = tmp_path / "functions"
    (functions / "forward.meta").write_text(json.dumps(META))
    (functions / "forward.mlir").write_text(MODULE)
    (functions / "forward.bytecode").write_bytes(spmd.serialize(spmd.parse(MODULE), version="0.19.0"))
    return tmp_path


def test_the_inputs_alone_are_taken(folder: Path) -> None:
    x = np.float32(np.random.default_rng(0).normal(size=(2, 4)))
    module = spmd.load(folder)
    assert [str(argument.type) for argument in module.function("main").arguments] == [
        "tensor<5xi64>",
        "tensor<2x4xf32>",
    ]
    (got,) = spmd.compile(module)(np.arange(5), x)
    np.testing.assert_allclose(got, x @ WEIGHT + BIAS * 10, rtol=1e-5)


def test_text_stands_in_for_missing_bytecode(folder: Path) -> None:
    (folder / "functions" / "forward.bytecode").unlink()
    assert len(spmd.load(folder).function("main").arguments) == 2


def meta_with(**changes: Any) -> str:
    return json.dumps({**META, **changes})


def write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


def of_another_type(module: spmd.Module) -> bytes:
    main = module.function("main")
    main.attributes = {**main.attributes, "function_type": FunctionType((), main.type.results)}
    return write_bytecode(module)


WRONG = {
    "a header cut off": (
        lambda f: write(f / "data" / "fc.bias", (f / "data" / "fc.bias").read_bytes()[:40]),
        r"fc\.bias: not an array",
    ),
    "a header that is no text of Python": (
        lambda f: write(f / "data" / "fc.bias", (f / "data" / "fc.bias").read_bytes().replace(b"(3,)", b"(3,[")),
        r"fc\.bias: not an array",
    ),
    "several arrays": (
        lambda f: np.savez((f / "data" / "fc.bias").open("wb"), a=WEIGHT, b=BIAS),
        r"fc\.bias: must hold one array",
    ),
    "a weight that is missing": (lambda f: (f / "data" / "fc.bias").unlink(), r"fc\.bias: cannot be read: No such"),
    "a weight of another shape": (
        lambda f: np.save((f / "data" / "fc.bias").open("wb"), WEIGHT),
        r"fc\.bias: an array of float32 and shape \(4, 3\) where tensor<3xf32> is needed",
    ),
    "a weight of a type that no array has": (
        lambda f: write(f / "functions/forward.bytecode", write_bytecode(spmd.parse(NO_ARRAY))),
        r"fc\.bias: an array of float32 and shape \(3,\) where tensor<3xi17> is needed",
    ),
    "a function of another type than its body": (
        lambda f: write(f / "functions/forward.bytecode", of_another_type(spmd.parse(MODULE))),
        r"forward\.meta: @main: the body's arguments must be the function's, got \(tensor<3xf32>, .*\) and \(none\)",
    ),
    "a pickle": (lambda f: np.save((f / "data" / "fc.bias").open("wb"), np.array([{}])), r"fc\.bias: not an array"),
    "no description": (lambda f: (f / "functions/forward.meta").write_text("["), r"forward\.meta: cannot be read"),
    "too few locations": (
        lambda f: (f / "functions/forward.meta").write_text(meta_with(input_locations=META["input_locations"][:3])),
        "3 input_locations for 4 arguments",
    ),
    "a way out of the folder": (
        lambda f: (f / "functions/forward.meta").write_text(
            meta_with(input_locations=[{"type_": "parameter", "name": "../x"}, *META["input_locations"][1:]])
        ),
        "'../x' must be the name of a file",
    ),
    "one input twice": (
        lambda f: (f / "functions/forward.meta").write_text(
            meta_with(input_locations=[META["input_locations"][2], *META["input_locations"][1:]])
        ),
        "two arguments are input 1",
    ),
    "two functions": (
        lambda f: [
            (f / "functions/forward.meta").rename(f / "functions/a.meta"),
            (f / "functions/b.meta").write_text("{}"),
        ],
        "must have one function, or one named forward, got a, b",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_folder_is_told_with_the_file(what: str, folder: Path) -> None:
    spoil, words = WRONG[what]
    spoil(folder)
    with pytest.raises(spmd.ParseError, match=words):
        spmd.load(folder)
