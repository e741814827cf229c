"""Ops with a reduction region. Source: StableHLO specification, the op of each name."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.dialects import kinds
from spmd.dialects.checks import (
    Dimension,
    at_least,
    compatible_shapes,
    dims,
    element_of,
    equal,
    equal_elements,
    in_range,
    listed,
    parameters,
    positive,
    returned,
    same_shape,
    shape_text,
    signature,
    tensors,
    unique,
)
from spmd.dialects.core import OpDef, Trait, attribute, define, operand, region, result
from spmd.dialects.reducers import accumulated, check_reducer
from spmd.dialects.shapes import bounds_of, tensor, windows
from spmd.ir import Op
from spmd.support.arrays import Array
from spmd.types import I1, ElementType, TensorType, Type

MAP = define(
    "stablehlo.map",
    operands=[operand("inputs", variadic=True)],
    attributes=[attribute("dimensions", kinds.I64_ARRAY)],
    results=[result("result")],
    regions=[region("computation")],
    traits=[Trait.RECURSIVE],
)

MAP.constraint("C2", "0 < size(inputs)")(lambda op: at_least(len(op.operands), 1))
MAP.constraint("C1", "shape(inputs...) = shape(result)")(lambda op: same_shape(*op.operand_types, *op.result_types))


@MAP.constraint("C4", "computation has type (tensor<E0>, ...) -> tensor<E'> where Ei = element_type(inputs[i])")
def _(op: Op) -> str | None:
    results = returned(op.regions[0])
    sound = len(results) == 1 and isinstance(results[0], TensorType) and results[0].rank == 0
    if sound and parameters(op.regions[0]) == [TensorType((), element_of(type)) for type in op.operand_types]:
        return None
    return f"{signature(op.regions[0])} for inputs {listed(op.operand_types)}"


@MAP.constraint("C3", "dimensions = range(rank(inputs[0]))")
def _(op: Op) -> str | None:
    rank = op.operands[0].tensor.rank
    return None if op["dimensions"] == tuple(range(rank)) else f"{dims(op['dimensions'])} for rank {rank}"


@MAP.infers("C1, C4", "the result has the inputs' shape and the element type that computation gives")
def _(op: Op) -> list[Type]:
    operand = op.operands[0].tensor
    return [tensor(operand.shape, element_of(returned(op.regions[0])[0]), operand.bounds)]


REDUCE = define(
    "stablehlo.reduce",
    operands=[operand("inputs", variadic=True), operand("init_values", variadic=True)],
    attributes=[attribute("dimensions", kinds.I64_ARRAY)],
    results=[result("results", variadic=True)],
    regions=[region("body")],
    assembly="custom<Reduce>",
    traits=[Trait.RECURSIVE],
)


def _inputs(op: Op) -> list[TensorType]:
    return tensors(op.operands[: len(op.operands) // 2])


def _initial(op: Op) -> list[TensorType]:
    return tensors(op.operands[len(op.operands) // 2 :])


def _rest(op: Op) -> list[int]:
    """Return the dimensions that are not reduced."""
    return [d for d in range(_inputs(op)[0].rank) if d not in op["dimensions"]]


REDUCE.constraint("C3", "0 < size(inputs) = size(init_values)")(lambda op: at_least(len(op.operands) // 2, 1))
REDUCE.constraint("C1", "same(shape(inputs...))")(lambda op: same_shape(*_inputs(op)))
REDUCE.constraint("C4", "0 <= dimensions < rank(inputs[0])")(lambda op: in_range(op["dimensions"], _inputs(op)[0].rank))
REDUCE.constraint("C5", "is_unique(dimensions)")(lambda op: unique(op["dimensions"]))
check_reducer(
    REDUCE,
    "C6",
    _inputs,
    initial=("C2", "init_values have the element types of inputs", _initial),
    kept=lambda op: [_inputs(op)[0].shape[d] for d in _rest(op)],
)


@REDUCE.infers("C7, C8", "results have the inputs' shape without `dimensions` and the element types that body gives")
def _(op: Op) -> list[Type]:
    rest = _rest(op)
    types: list[Type] = []
    for type in _inputs(op):
        bounds = bounds_of(type)
        types.append(tensor([type.shape[d] for d in rest], type.element_type, [bounds[d] for d in rest]))
    return accumulated(op.regions[0], types)


REDUCE_WINDOW = define(
    "stablehlo.reduce_window",
    operands=[operand("inputs", variadic=True), operand("init_values", variadic=True)],
    attributes=[
        attribute("window_dimensions", kinds.I64_ARRAY),
        attribute("window_strides", kinds.I64_ARRAY, optional=True),
        attribute("base_dilations", kinds.I64_ARRAY, optional=True),
        attribute("window_dilations", kinds.I64_ARRAY, optional=True),
        attribute("padding", kinds.I64_DENSE, optional=True),
    ],
    results=[result("results", variadic=True)],
    regions=[region("body")],
    traits=[Trait.RECURSIVE],
)


def _filled(op: Op, name: str, rank: int) -> tuple[int, ...]:
    """Return an optional array of strides or dilations; ones if absent."""
    values: tuple[int, ...] | None = op[name]
    return values or (1,) * rank


def window_padding(op: Op, rank: int) -> list[list[int]]:
    """Return (low, high) padding of each dimension; zeros if absent."""
    array: Array | None = op["padding"]
    return [[0, 0]] * rank if array is None else array.tolist()


def check_window(declared: OpDef, arrays: Sequence[tuple[str, str, str]], padding: str) -> None:
    """Declare the constraints on a window; `arrays` holds the label on size, the label on positivity, and the name."""
    for of_size, of_values, name in arrays:

        def sized(op: Op, name: str = name) -> str | None:
            values = op[name]
            required = name == "window_dimensions"
            return equal(len(values or ()), op.operands[0].tensor.rank) if values or required else None

        def above_zero(op: Op, name: str = name) -> str | None:
            return positive(op[name] or ())

        declared.constraint(of_size, f"size({name}) = rank of the operand")(sized)
        declared.constraint(of_values, f"0 < {name}")(above_zero)

    @declared.constraint(padding, "shape(padding) = [rank of the operand, 2]")
    def _(op: Op) -> str | None:
        values = op["padding"]
        return None if values is None else equal(values.shape, (op.operands[0].tensor.rank, 2))


REDUCE_WINDOW.constraint("C1", "0 < size(inputs) = size(init_values)")(lambda op: at_least(len(op.operands) // 2, 1))
REDUCE_WINDOW.constraint("C2", "same(shape(inputs...))")(lambda op: same_shape(*_inputs(op)))
check_window(
    REDUCE_WINDOW,
    [
        ("C4", "C5", "window_dimensions"),
        ("C6", "C7", "window_strides"),
        ("C8", "C9", "base_dilations"),
        ("C10", "C11", "window_dilations"),
    ],
    "C12",
)
check_reducer(
    REDUCE_WINDOW,
    "C13",
    _inputs,
    initial=("C3", "init_values have the element types of inputs", _initial),
    kept=lambda op: op["window_dimensions"],
)


@REDUCE_WINDOW.infers("C14, C15, C16", "shape(results...) = num_windows, with the element types that body gives")
def _(op: Op) -> list[Type]:
    sizes = op["window_dimensions"]
    rank = len(sizes)
    window = (
        sizes,
        _filled(op, "window_strides", rank),
        window_padding(op, rank),
        _filled(op, "base_dilations", rank),
        _filled(op, "window_dilations", rank),
    )
    types = [
        tensor(windows(type.shape, *window), type.element_type, windows(bounds_of(type), *window))
        for type in _inputs(op)
    ]
    return accumulated(op.regions[0], types)


SELECT_AND_SCATTER = define(
    "stablehlo.select_and_scatter",
    operands=[operand("operand"), operand("source"), operand("init_value")],
    attributes=[
        attribute("window_dimensions", kinds.I64_ARRAY, optional=True),
        attribute("window_strides", kinds.I64_ARRAY, optional=True),
        attribute("padding", kinds.I64_DENSE, optional=True),
    ],
    results=[result("result")],
    regions=[region("select"), region("scatter")],
    traits=[Trait.RECURSIVE],
)


@SELECT_AND_SCATTER.constraint("C9", "select has type (tensor<E>, tensor<E>) -> tensor<i1>, E = element_type(operand)")
def _(op: Op) -> str | None:
    select, element = op.regions[0], op.operands[0].tensor.element_type
    arguments = parameters(select)
    sound = len(arguments) == 2 and all(
        isinstance(type, TensorType) and compatible_shapes(type.shape, ()) and _alike(type.element_type, element)
        for type in arguments
    )
    if sound and returned(select) == [TensorType((), I1)]:
        return None
    return f"{signature(select)} for {op.operands[0].type}"


def _alike(left: Type, right: Type) -> bool:
    """Return whether element types are equal, or both floating-point."""
    floats = [isinstance(type, ElementType) and type.is_float for type in (left, right)]
    return left is right or all(floats)


SELECT_AND_SCATTER.constraint("C1", "element_type(operand) = element_type(source)")(
    lambda op: (
        None
        if _alike(op.operands[0].tensor.element_type, op.operands[1].tensor.element_type)
        else listed(map(element_of, op.operand_types[:2]))
    )
)
SELECT_AND_SCATTER.constraint("C1", "element_type(operand) = element_type(source)", customary=True)(
    lambda op: equal_elements(*op.operand_types[:2])
)
check_reducer(
    SELECT_AND_SCATTER,
    "C10",
    lambda op: [TensorType((), op.operands[0].tensor.element_type)],
    initial=("C3", "init values have the element type of the operand", lambda op: [op.operands[2].type]),
    region=1,
)
check_window(SELECT_AND_SCATTER, [("C4", "C5", "window_dimensions"), ("C6", "C7", "window_strides")], "C8")
SELECT_AND_SCATTER.constraint("C9", "select must take two of element_type(operand)", customary=True)(
    lambda op: equal_elements(op.operands[0].type, *parameters(op.regions[0]))
)


@SELECT_AND_SCATTER.constraint("C2", "shape(source) = num_windows")
def _(op: Op) -> str | None:
    operand, source = op.operands[0].tensor, op.operands[1].tensor
    ones = (1,) * operand.rank
    strides, padding = _filled(op, "window_strides", operand.rank), window_padding(op, operand.rank)
    sizes: Sequence[Dimension] = op["window_dimensions"] or ()
    expected = windows(operand.shape, sizes, strides, padding, ones, ones)
    return None if compatible_shapes(expected, source.shape) else listed(map(shape_text, (source.shape, expected)))


SELECT_AND_SCATTER.infers(
    "C11, C12", "the result must have the operand's shape and the element type that scatter gives"
)(lambda op: accumulated(op.regions[1], [op.operands[0].type]))
