"""What a compiled program takes as arguments, and how it names one that it does not take."""

import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import spmd
from spmd.types import ELEMENT_TYPES, ElementType, storage_range

ELEMENTS = [element for element in ELEMENT_TYPES.values() if element.numpy is not None and not element.is_index]
INTEGERS = [element for element in ELEMENTS if element.is_integer]
FLOATS = [element for element in ELEMENTS if element.is_float]
COMPLEX = [element for element in ELEMENTS if element.is_complex]


def identity(element: str, shape: str = "") -> Any:
    type = f"tensor<{shape}{element}>"
    return spmd.compile(spmd.parse(f"func.func @main(%x: {type}) -> {type} {{ return %x : {type} }}"))


@pytest.mark.parametrize("element", INTEGERS, ids=str)
def test_an_integer_is_taken_where_the_type_holds_it(element: ElementType) -> None:
    low, high = storage_range(element)
    program = identity(element.name)
    for number in {low, low + 1, 0, 1, high - 1, high}:
        for value_in in (
            number,
            float(number) if float(number) == number else number,
            np.array(number).astype("O")[()],
        ):
            if not isinstance(value_in, float) or low <= int(value_in) <= high:
                assert int(program(value_in)[0]) == number
    for number in (low - 1, high + 1, 2**40 + high, -(2**70), 2**70, 0.5, 2.9, math.nan, math.inf, 1j, 1e300):
        with pytest.raises(spmd.ExecutionError, match="which does not hold"):
            program(number)
    for number in (np.int64(1), np.uint8(1), np.float32(1), True, np.bool_(True)):
        assert int(program(number)[0]) == 1


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_a_float_is_taken_where_it_stays_what_it_is(element: ElementType) -> None:
    program = identity(element.name)
    limits = ml_dtypes.finfo(element.dtype)
    for number in (1.0, float(limits.max), float(limits.smallest_normal), 1, np.float64(1)):
        assert float(program(number)[0]) == number
    for number in ("1", 1j, 10**400, np.datetime64("2020-01-01"), None):
        with pytest.raises(spmd.ExecutionError, match="is needed"):
            program(number)
    if element.name != "f64":
        with pytest.raises(spmd.ExecutionError, match="does not hold 1e\\+300"):
            program(1e300)
    for strange in (math.nan, math.inf, -math.inf):
        try:
            (held,) = program(strange)
        except spmd.ExecutionError:
            continue
        np.testing.assert_array_equal(np.asarray(held).astype(np.float64), strange)


def test_other_scalars() -> None:
    assert identity("f32")(0.1)[0] == np.float32(0.1)
    assert identity("complex<f32>")(1 + 0.1j)[0] == np.complex64(1 + 0.1j)
    assert identity("i1")(1)[0]
    for element, number in (("i1", 0.3), ("i1", 2), ("i1", math.nan), ("f32", 2**24 + 1), ("complex<f32>", 1e300j)):
        with pytest.raises(spmd.ExecutionError, match="does not hold"):
            identity(element)(number)


@pytest.mark.parametrize("element", [*FLOATS, *COMPLEX], ids=str)
def test_a_longer_float_is_taken_where_it_stays_finite(element: ElementType) -> None:
    program, long = identity(element.name), np.longdouble
    assert complex(program(long(0.5))[0]) == 0.5
    if np.finfo(long).max > np.finfo(np.float64).max:
        with pytest.raises(spmd.ExecutionError, match="does not hold"):
            program(long(2) ** 2000)


@pytest.mark.parametrize("element", COMPLEX, ids=str)
def test_an_integer_is_taken_as_complex_where_its_real_part_holds_it(element: ElementType) -> None:
    program = identity(element.name)
    digits = int(np.finfo(element.real.dtype).nmant) + 1
    for number in (0, -1, 2**digits, 2**100, 2**64 - 2 ** (65 - digits)):
        assert program(number)[0] == number
    for number in (2**digits + 1, -(2**digits) - 1, 10**400, -(10**400)):
        with pytest.raises(spmd.ExecutionError, match="does not hold"):
            program(number)


def test_arrays_keep_what_they_are() -> None:
    program = identity("f32", "2x")
    for array in (
        np.zeros(2), np.zeros(3, np.float32), np.zeros((2, 1), np.float32), np.zeros(2, ">f4"), [1.0, 2.0], 1.0,
        np.ma.masked_array(np.zeros(2, np.float32), [True, False]), [[1], [2, 3]], "ab", {}, np.zeros(2, np.int32),
    ):  # fmt: skip
        with pytest.raises(spmd.ExecutionError, match=re.escape("argument 0 (x) of @main: tensor<2xf32> is needed")):
            program(array)
    with pytest.raises(spmd.ExecutionError, match="masked array"):
        identity("f32")(np.ma.masked_array(np.float32(1), True))
    (result,) = program(np.arange(2, dtype=np.float32))
    assert result.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("%arg0: tensor<f32>", ""),
        ("%0: tensor<f32>", ""),
        ("%weights: tensor<f32>", " (weights)"),
        ("%arg0: tensor<f32> {jax.arg_info = \"params['w']\"}", " (params['w'])"),
        ("%arg0: tensor<f32> loc(\"params['b']\")", " (params['b'])"),
        ("%arg0: tensor<f32> loc(#loc1)", " (params['c'])"),
        ("%arg0: tensor<f32> loc(unknown)", ""),
        ('%arg0: tensor<f32> loc("file.py":3:4)', ""),
    ],
)
def test_an_error_names_the_argument(argument: str, name: str) -> None:
    text = f"""func.func @step(%first: tensor<i32>, {argument}) -> tensor<i32> {{ return %first : tensor<i32> }}
#loc1 = loc("params['c']"(#loc2))
#loc2 = loc("file.py":1:1)
"""
    program = spmd.compile(spmd.parse(text), function="step")
    message = re.escape(f"argument 1{name} of @step: tensor<f32> is needed, got float32 of shape (3,)")
    with pytest.raises(spmd.ExecutionError, match=message):
        program(1, np.zeros(3, np.float32))
