"""Updates: `dynamic_update_slice` and `scatter`.

The result reuses the operand's memory, or a copy of it; the nest iterates over the updates and stores them at their
indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from spmd.analysis.affine import Affine, linear, row_major
from spmd.analysis.index_maps import (
    Index,
    all_of,
    at_least,
    batch_coordinate,
    below,
    clamped,
    component_index,
    element_type,
)
from spmd.analysis.scalar import build
from spmd.analysis.scalar.conversion import converted
from spmd.analysis.scalar.elements import Element, decode, encode, memory_types
from spmd.analysis.scalar.expression import Expression, constant, parameter
from spmd.compiler.schedule.nest import FOLDED, Nest, Stage, Update
from spmd.compiler.schedule.points import PointReader, iterate, stored
from spmd.compiler.schedule.reductions import is_reduction, region_results
from spmd.dialects.scatters import SCATTER, drops_whole_windows, update_order
from spmd.ir import Op, Value
from spmd.types import I64, ElementType

UPDATE_SLICE = "stablehlo.dynamic_update_slice"
#: Bits of indices that may overflow index arithmetic.
_LONGEST = 64


def is_update(op: Op) -> bool:
    """Return whether the results of `op` are its first operands with some elements updated."""
    return op.name in (UPDATE_SLICE, SCATTER)


def updated(op: Op) -> int:
    """Return the number of updated operands."""
    return len(op.results)


def update_shape(op: Op) -> tuple[int, ...]:
    """Return the iteration space of an update: the shape of its updates."""
    value = op.operands[1] if op.name == UPDATE_SLICE else op.operands[-1]
    return value.tensor.static_shape


def reads_itself(op: Op, is_fusible: Callable[[Op], bool], most: int) -> bool:
    """Return whether an update of several points depends on its updated operand, through at most `most` fusible ops.

    If fused, it would prevent updating in place and force a copy of the operand.
    """
    if prod(update_shape(op)) == 1:
        return False
    written, pending = op.operands[: updated(op)], list(op.operands[updated(op) :])
    known: set[Value] = set()
    while pending and len(known) <= most:
        value = pending.pop()
        if value in written:
            return True
        maker = value.defining_op
        if value in known or maker is None or not is_fusible(maker) or is_reduction(maker) or is_update(maker):
            continue
        known.add(value)
        pending += maker.operands
    return False


def update_nest(op: Op, inlined: Callable[[Op], bool]) -> Nest:
    """Return the nest that stores the updates of `op` to its results."""

    def nest_at(extents: list[int], index: Index) -> Nest:
        user = PointReader(extents, inlined)
        if op.name == UPDATE_SLICE:
            return _slice_update(op, extents, index, user)
        return _scatter(op, extents, index, user)

    shape = update_shape(op)
    order = range(len(shape)) if op.name == UPDATE_SLICE else update_order(op)
    places = [order.index(dimension) for dimension in range(len(shape))]
    in_order = [shape[dimension] for dimension in order]
    return iterate(in_order, lambda extents, index: nest_at(extents, tuple(index[place] for place in places)))


def _slice_update(op: Op, extents: list[int], index: Index, user: PointReader) -> Nest:
    operand, update, *starts = op.operands
    places = []
    for part, start, whole, size in zip(
        index, starts, operand.tensor.static_shape, update.tensor.static_shape, strict=True
    ):
        places.append(part if whole == size else clamped(start, (), whole - size, user) + part)
    stores = tuple(stored(op.result, tuple(places), user.read(update, index)))
    stage = Stage(tuple(user.leaves), tuple(range(len(extents))), (), stores)
    return Nest(tuple(extents), (stage,))


def _scatter(op: Op, extents: list[int], index: Index, user: PointReader) -> Nest:
    """Return the nest that combines updates with the results at their indices, where these are in bounds."""
    count, whole = len(op.results), drops_whole_windows(op)
    numbers = op["scatter_dimension_numbers"]
    indices = op.operands[count]
    windows = set(numbers.update_window_dims)
    batch = [part for dimension, part in enumerate(index) if dimension not in windows]
    offsets = iter([index[dimension] for dimension in sorted(windows)])
    absent = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    vector = numbers.index_vector_dim
    shape = op.operands[0].tensor.static_shape
    place: list[Affine] = []
    conditions: list[Expression | None] = []
    for dimension, size in enumerate(shape):
        form = Affine() if dimension in absent else next(offsets)
        if dimension in numbers.scatter_dims_to_operand_dims:
            at = component_index(numbers.scatter_dims_to_operand_dims.index(dimension), batch, vector, indices)
            window = 1 if dimension in absent else form_extent(form, extents)
            start = Affine.computed(_start(user.read(indices, at), element_type(indices), window, size))
            if whole:
                conditions += [at_least(start, 0, user), below(start, size - window + 1, user)]
            form += start
        if dimension in numbers.input_batching_dims:
            position = numbers.scatter_indices_batching_dims[numbers.input_batching_dims.index(dimension)]
            form += batch_coordinate(position, batch, vector)
        if not whole or dimension not in numbers.scatter_dims_to_operand_dims:
            conditions += [at_least(form, 0, user), below(form, size, user)]
        place.append(form)
    block = op.regions[0].block
    elements = [element_type(argument) for argument in block.arguments]
    new_values = [user.read(value, index) for value in op.operands[count + 1 :]]
    new = [
        converted(g, element_type(v), e)
        for g, v, e in zip(new_values, op.operands[count + 1 :], elements, strict=False)
    ]
    old, codes = _old(elements[:count])
    results = region_results(block, [*old, *new], lambda value: user.read(value, ()))
    stores = []
    for value, element, type in zip(op.results, results, elements, strict=False):
        parts = encode(element, type)
        address = linear(place, row_major(value.tensor.static_shape)).scaled(len(parts))
        stores += [(value, address.shifted(number), part) for number, part in enumerate(parts)]
    update = Update(tuple(stores), codes, all_of(conditions))
    # Indices may repeat: only the elements of one window are distinct.
    independent = {variable for dimension in windows for variable, _ in index[dimension].terms}
    loops = tuple(range(len(extents)))
    stage = Stage(tuple(user.leaves), loops, (), (), (), (update,), frozenset(independent))
    return Nest(tuple(extents), (stage,))


def form_extent(form: Affine, extents: Sequence[int]) -> int:
    """Return how many values `form`, an index within a window, may have."""
    bounds = form.bounds(extents)
    assert bounds is not None, "places in a window are counted by loops"
    return bounds[1] + 1


def _start(index: Element, element: ElementType, window: int, size: int) -> Expression:
    """Return the start of a window as an i64, clamped so that indices relative to it do not overflow.

    All starts below `-window` are alike, and so are those from `size` on: the whole window is out of bounds.
    """
    (number,) = index
    if element.bits == _LONGEST:
        largest = constant(size, number.type)
        if element.is_unsigned:
            number = build.umin(number, largest)
        else:
            number = build.smin(build.smax(number, constant(-window, number.type)), largest)
    return converted((number,), element, I64)[0]


def _old(elements: list[ElementType]) -> tuple[list[tuple[Expression, ...]], tuple[Expression, ...]]:
    """Return the previous contents of the results, as elements and as parameters."""
    parameters: list[Expression] = []
    registers = []
    for element in elements:
        codes = []
        for type in memory_types(element):
            codes.append(parameter(FOLDED + len(parameters), type))
            parameters.append(codes[-1])
        registers.append(decode(tuple(codes), element))
    return registers, tuple(parameters)
