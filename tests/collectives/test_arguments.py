"""What a user may give a communicator, and what is refused with which words."""

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from collectives import ADD, MAXIMUM, CommunicationError, Reduction
from collectives.arguments import as_reduction, as_shape
from collectives.communicator import Communicator
from collectives.threads import single_process

F32, BOOL = np.dtype(np.float32), np.dtype(np.bool_)


@pytest.fixture
def alone() -> Communicator:
    return single_process()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (MAXIMUM, "maximum"), ("max", "maximum"), ("Maximum", "maximum"), (np.maximum, "maximum"), (np.max, "maximum"),
        (max, "maximum"), ("sum", "add"), (sum, "add"), (np.add, "add"), (operator.add, "add"), ("prod", "multiply"),
        (np.multiply, "multiply"), (operator.mul, "multiply"), (np.minimum, "minimum"), (min, "minimum"),
        (np.bitwise_xor, "xor"), ("and", "and"), (operator.xor, "xor"),
    ],
)  # fmt: skip
def test_a_reduction_has_many_names(given: Any, name: str) -> None:
    assert as_reduction(given, F32).name == name


def test_logical_functions_are_of_booleans() -> None:
    assert as_reduction(np.logical_or, BOOL).name == "or"
    with pytest.raises(CommunicationError, match="logical_or of float32"):
        as_reduction(np.logical_or, F32)


@pytest.mark.parametrize("given", ["average", np.fmax, lambda a, b: a, 3, None, np.add.reduce])
def test_another_reduction_is_refused_with_those_there_are(given: Any) -> None:
    with pytest.raises(CommunicationError, match=r"one of add, multiply, .* is needed"):
        as_reduction(given, F32)


def test_a_function_of_a_known_name_is_not_taken_for_it() -> None:
    def maximum(a: Any, b: Any) -> Any:
        return a

    with pytest.raises(CommunicationError, match=r"Reduction\(name, fold\)"):
        as_reduction(maximum, F32)
    own = Reduction("first", maximum)
    assert as_reduction(own, F32) is own


@pytest.mark.parametrize(
    ("given", "shape"), [(4, (4,)), (np.int64(4), (4,)), ([2, 3], (2, 3)), ((), ()), (np.array([2]), (2,))]
)
def test_shapes(given: Any, shape: tuple[int, ...]) -> None:
    assert as_shape(given) == shape


@pytest.mark.parametrize("given", [-1, (2, -1), 1.5, "4", None, np.ones((2, 2)), [[1]]])
def test_what_is_no_shape(given: Any) -> None:
    with pytest.raises(CommunicationError, match="a shape is a number or a tuple of numbers"):
        as_shape(given)


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        (np.float32, [1, 2.5], [1, 2.5]),
        (np.int8, (1, -2), [1, -2]),
        (np.complex64, [1, 2j], [1, 2j]),
        (ml_dtypes.bfloat16, [1, 2.5], [1, 2.5]),
        (np.bool_, [True, False], [True, False]),
        (np.float32, np.array([1, 2], ">f4"), [1, 2]),
        (np.float32, np.arange(4, dtype=np.float32)[::2], [0, 2]),
    ],
)
def test_lists_are_operands(alone: Communicator, dtype: Any, given: Any, expected: Any) -> None:
    result = alone.all_reduce(2, dtype)(given)
    assert result.dtype == dtype and result.tolist() == expected


def test_a_scalar_is_an_operand(alone: Communicator) -> None:
    assert float(alone.all_reduce((), np.float64, "max")(2)) == 2.0
    assert int(alone.all_gather(1, np.int32, 0)([7])[0]) == 7


@pytest.mark.parametrize(
    ("dtype", "given", "words"),
    [
        (np.float32, np.ones((2, 2), np.float32), "all_reduce add of 4 float32: the operand is 2x2 float32"),
        (np.float32, [1, 2, 3], "all_reduce add of 4 float32: the operand is 3 int64"),
        (np.float32, 1.0, "the operand is scalar float64"),
        (np.float32, np.ones(4), r"the operand is 4 float64, another type: array.astype\('float32'\)"),
        (np.int32, [1.5] * 4, "the operand is 4 float64, another type"),
        (np.bool_, [1, 0, 0, 1], "the operand is 4 int64, another type"),
        (np.uint8, [1, 2, 3, 300], "all_reduce add of 4 uint8: .*300"),
        (np.float32, ["a"] * 4, "another type"),
    ],
)
def test_an_operand_that_does_not_fit_is_named_with_what_is_needed(
    alone: Communicator, dtype: Any, given: Any, words: str
) -> None:
    with pytest.raises(CommunicationError, match=words):
        alone.all_reduce((4,), dtype)(given)


@pytest.mark.parametrize(
    "out", [np.empty(3, np.float32), np.empty(4), np.empty(8, np.float32)[::2], [0, 0, 0, 0], np.empty((2, 2))]
)
def test_a_result_that_does_not_fit_is_named_with_what_is_needed(alone: Communicator, out: Any) -> None:
    with pytest.raises(CommunicationError, match=r"out must be 4 float32, got"):
        alone.all_reduce(4, np.float32, ADD)(np.ones(4, np.float32), out)


def test_in_place_stays_in_place(alone: Communicator) -> None:
    x = np.ones(4, np.float32)
    assert alone.all_reduce(4, np.float32)(x, x) is x


@pytest.mark.parametrize("dtype", [object, "nonsense", str, [("a", int)]])
def test_a_dtype_that_has_no_numbers(alone: Communicator, dtype: Any) -> None:
    with pytest.raises(CommunicationError, match="dtype must be a type of numbers"):
        alone.all_reduce(4, dtype)
