"""A reduction at one point: inputs, combiner, initial values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.analysis.affine import Affine, linear, row_major
from spmd.analysis.constants import constant_array
from spmd.analysis.extrema import Extremum, extremum_of, keeps_first
from spmd.analysis.index_maps import ElementReader, Index, element_type
from spmd.analysis.order import IN_ORDER
from spmd.analysis.reducers import Monoid, identity, monoids_of
from spmd.analysis.scalar.build import compare, is_nan, select
from spmd.analysis.scalar.conversion import converted
from spmd.analysis.scalar.elements import Element, element_constant, encode, register_types
from spmd.analysis.scalar.elementwise import compared, compute
from spmd.analysis.scalar.expression import Expression, parameter
from spmd.compiler.schedule.gemv import indices_of_point, is_matrix_vector, matrix_number, summed_in
from spmd.compiler.schedule.nest import FOLDED, LoopReduction, Store
from spmd.compiler.schedule.sliding import (
    CONVOLUTION,
    accumulator_of,
    convolved_elements,
    is_sliding,
    split_point,
    window_element,
)
from spmd.dialects.make import make_op
from spmd.ir import Block, Op, Value
from spmd.types import ElementType, TensorType

REDUCE = "stablehlo.reduce"


def is_reduction(op: Op) -> bool:
    """Return whether `op`, which is part of a loop nest, reduces points."""
    return op.name == REDUCE or is_sliding(op) or is_matrix_vector(op)


def reduction_of(op: Op, index: Index, reader: ElementReader) -> LoopReduction:
    """Return the reduction `op` at the point `index`."""
    if op.name == CONVOLUTION:
        image, weight = convolved_elements(op, index, reader)
        accumulator = accumulator_of(op)
        assert accumulator is not None
        return _sum_of_products(op, image, weight, split_point(op, index)[1], accumulator)
    if is_matrix_vector(op):
        return _matrix_vector(op, index, reader)
    count = len(op.results)
    values, initial, elements = op.operands[:count], op.operands[count:], _accumulators(op)
    if op.name == REDUCE:
        inputs = [_as(reader.read(value, index), value, e) for value, e in zip(values, elements, strict=True)]
        kept_index = tuple(part for dimension, part in enumerate(index) if dimension not in op["dimensions"])
    else:
        operands = zip(values, initial, elements, strict=True)
        inputs = [window_element(op, value, outside, index, reader, e) for value, outside, e in operands]
        _, kept_index = split_point(op, index)
    return _region_fold(op, inputs, kept_index, reader)


def _accumulators(op: Op) -> list[ElementType]:
    """Return the element types of the accumulators of `op`."""
    monoids = monoids_of(op.regions[0])
    arguments = op.regions[0].block.arguments[: len(op.results)]
    return [monoid.accumulator for monoid in monoids] if monoids is not None else list(map(element_type, arguments))


def _region_fold(op: Op, inputs: Sequence[Element], kept_index: Index, reader: ElementReader) -> LoopReduction:
    """Return the reduction of `inputs` by the region of `op`, stored to its results at index `kept_index`."""
    count = len(op.results)
    block = op.regions[0].block
    monoids, elements = monoids_of(op.regions[0]), _accumulators(op)
    initial = [_as(reader.read(v, ()), v, e) for v, e in zip(op.operands[count:], elements, strict=True)]
    folded, more = _parameters([*elements, *elements], count)
    extremum = extremum_of(op.regions[0]) if monoids is None else None
    later: Sequence[Element] | None = None
    if monoids is not None:
        combined = [_combined(m, x, y) for m, x, y in zip(monoids, folded, more, strict=True)]
        any_order = all(monoid.commutes for monoid in monoids) and IN_ORDER not in op.discardable
        neutral = _identities(monoids, elements) if any_order else None
    elif extremum is not None and IN_ORDER not in op.discardable and keeps_first(op, extremum):
        combined, later = _better_pair(extremum, elements[0], folded, more)
        neutral = _flat(initial)
    else:
        combined = region_results(block, [*folded, *more], lambda value: reader.read(value, ()))
        commutes = extremum is not None and extremum.commutes(elements[0]) and IN_ORDER not in op.discardable
        neutral = _flat(initial) if commutes else None
    stores = _stores(op, kept_index, folded, elements)
    in_order = None if later is None else _flat(later)
    return LoopReduction(_flat(inputs), _flat(initial), _flat(combined), neutral, tuple(stores), in_order)


def _matrix_vector(op: Op, index: Index, reader: ElementReader) -> LoopReduction:
    in_vector, in_result = indices_of_point(op, index)
    places = (index, in_vector) if matrix_number(op) == 0 else (in_vector, index)
    accumulator = summed_in(op)
    assert accumulator is not None
    factors = [_as(reader.read(v, place), v, accumulator) for v, place in zip(op.operands, places, strict=True)]
    return _sum_of_products(op, factors[0], factors[1], in_result, accumulator)


def _sum_of_products(
    op: Op, left: Element, right: Element, kept_index: Index, accumulator: ElementType
) -> LoopReduction:
    """Return a sum of products; products and sums are rounded separately."""
    zero = element_constant(0, accumulator)
    (left_factor,), (right_factor,) = left, right
    folded, more = _parameters([accumulator, accumulator], 1)
    (total,), (product,) = *folded, *more
    stores = tuple(_stores(op, kept_index, folded, [accumulator]))
    return LoopReduction((left_factor * right_factor,), zero, (total + product,), zero, stores)


def _better_pair(
    extremum: Extremum, element: ElementType, left: Sequence[Element], right: Sequence[Element]
) -> tuple[list[Element], list[Element]]:
    """Return the better of two (value, index) pairs: NaN first, then the better value, then the lower index; and the
    same if the first index is known to be lower.
    """
    ((x,), (i,)), ((y,), (j,)) = left, right
    directions = ("GT", "GE") if extremum.kind == "maximum" else ("LT", "LE")
    if element.is_float:
        beats = compare(f"u{directions[0].lower()}", x, y) & compare("ord", y, y)
        holds = compare(f"o{directions[1].lower()}", x, y) | is_nan(x)
    else:
        beats, holds = (compared(direction, None, element, (x,), (y,)) for direction in directions)
    first = beats | (holds & compare("ult", i, j))
    return [(select(first, x, y),), (select(first, i, j),)], [(select(holds, x, y),), (select(holds, i, j),)]


def _as(element: Element, value: Value, target: ElementType) -> Element:
    return converted(element, element_type(value), target)


def _flat(elements: Sequence[Element]) -> tuple[Expression, ...]:
    return tuple(part for element in elements for part in element)


def _parameters(elements: Sequence[ElementType], count: int) -> tuple[list[Element], list[Element]]:
    """Return the accumulators and the values combined with them, as parameters."""
    parameters: list[Element] = []
    number = FOLDED
    for element in elements:
        types = register_types(element)
        parameters.append(tuple(parameter(number + part, type) for part, type in enumerate(types)))
        number += len(types)
    return parameters[:count], parameters[count:]


def _combined(monoid: Monoid, x: Element, y: Element) -> Element:
    scalar = TensorType((), monoid.accumulator)
    results = compute(make_op(monoid.op, [Value(scalar), Value(scalar)], [scalar]), [x, y])
    assert results is not None, f"{monoid.op} of {scalar} has no scalar form"
    return results[0]


def _identities(monoids: Sequence[Monoid], elements: Sequence[ElementType]) -> tuple[Expression, ...] | None:
    initial_values = [identity(monoid.kind, element) for monoid, element in zip(monoids, elements, strict=True)]
    if any(array is None for array in initial_values):
        return None
    return _flat([element_constant(array, element) for array, element in zip(initial_values, elements, strict=True)])


def _stores(op: Op, kept_index: Index, folded: Sequence[Element], elements: Sequence[ElementType]) -> list[Store]:
    stores = []
    for value, element, type in zip(op.results, folded, elements, strict=True):
        target = element_type(value)
        codes = encode(converted(element, type, target), target)
        address: Affine = linear(kept_index, row_major(value.tensor.static_shape)).scaled(len(codes))
        stores += [Store(value, address.shifted(part), code) for part, code in enumerate(codes)]
    return stores


def region_results(block: Block, arguments: Sequence[Element], read: Callable[[Value], Element]) -> list[Element]:
    """Return the results of a region of scalar ops on `arguments`; `read` gives captured values."""
    values: dict[Value, Element] = dict(zip(block.arguments, arguments, strict=True))

    def element(value: Value) -> Element:
        known = values.get(value)
        if known is None:
            known = values[value] = read(value)
        return known

    for op in block.ops[:-1]:
        if constant_array(op) is not None:
            continue  # folded into its users
        results = compute(op, [element(operand) for operand in op.operands])
        assert results is not None, f"{op.name} has no scalar form"
        values.update(zip(op.results, results, strict=True))
    return [element(value) for value in block.terminator.operands]
