"""What a region says: the functions that reductions, scatters and sorts take as regions, recognized when compiled.

A recognized region runs as NumPy's own reduction or sort; an unrecognized one runs as it is, on whole arrays.
Recognition looks at what is computed, not at how it is written: constants may stand in or outside of the region, in
any order, and arguments of commutative operations may be swapped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spmd.attributes import DenseAttr
from spmd.backends.numpy.core import Context
from spmd.backends.numpy.pointwise import is_sub_byte, wide_dtype
from spmd.ir import Block, Op, Region, Value, captured_values
from spmd.types import ElementType

Array = np.ndarray[Any, Any]

#: An expression over a region's arguments: nested tuples, equal when they compute the same.
Expression = tuple[Any, ...]

#: Ops whose operands may be exchanged.
COMMUTATIVE = {"add", "multiply", "maximum", "minimum", "and", "or", "xor"}


# --- low-precision types ---------------------------------------------------------------------------------------------


def compute_dtype(element: ElementType) -> np.dtype[Any]:
    """The dtype in which to compute on `element`: its own where NumPy is fast and exact, else a wider one."""
    narrow = (element.is_float and element.bits < 32) or is_sub_byte(element)
    return wide_dtype(element) if narrow else element.dtype


# --- monoids ---------------------------------------------------------------------------------------------------------

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_LOGICAL: dict[str, np.ufunc] = {
    "add": np.logical_or,
    "multiply": np.logical_and,
    "maximum": np.logical_or,
    "minimum": np.logical_and,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


@dataclass(frozen=True)
class Monoid:
    """An associative and commutative operation, as the ufunc with its reduce, accumulate, reduceat and at.

    The ufunc runs in `compute`, to which arrays of `element` are converted and from which results are rounded once.
    Maximum and minimum propagate NaN, as the specification's do.
    """

    kind: str
    element: ElementType
    ufunc: np.ufunc
    compute: np.dtype[Any]

    @property
    def direct(self) -> bool:
        """Whether arrays of the element type are computed on as they are."""
        return self.compute == self.element.dtype

    @property
    def rounds(self) -> bool:
        """Whether the order of its operands shows in the result."""
        return self.kind in ("add", "multiply") and self.compute.kind in "fc"

    @property
    def multiplies_complex(self) -> bool:
        """Whether NumPy's own loop may leave out the rounding of a product's terms, as the processor likes."""
        return self.kind == "multiply" and self.compute.kind == "c"

    @property
    def idempotent(self) -> bool:
        return self.kind in ("maximum", "minimum", "and", "or") or (self.element.is_boolean and self.kind != "xor")

    @property
    def identity(self) -> Any:
        """The neutral element, a scalar of `compute`."""
        dtype = self.compute
        if self.kind in ("add", "or", "xor"):
            return dtype.type(0)
        if self.kind == "multiply":
            return dtype.type(1)
        if self.kind == "and":
            return dtype.type(True) if dtype == np.bool_ else np.bitwise_not(dtype.type(0))
        smallest = self.kind == "maximum"
        if dtype == np.bool_:
            return dtype.type(not smallest)
        if dtype.kind == "c":
            infinite = -np.inf if smallest else np.inf
            return dtype.type(complex(infinite, infinite))
        if dtype.kind == "f":
            return dtype.type(-np.inf if smallest else np.inf)
        limits = np.iinfo(dtype)
        return dtype.type(limits.min if smallest else limits.max)


def monoid_of(region: Region) -> Monoid | None:
    """The monoid that `region` computes on its two arguments, or None."""
    return _monoid(binary_of(region), region.block.arguments[0])


def monoids_of(region: Region) -> list[Monoid] | None:
    """For a region on n accumulators and n elements: the monoid of each pair, when each result is that of its own
    pair only; else None."""
    arguments = region.block.arguments
    count = len(arguments) // 2
    expressions = Expressions(region.block)
    found = []
    for index, value in enumerate(_returned(region.block)):
        expression = expressions[value]
        operands = (("argument", index), ("argument", index + count))
        if expression is None or len(expression) != 4 or not _same_operands(expression, operands):
            return None
        monoid = _monoid(str(expression[0]), arguments[index])
        if monoid is None:
            return None
        found.append(monoid)
    return found


def _same_operands(expression: Expression, operands: tuple[Expression, Expression]) -> bool:
    return expression[2:] in (operands, operands[::-1])


def _monoid(kind: str | None, argument: Value) -> Monoid | None:
    element = argument.tensor.element_type
    if kind not in _UFUNCS or not isinstance(element, ElementType):
        return None
    return Monoid(kind, element, (_LOGICAL if element.is_boolean else _UFUNCS)[kind], compute_dtype(element))


def binary_of(region: Region) -> str | None:
    """The name (without its dialect) of the one op that `region` applies to its two arguments in their order."""
    if len(region.blocks) != 1 or len(region.block.arguments) != 2:
        return None
    returned = _returned(region.block)
    if len(returned) != 1:
        return None
    expression = Expressions(region.block)[returned[0]]
    if expression is None or len(expression) != 4 or expression[2:] != (("argument", 0), ("argument", 1)):
        return None
    return str(expression[0])


def returned_argument(region: Region) -> int | None:
    """The position of the argument that `region` returns as it is (1 for an assigning scatter), or None."""
    returned = _returned(region.block)
    if len(returned) == 1:
        expression = Expressions(region.block)[returned[0]]
        if expression is not None and expression[0] == "argument":
            return int(expression[1])
    return None


def _returned(block: Block) -> tuple[Value, ...]:
    return block.terminator.operands


# --- expressions -----------------------------------------------------------------------------------------------------


class Expressions:
    """The expressions of a block's values; None for one that is computed with regions inside or has effects."""

    def __init__(self, block: Block) -> None:
        self._table: dict[Value, Expression | None] = {
            argument: ("argument", index) for index, argument in enumerate(block.arguments)
        }
        for op in block.ops:
            for result in op.results:
                self._table[result] = self._of_result(op, result)

    def __getitem__(self, value: Value) -> Expression | None:
        if value not in self._table:
            constant = _constant(value.defining_op)
            self._table[value] = ("captured", value) if constant is None else constant
        return self._table[value]

    def _of_result(self, op: Op, result: Value) -> Expression | None:
        constant = _constant(op)
        if constant is not None:
            return constant
        if op.regions or op.definition is None or not (op.definition.is_pure or op.name.startswith("stablehlo.")):
            return None
        operands = [self[operand] for operand in op.operands]
        if any(operand is None for operand in operands):
            return None
        if _is_identity(op):
            return operands[0]
        name = op.name.removeprefix("stablehlo.")
        if name in COMMUTATIVE or (name == "compare" and op["comparison_direction"] in ("EQ", "NE")):
            operands.sort(key=repr)
        return (name, (result.index, result.type, _frozen(op.attributes)), *operands)


def _constant(op: Op | None) -> Expression | None:
    if op is None or op.name != "stablehlo.constant":
        return None
    value = op.attributes["value"]
    if not isinstance(value, DenseAttr):
        return None
    return ("constant", value.type, np.ascontiguousarray(value.array).tobytes())


def _is_identity(op: Op) -> bool:
    """Ops that give their operand back when everything is a scalar of one type."""
    if op.name not in ("stablehlo.convert", "stablehlo.broadcast_in_dim", "stablehlo.reshape"):
        return False
    return op.operands[0].type is op.results[0].type


def _frozen(attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple((name, repr(attributes[name])) for name in sorted(attributes))


# --- the place of the largest and the smallest -----------------------------------------------------------------------


@dataclass(frozen=True)
class Extremum:
    """A reduction of (value, index) pairs to the largest or smallest value and where it is.

    `tie` tells which index wins among equal values: "low" the lowest, "first" or "last" that of the first or last
    argument. `propagates_nan`: a NaN wins, the first of several; otherwise the outcome with NaN depends on order.
    """

    kind: str
    tie: str
    propagates_nan: bool

    @property
    def ufunc(self) -> np.ufunc:
        return np.maximum if self.kind == "maximum" else np.minimum


_ORDERINGS = {"compare", "and", "or", "xor", "not", "select", "minimum", "maximum", "constant", "return"}
_LOW, _HIGH = 5, 6


def extremum_of(op: Op, index: int, context: Context) -> Extremum | None:
    """The extremum that region `index` of `op` reduces to, told from its outcome for every order of its arguments.

    That is sound because the region only compares its arguments and selects among them.
    """
    region = op.regions[index]
    types = [argument.tensor.element_type for argument in region.block.arguments]
    if len(types) != 4 or captured_values(op) or types[0] is not types[2] or types[1] is not types[3]:
        return None
    value, place = types[0], types[1]
    if not isinstance(value, ElementType) or not isinstance(place, ElementType):
        return None
    if value.is_complex or value.is_boolean or not place.is_integer or place.bits < 8 or value.bits < 8:
        return None
    if any(inner.name.removeprefix("stablehlo.") not in _ORDERINGS for inner in region.block.ops):
        return None
    if any(inner.name == "stablehlo.constant" and inner.result.tensor.dtype != np.bool_ for inner in region.block.ops):
        return None
    function = context.vectorized(op, index)
    dtypes = (value.dtype, place.dtype)

    def outcome(cases: list[tuple[float, int, float, int]]) -> list[tuple[float, int]]:
        columns = [np.array(column, dtypes[k % 2]) for k, column in enumerate(zip(*cases, strict=True))]
        values, places = function(*columns)
        return [(float(v), int(p)) for v, p in zip(values, places, strict=True)]

    return _match_extremum(outcome, value.is_float)


def _match_extremum(outcome: Callable[[Any], list[tuple[float, int]]], is_float: bool) -> Extremum | None:
    numbers = (_LOW, _HIGH)
    # Indices below and above all values: a region that compares a value with an index is found out.
    cases = [
        (v0, i0, v1, i1)
        for places in ((1, 2), (8, 9))
        for v0, v1 in itertools.product(numbers, numbers)
        for i0, i1 in itertools.product(places, places)
    ]
    found = outcome(cases)
    for kind, tie in itertools.product(("maximum", "minimum"), ("low", "first", "last")):
        if found == [_expected(kind, tie, case) for case in cases]:
            return Extremum(kind, tie, not is_float or _propagates_nan(outcome))
    return None


def _expected(kind: str, tie: str, case: tuple[float, int, float, int]) -> tuple[float, int]:
    v0, i0, v1, i1 = case
    if v0 == v1:
        return v0, {"low": min(i0, i1), "first": i0, "last": i1}[tie]
    first = (v0 > v1) == (kind == "maximum")
    return (v0, i0) if first else (v1, i1)


def _propagates_nan(outcome: Callable[[Any], list[tuple[float, int]]]) -> bool:
    nan = float("nan")
    for (i0, i1), v in itertools.product(((1, 2), (2, 1)), (_LOW, _HIGH)):
        found = outcome([(nan, i0, v, i1), (v, i0, nan, i1), (nan, i0, nan, i1)])
        if [place for _, place in found] != [i0, i1, i0] or any(value == value for value, _ in found):
            return False
    return True
