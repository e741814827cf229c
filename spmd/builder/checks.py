"""Preconditions shared by many operations; each raises ArgumentError naming the argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import SupportsIndex, cast

import numpy as np

from spmd import types as t
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import XlaComputation, leaf_types
from spmd.builder.errors import ArgumentError
from spmd.builder.options import ReplicaGroup
from spmd.builder.shape import Shape
from spmd.ir import Value
from spmd.support.arrays import Array

Groups = Sequence[ReplicaGroup] | Sequence[Sequence[int]]


def integers(values: object, argument: str, count: int | None = None, least: int | None = None) -> tuple[int, ...]:
    """Return `values` as a tuple of ints; check that there are `count`, each at least `least`."""
    try:
        numbers = tuple(int(index(value)) for value in cast("Iterable[SupportsIndex]", values))
    except TypeError:
        raise ArgumentError(argument, f"must be a sequence of integers, got {values!r}") from None
    if count is not None and len(numbers) != count:
        raise ArgumentError(argument, f"must have {count} entries, got {list(numbers)}")
    if least is not None and any(v < least for v in numbers):
        raise ArgumentError(argument, f"every entry must be at least {least}, got {list(numbers)}")
    return numbers


def integer(value: object, argument: str, least: int | None = None) -> int:
    try:
        number = int(index(cast("SupportsIndex", value)))
    except TypeError:
        raise ArgumentError(argument, f"must be an integer, got {value!r}") from None
    if least is not None and number < least:
        raise ArgumentError(argument, f"must be at least {least}, got {number}")
    return number


def dimension(value: object, rank: int, argument: str) -> int:
    """Return a dimension number in [0, rank)."""
    number = integer(value, argument)
    if not 0 <= number < rank:
        raise ArgumentError(argument, f"must be in [0, {rank}), got {number}")
    return number


def dimensions(values: object, rank: int, argument: str) -> tuple[int, ...]:
    """Return distinct dimension numbers in [0, rank)."""
    numbers = tuple(dimension(value, rank, argument) for value in integers(values, argument))
    if len(set(numbers)) != len(numbers):
        raise ArgumentError(argument, f"dimension numbers must be distinct, got {list(numbers)}")
    return numbers


def per_dimension(values: Sequence[int] | None, rank: int, argument: str, least: int = 1) -> tuple[int, ...]:
    """Return one integer per dimension; all 1 if None."""
    return integers(values, argument, rank, least) if values is not None and len(values) else (1,) * rank


def array(builder: XlaBuilder, operand: object, argument: str) -> Value:
    """Return the value of an operand that must be an array."""
    value = builder.value(operand, argument)
    if not isinstance(value.type, t.TensorType):
        raise ArgumentError(argument, f"must be an array, got {Shape.of(value.type).brief}")
    return value


def arrays(builder: XlaBuilder, operands: object, argument: str, least: int = 1) -> list[Value]:
    """Return the values of operands that must be arrays; a single XlaOp is a sequence of one."""
    sequence = operands if isinstance(operands, (list, tuple)) else [operands]
    if len(sequence) < least:
        raise ArgumentError(argument, f"must have at least {least} operand")
    return [
        array(builder, one, f"{argument}[{i}]" if len(sequence) > 1 else argument) for i, one in enumerate(sequence)
    ]


def scalar(builder: XlaBuilder, operand: object, argument: str, like: Value | None = None) -> Value:
    """Return the value of an operand that must have rank 0 and the element type of `like`."""
    value = array(builder, operand, argument)
    if value.tensor.rank:
        raise ArgumentError(argument, f"must be a scalar, got {Shape.of(value.type).brief}")
    if like is not None:
        same_element_type(value, like, argument)
    return value


def sizes(value: Value) -> tuple[int, ...]:
    """Return the sizes of an array's dimensions; for a dynamic one, its bound."""
    return Shape.of(value.type).sizes


def token(builder: XlaBuilder, operand: object, argument: str) -> Value:
    value = builder.value(operand, argument)
    if not isinstance(value.type, t.TokenType):
        raise ArgumentError(argument, f"must be a token, got {Shape.of(value.type).brief}")
    return value


def same_element_type(value: Value, like: Value, argument: str) -> None:
    if value.tensor.element_type is not like.tensor.element_type:
        raise ArgumentError(
            argument, f"must have the element type of {Shape.of(like.type).brief}, got {Shape.of(value.type).brief}"
        )


def same_dimensions(values: Sequence[Value], argument: str) -> None:
    for value in values[1:]:
        if sizes(value) != sizes(values[0]):
            shapes = f"{Shape.of(values[0].type).brief} and {Shape.of(value.type).brief}"
            raise ArgumentError(argument, f"all must have the same dimensions, got {shapes}")


def kind(value: Value, argument: str, text: str, *kinds: str) -> Value:
    """Return `value`, whose element type must be of one of the `kinds`; `text` describes them in the error."""
    if value.tensor.scalar_type.kind not in kinds:
        raise ArgumentError(argument, f"must be {text}, got {Shape.of(value.type).brief}")
    return value


def signature(
    builder: XlaBuilder,
    computation: object,
    argument: str,
    parameters: Sequence[t.Type],
    results: Sequence[t.Type] | None = None,
) -> XlaComputation:
    """Return a computation with these parameters and this result (leaf by leaf), and record its use."""
    if not isinstance(computation, XlaComputation):
        raise ArgumentError(argument, f"must be an XlaComputation, got {type(computation).__name__}")
    expected, actual = list(parameters), computation.parameter_types
    if expected != actual:
        raise ArgumentError(
            argument, f"{computation.name()} must have parameters ({_shapes(expected)}), got ({_shapes(actual)})"
        )
    if results is not None:
        leaves = [leaf for result in results for leaf in leaf_types(result)]
        if leaves != computation.result_leaves:
            result = Shape.of(computation.result.type)
            raise ArgumentError(argument, f"{computation.name()} must return {_shapes(results)}, got {result}")
    builder.use(computation)
    return computation


def reducer(builder: XlaBuilder, computation: object, argument: str, values: Iterable[Value]) -> XlaComputation:
    """Return a computation (T_0, ..., T_0, ...) -> T_0, ... on scalars of the element types of `values`."""
    scalars = [t.TensorType((), value.tensor.element_type) for value in values]
    return signature(builder, computation, argument, [*scalars, *scalars], scalars)


def groups(replica_groups: Groups | None, argument: str = "replica_groups") -> Array:
    """Return replica groups as a matrix of ids, one row per group, padded with -1; empty for one group of all."""
    rows = []
    for group in replica_groups or ():
        ids = group.replica_ids if isinstance(group, ReplicaGroup) else group
        rows.append(integers(ids, argument, least=0))
    flat = [identifier for row in rows for identifier in row]
    if len(set(flat)) != len(flat):
        raise ArgumentError(argument, f"ids must be distinct, got {[list(row) for row in rows]}")
    width = max((len(row) for row in rows), default=0)
    filled = [[*row, *(-1,) * (width - len(row))] for row in rows]
    return np.array(filled, dtype=np.int64).reshape(len(rows), width)


def _shapes(types: Sequence[t.Type]) -> str:
    return ", ".join(Shape.of(type).brief for type in types)
