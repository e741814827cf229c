"""Index maps: from an element of an op's result to the operand elements that it is.

Each op that moves elements has a rule that maps a result index (one affine form per dimension) to an operand index
and reads the operand there; the reader decides whether that is a load from memory or another op's rule. Source:
StableHLO specification, the "Semantics" of each op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from spmd.analysis.affine import Affine, dilated, divided, linear, row_major
from spmd.analysis.scalar import build
from spmd.analysis.scalar.conversion import converted
from spmd.analysis.scalar.elements import Element, element_constant
from spmd.analysis.scalar.elementwise import compute
from spmd.analysis.scalar.expression import I64, Expression, constant, constant_value, is_constant
from spmd.dialects.make import make_op
from spmd.dialects.shapes import common_groups
from spmd.ir import Op, Value
from spmd.support.registry import filed
from spmd.types import I64 as SI64
from spmd.types import ElementType, TensorType, storage_range

Index = tuple[Affine, ...]


class ElementReader(Protocol):
    """What rules need to read operands."""

    @property
    def extents(self) -> Sequence[int]:
        """The extent of each loop variable."""

    def read(self, value: Value, index: Index) -> Element:
        """Return the element of `value` at `index`."""

    def under(self, condition: Expression) -> AbstractContextManager[None]:
        """Return a context in which elements are read only if `condition` holds; otherwise they are undefined."""

    def position(self, form: Affine) -> Expression:
        """Return the run-time value of `form`, an i64."""


def element_type(value: Value) -> ElementType:
    """Return the element type of a tensor, which must not be quantized."""
    type = value.tensor.element_type
    assert isinstance(type, ElementType)
    return type


Rule = Callable[[Op, Index, ElementReader], Element]

#: The index map of each op that moves elements.
INDEX_MAPS: dict[str, Rule] = {}


def index_map(*names: str) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a rule for the ops named."""
    return filed(INDEX_MAPS, names, "index map")


@index_map("stablehlo.broadcast_in_dim")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    (operand,) = op.operands
    dimensions = op["broadcast_dimensions"]
    shape = operand.tensor.static_shape
    return reader.read(
        operand, tuple(Affine() if size == 1 else index[d] for size, d in zip(shape, dimensions, strict=True))
    )


@index_map("stablehlo.broadcast")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    return reader.read(op.operands[0], index[len(op["broadcast_sizes"]) :])


@index_map("stablehlo.transpose")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    permutation = op["permutation"]
    source = [Affine()] * len(index)
    for position, dimension in enumerate(permutation):
        source[dimension] = index[position]
    return reader.read(op.operands[0], tuple(source))


@index_map("stablehlo.slice")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    parts = zip(index, op["start_indices"], op["strides"], strict=True)
    return reader.read(op.operands[0], tuple(part.scaled(stride).shifted(start) for part, start, stride in parts))


@index_map("stablehlo.reverse")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    (operand,) = op.operands
    source = list(index)
    for dimension in op["dimensions"]:
        source[dimension] = index[dimension].scaled(-1).shifted(operand.tensor.static_shape[dimension] - 1)
    return reader.read(operand, tuple(source))


@index_map("stablehlo.reshape")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    (operand,) = op.operands
    return reader.read(operand, reshaped(index, op.result.tensor.static_shape, operand.tensor.static_shape, reader))


def reshaped(index: Index, result: Sequence[int], operand: Sequence[int], reader: ElementReader) -> Index:
    """Return the index, in a dense array of shape `operand`, of the element at `index` of its reshape to `result`.

    Dimensions are linearized only where they must be. Raises affine.Split if a loop has to be split first.
    """
    source: list[Affine] = []
    for theirs, ours in common_groups(result, operand):
        offset = linear([index[d] for d in theirs], row_major([result[d] for d in theirs]))
        source += _unravelled(offset, [operand[d] for d in ours], reader)
    return tuple(source)


def _unravelled(offset: Affine, sizes: Sequence[int], reader: ElementReader) -> list[Affine]:
    """Return the index of the element at offset `offset` of a dense array of `sizes`."""
    outermost = next((dimension for dimension, size in enumerate(sizes) if size != 1), None)
    if outermost is None:
        return [Affine()] * len(sizes)
    index: list[Affine] = []
    for size in reversed(sizes[outermost + 1 :]):
        if size == 1:
            index.append(Affine())
            continue
        parts = divided(offset, size, dict(enumerate(reader.extents)))
        if parts is None:
            number, by = reader.position(offset), constant(size, I64)
            parts = (
                Affine.computed(build.udiv(number, by)),
                Affine.computed(build.urem(number, by)),
            )
        offset, remainder = parts
        index.append(remainder)
    return [*[Affine()] * outermost, offset, *reversed(index)]


# --- bounds checks ---------------------------------------------------------------------------------------------------


def at_least(form: Affine, least: int, reader: ElementReader) -> Expression | None:
    """Return the condition `form >= least`; None if it always holds."""
    bounds = form.bounds(reader.extents)
    if bounds is not None and bounds[0] >= least:
        return None
    return build.compare("sge", reader.position(form), least)


def below(form: Affine, limit: int, reader: ElementReader) -> Expression | None:
    """Return the condition `form < limit`; None if it always holds."""
    bounds = form.bounds(reader.extents)
    if bounds is not None and bounds[1] < limit:
        return None
    return build.compare("slt", reader.position(form), limit)


def all_of(conditions: Sequence[Expression | None]) -> Expression | None:
    """Return the conjunction of conditions; None if all of them always hold."""
    expression: Expression | None = None
    for condition in conditions:
        if condition is not None:
            expression = condition if expression is None else expression & condition
    return expression


def choose(condition: Expression, taken: Element, otherwise: Element) -> Element:
    """Return `taken` if `condition` holds, else `otherwise`."""
    return tuple(build.select(condition, one, other) for one, other in zip(taken, otherwise, strict=True))


@index_map("stablehlo.pad")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    operand, padding = op.operands
    return padded(operand, index, op["edge_padding_low"], op["interior_padding"], padding, reader)


def padded(
    operand: Value,
    index: Index,
    low: Sequence[int],
    interior: Sequence[int],
    padding: Value,
    reader: ElementReader,
    target: ElementType | None = None,
) -> Element:
    """Return the element at `index` of `operand` with `low` padding before it and `interior` padding between elements.

    `target` is the element type that operand and padding are converted to, if given.
    """

    def read(value: Value, source: Index) -> Element:
        element = reader.read(value, source)
        return element if target is None else converted(element, element_type(value), target)

    source, inside = dilated_index(operand, index, low, interior, reader)
    if inside is None:
        return read(operand, source)
    outside = read(padding, ())
    if not all(operand.tensor.static_shape):
        return outside
    with reader.under(inside):
        element = read(operand, source)
    return choose(inside, element, outside)


def dilated_index(
    operand: Value, index: Index, low: Sequence[int], interior: Sequence[int], reader: ElementReader
) -> tuple[Index, Expression | None]:
    """Return the index in `operand` of the element at `index` of it padded, and the condition that it is no padding.

    The condition is None if it always holds.
    """
    source: list[Affine] = []
    conditions: list[Expression | None] = []
    for part, before, between, size in zip(index, low, interior, operand.tensor.static_shape, strict=True):
        form, step = part.shifted(-before), between + 1
        multiples = dilated(form, step, dict(enumerate(reader.extents)))
        if multiples is None:
            conditions.append(at_least(form, 0, reader))
            number, by = reader.position(form), constant(step, I64)
            conditions.append(build.compare("eq", build.urem(number, by), 0))
            form = Affine.computed(build.udiv(number, by))
        else:
            form, iteration = multiples
            if iteration is not None:
                variable, only = iteration
                conditions.append(build.compare("eq", reader.position(Affine.of(variable)), only))
            conditions.append(at_least(form, 0, reader))
        conditions.append(below(form, size, reader))
        source.append(form)
    return tuple(source), all_of(conditions)


@index_map("stablehlo.concatenate")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    dimension = op["dimension"]
    position = index[dimension]
    bounds = position.bounds(reader.extents)
    chosen: Element | None = None
    end = op.result.tensor.static_shape[dimension]
    # From the last to the first: each operand is selected where the index is below its end.
    for operand in reversed(op.operands):
        size = operand.tensor.static_shape[dimension]
        start = end - size
        here = size > 0 and (bounds is None or (bounds[0] < end and bounds[1] >= start))
        end = start
        if not here:
            continue
        inside = all_of([at_least(position, start, reader), below(position, start + size, reader)])
        source = (*index[:dimension], position.shifted(-start), *index[dimension + 1 :])
        if inside is None:
            return reader.read(operand, source)
        with reader.under(inside):
            element = reader.read(operand, source)
        before_end = below(position, start + size, reader)
        chosen = element if chosen is None or before_end is None else choose(before_end, element, chosen)
    # No operand covers the index, which is in padding whose value is never used.
    return element_constant(0, element_type(op.result)) if chosen is None else chosen


# --- run-time indices ------------------------------------------------------------------------------------------------


@index_map("stablehlo.iota")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    position = reader.position(index[op["iota_dimension"]])
    return converted((position,), SI64, element_type(op.result))


def clamped(start: Value, index: Index, most: int, reader: ElementReader) -> Affine:
    """Return the start index, an operand of a dynamic op, clamped to [0, `most`]."""
    element = element_type(start)
    (number,) = reader.read(start, index)
    if is_constant(number) and not element.is_unsigned:
        return Affine(min(max(int(constant_value(number)), 0), most))
    # Clamp in its own type: a vector holds more elements of a type that is narrower than an address.
    largest = constant(min(most, storage_range(element)[1]), number.type)
    if element.is_unsigned:
        number = build.umin(number, largest)
    else:
        number = build.smin(build.smax(number, constant(0, number.type)), largest)
    return Affine.computed(converted((number,), element, SI64)[0])


@index_map("stablehlo.dynamic_slice")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    operand, *starts = op.operands
    source = []
    for part, start, whole, size in zip(index, starts, operand.tensor.static_shape, op["slice_sizes"], strict=True):
        source.append(part if whole == size else clamped(start, (), whole - size, reader) + part)
    return reader.read(operand, tuple(source))


def component_index(component: int, batch: Sequence[Affine], vector: int, indices: Value) -> Index:
    """Return the index in `indices` of component `component` of a slice's start; `vector` is the index_vector_dim."""
    index = list(batch)
    if vector < indices.tensor.rank:
        index.insert(vector, Affine(component))
    return tuple(index)


def batch_coordinate(dimension: int, batch: Sequence[Affine], vector: int) -> Affine:
    """Return the coordinate along dimension `dimension` of the indices; `batch` skips the index_vector_dim `vector`."""
    return batch[dimension if dimension < vector else dimension - 1]


@index_map("stablehlo.gather")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    operand, indices = op.operands
    numbers, sizes = op["dimension_numbers"], op["slice_sizes"]
    shape = operand.tensor.static_shape
    batch = [part for d, part in enumerate(index) if d not in numbers.offset_dims]
    offsets = iter([index[d] for d in numbers.offset_dims])
    vector = numbers.index_vector_dim
    unindexed = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    source = []
    for dimension, (whole, size) in enumerate(zip(shape, sizes, strict=True)):
        form = Affine() if dimension in unindexed else next(offsets)
        if dimension in numbers.start_index_map:
            component = component_index(numbers.start_index_map.index(dimension), batch, vector, indices)
            if whole != size:
                form += clamped(indices, component, whole - size, reader)
        if dimension in numbers.operand_batching_dims:
            position = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(dimension)]
            form += batch_coordinate(position, batch, vector)
        source.append(form)
    return reader.read(operand, tuple(source))


# --- outer products --------------------------------------------------------------------------------------------------


def is_outer_product(op: Op) -> bool:
    """Return whether `op`, a dot_general, sums over dimensions of size 1 only."""
    shape = op.operands[0].tensor.static_shape
    return op["algorithm"] is None and all(
        shape[dimension] == 1 for dimension in op["dot_dimension_numbers"].lhs_contracting_dimensions
    )


@index_map("stablehlo.dot_general")
def _(op: Op, index: Index, reader: ElementReader) -> Element:
    numbers = op["dot_dimension_numbers"]
    batching = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)
    contracting = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)
    free = len(batching[0])
    element = element_type(op.result)
    factors = []
    for operand, batch, contracted in zip(op.operands, batching, contracting, strict=True):
        source = []
        for dimension in range(operand.tensor.rank):
            if dimension in batch:
                source.append(index[batch.index(dimension)])
            elif dimension in contracted:
                source.append(Affine())
            else:
                source.append(index[free])
                free += 1
        factors.append(converted(reader.read(operand, tuple(source)), element_type(operand), element))
    scalar = TensorType((), element)
    results = compute(make_op("stablehlo.multiply", [Value(scalar), Value(scalar)], [scalar]), factors)
    assert results is not None, f"multiply of {scalar} has no scalar form"
    return results[0]
