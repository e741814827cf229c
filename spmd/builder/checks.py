"""Preconditions that many operations share; each raises ArgumentError naming the argument."""

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
    """Return `values` as a tuple of ints, `count` of them, each at least `least`."""
    try:
        numbers = tuple(int(index(value)) for value in cast("Iterable[SupportsIndex]", values))
    except TypeError:
        raise ArgumentError(argument, f"a sequence of integers is needed, got {values!r}") from None
    if count is not None and len(numbers) != count:
        raise ArgumentError(argument, f"{count} entries are needed, got {len(numbers)}: {list(numbers)}")
    if least is not None and any(v < least for v in numbers):
        raise ArgumentError(argument, f"every entry must be at least {least}, got {list(numbers)}")
    return numbers


def integer(value: object, argument: str, least: int | None = None) -> int:
    try:
        number = int(index(cast("SupportsIndex", value)))
    except TypeError:
        raise ArgumentError(argument, f"an integer is needed, got {value!r}") from None
    if least is not None and number < least:
        raise ArgumentError(argument, f"must be at least {least}, got {number}")
    return number


def dimension(value: object, rank: int, argument: str) -> int:
    """Return a dimension number in [0, rank)."""
    number = integer(value, argument)
    if not 0 <= number < rank:
        raise ArgumentError(argument, f"dimension {number} is not in [0, {rank})")
    return number


def dimensions(values: object, rank: int, argument: str) -> tuple[int, ...]:
    """Distinct dimension numbers in [0, rank)."""
    numbers = tuple(dimension(value, rank, argument) for value in integers(values, argument))
    if len(set(numbers)) != len(numbers):
        raise ArgumentError(argument, f"dimension numbers repeat in {list(numbers)}")
    return numbers


def per_dimension(values: Sequence[int] | None, rank: int, argument: str, least: int = 1) -> tuple[int, ...]:
    """One integer a dimension; all 1 when none is given."""
    return integers(values, argument, rank, least) if values is not None and len(values) else (1,) * rank


def array(builder: XlaBuilder, operand: object, argument: str) -> Value:
    """Return an operand that is an array."""
    value = builder.value(operand, argument)
    if not isinstance(value.type, t.TensorType):
        raise ArgumentError(argument, f"an array is needed, got {Shape.of(value.type).brief}")
    return value


def arrays(builder: XlaBuilder, operands: object, argument: str, least: int = 1) -> list[Value]:
    """Operands that are arrays; a single XlaOp stands for a sequence of one."""
    sequence = operands if isinstance(operands, (list, tuple)) else [operands]
    if len(sequence) < least:
        raise ArgumentError(argument, f"at least {least} operand is needed")
    return [
        array(builder, one, f"{argument}[{i}]" if len(sequence) > 1 else argument) for i, one in enumerate(sequence)
    ]


def scalar(builder: XlaBuilder, operand: object, argument: str, like: Value | None = None) -> Value:
    """Return an operand of rank 0, of the element type of `like`."""
    value = array(builder, operand, argument)
    if value.tensor.rank:
        raise ArgumentError(argument, f"a scalar is needed, got {Shape.of(value.type).brief}")
    if like is not None:
        same_element_type(value, like, argument)
    return value


def sizes(value: Value) -> tuple[int, ...]:
    """Return the sizes of an array's dimensions, of a dynamic one its bound."""
    return Shape.of(value.type).sizes


def token(builder: XlaBuilder, operand: object, argument: str) -> Value:
    value = builder.value(operand, argument)
    if not isinstance(value.type, t.TokenType):
        raise ArgumentError(argument, f"a token is needed, got {Shape.of(value.type).brief}")
    return value


def same_element_type(value: Value, like: Value, argument: str) -> None:
    if value.tensor.element_type is not like.tensor.element_type:
        raise ArgumentError(
            argument, f"element types differ: {Shape.of(value.type).brief} beside {Shape.of(like.type).brief}"
        )


def same_dimensions(values: Sequence[Value], argument: str) -> None:
    for value in values[1:]:
        if sizes(value) != sizes(values[0]):
            shapes = f"{Shape.of(values[0].type).brief} and {Shape.of(value.type).brief}"
            raise ArgumentError(argument, f"all must have the same dimensions, got {shapes}")


def kind(value: Value, argument: str, text: str, *kinds: str) -> Value:
    """Return the element type's kind is one of `kinds`, which `text` says in words."""
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
    """Return a computation of these parameters and result (leaf by leaf), noted as used."""
    if not isinstance(computation, XlaComputation):
        raise ArgumentError(argument, f"an XlaComputation is needed, got {type(computation).__name__}")
    expected, actual = list(parameters), computation.parameter_types
    if expected != actual:
        raise ArgumentError(
            argument, f"parameters must be ({_shapes(expected)}), {computation.name()} has ({_shapes(actual)})"
        )
    if results is not None:
        leaves = [leaf for result in results for leaf in leaf_types(result)]
        if leaves != computation.result_leaves:
            result = Shape.of(computation.result.type)
            raise ArgumentError(argument, f"must return {_shapes(results)}, {computation.name()} returns {result}")
    builder.use(computation)
    return computation


def reducer(builder: XlaBuilder, computation: object, argument: str, values: Iterable[Value]) -> XlaComputation:
    """Return a computation (T_0, ..., T_0, ...) -> T_0, ... on scalars of the element types of `values`."""
    scalars = [t.TensorType((), value.tensor.element_type) for value in values]
    return signature(builder, computation, argument, [*scalars, *scalars], scalars)


def groups(replica_groups: Groups | None, argument: str = "replica_groups") -> Array:
    """Replica groups as a matrix of ids, a row a group, short rows filled with -1; empty: all in one group."""
    rows = []
    for group in replica_groups or ():
        ids = group.replica_ids if isinstance(group, ReplicaGroup) else group
        rows.append(integers(ids, argument, least=0))
    flat = [identifier for row in rows for identifier in row]
    if len(set(flat)) != len(flat):
        raise ArgumentError(argument, f"an id is in more than one place: {[list(row) for row in rows]}")
    width = max((len(row) for row in rows), default=0)
    filled = [[*row, *(-1,) * (width - len(row))] for row in rows]
    return np.array(filled, dtype=np.int64).reshape(len(rows), width)


def _shapes(types: Sequence[t.Type]) -> str:
    return ", ".join(Shape.of(type).brief for type in types)
