"""What one file's entries were decoded to serves another file only where it means the same there."""

import gc
import weakref

import numpy as np
import pytest

import spmd
from spmd.artifacts.bytecode import read_bytecode, write_bytecode
from spmd.ir.attributes import DenseAttr
from spmd.syntax import difference
from tests.artifacts import reference

_PROGRAM = """
func.func @{name}(%a: tensor<{size}x{element}>) -> tensor<{size}x{element}> attributes {{x.note = "{note}", x.of = {attribute}}} {{
  %0 = stablehlo.constant dense<{value}> : tensor<{size}x{element}>
  %1 = stablehlo.slice %0 [0:{size}] : (tensor<{size}x{element}>) -> tensor<{size}x{element}>
  return %1 : tensor<{size}x{element}>
}}
"""  # noqa: E501


def program(name: str, size: int, element: str, note: str, attribute: str, value: str) -> str:
    return _PROGRAM.format(name=name, size=size, element=element, note=note, attribute=attribute, value=value)


def test_files_of_the_same_bytes_with_other_strings_types_and_attributes() -> None:
    """Each differs from the first in one thing that entries refer to by the same number."""
    texts = [
        program("f", 4, "f32", "one", "[1 : i32]", "1.0"),
        program("g", 4, "f32", "one", "[1 : i32]", "1.0"),
        program("f", 4, "f64", "one", "[1 : i32]", "1.0"),
        program("f", 5, "f32", "one", "[1 : i32]", "1.0"),
        program("f", 4, "f32", "two", "[1 : i32]", "1.0"),
        program("f", 4, "f32", "one", "[2 : i32]", "1.0"),
        program("f", 4, "f32", "one", "[1 : i16]", "1.0"),
        program("f", 4, "f32", "one", "[[1 : i32]]", "1.0"),
        program("f", 4, "f32", "one", "[1 : i32]", "-0.0"),
        program("f", 4, "f32", "one", "[1 : i32]", "0.0"),
    ]
    files = [write_bytecode(spmd.parse(text)) for text in texts]
    for _ in range(2):
        for text, data in zip(texts, files, strict=True):
            assert difference(spmd.parse(data), spmd.parse(text)) is None


def test_small_attributes_are_one_object_in_all_files() -> None:
    data = write_bytecode(spmd.parse(program("f", 4, "f32", "one", "[1 : i32]", "[1.0, 2.0, 3.0, 4.0]")))
    constants = [spmd.parse(data).function("f").body.ops[0]["value"] for _ in range(2)]
    assert constants[0] is constants[1]
    assert isinstance(constants[0], DenseAttr)
    assert not constants[0].array.flags.writeable


@pytest.mark.parametrize("size", [1, 200, 1000, 1 << 21])
def test_a_file_is_let_go_with_its_module(size: int) -> None:
    """Whatever constants of it were kept for other files."""
    text = f'stablehlo.constant dense<"0x{"01" * (size - 1)}02"> : tensor<{size}xi8>'  # no alignment is asked for
    text = f"func.func @f() -> tensor<{size}xi8> {{ %0 = {text} return %0 : tensor<{size}xi8> }}"
    buffer = np.frombuffer(write_bytecode(spmd.parse(text)), np.uint8).copy()
    module = read_bytecode(memoryview(buffer.data))
    alive = weakref.ref(buffer)
    del buffer
    assert module.function("f").body.ops[0]["value"].array.shape == (size,)
    del module
    gc.collect()
    assert alive() is None


def test_distinct_attributes_of_a_file_stay_distinct() -> None:
    """What tells them apart is where they stand, not their bytes."""
    data = reference.bytecode(
        "func.func @f() attributes {x.a = distinct[0]<1 : i32>, x.b = distinct[1]<1 : i32>} { return }", 6
    )
    for _ in range(2):
        attributes = spmd.parse(data).function("f").discardable
        assert attributes["x.a"] != attributes["x.b"]
