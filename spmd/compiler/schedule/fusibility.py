"""Properties of ops that decide fusion: whether an op can be part of a loop nest, over which points, and its cost."""

from __future__ import annotations

from functools import cache
from math import prod

from spmd.analysis.constants import CONSTANT, constant_array
from spmd.analysis.index_maps import INDEX_MAPS, element_type, is_outer_product
from spmd.analysis.reducers import returned_argument
from spmd.analysis.scalar.elements import register_types
from spmd.analysis.scalar.elementwise import compute, has_scalar_form
from spmd.analysis.scalar.expression import Primitive, parameter, walk
from spmd.analysis.scalar.functions.table import DEFINITIONS
from spmd.compiler.schedule.gemv import is_matrix_vector, matrix_shape
from spmd.compiler.schedule.reductions import REDUCE, is_reduction
from spmd.compiler.schedule.sliding import (
    CONVOLUTION,
    REDUCE_WINDOW,
    is_grouped_sum,
    is_sliding,
    is_small_window,
    sliding_shape,
)
from spmd.compiler.schedule.updates import UPDATE_SLICE, is_update, update_shape, updated
from spmd.dialects.scatters import SCATTER
from spmd.ir import Block, Op, Value
from spmd.types import ElementType, TensorType, Type

CONCATENATE = "stablehlo.concatenate"
#: Cost of index maps that select one of several operands or mask at each point.
_CHOOSING = {
    CONCATENATE: 4,
    "stablehlo.pad": 2,
    "stablehlo.gather": 4,
    "stablehlo.dynamic_slice": 1,
    "stablehlo.dot_general": 1,
}
_COSTS = {
    Primitive.DIV: 4,
    Primitive.SQRT: 4,
    Primitive.REM: 16,
    Primitive.SDIV: 8,
    Primitive.UDIV: 8,
    Primitive.SREM: 8,
    Primitive.UREM: 8,
    Primitive.CONSTANT: 0,
    Primitive.PARAMETER: 0,
}
_FUNCTION_COST = 16
#: Elements of a stack's last dimension: of any operands, and if each has one; least number of stacks.
_FEW, _FEW_ARRAYS, _LEAST_STACKED = 4, 8, 64
#: Most nodes of the scalar form of an op in a nest.
_LARGEST_FORM = 400


def is_split_concatenate(op: Op) -> bool:
    """Return whether `op` is a concatenate that is written by one nest per operand.

    Operands stacked along the last dimension are not: their runs of memory are too short.
    """
    if op.name != CONCATENATE:
        return False
    *others, last = op.result.tensor.static_shape
    sizes = [value.tensor.static_shape[-1] for value in op.operands]
    is_stack = op["dimension"] == len(others) and (last <= _FEW or (last <= _FEW_ARRAYS and max(sizes) == 1))
    return not is_stack or prod(others) < _LEAST_STACKED


def is_movement(op: Op) -> bool:
    """Return whether `op` is an index map: it only moves elements."""
    return op.name in INDEX_MAPS


def is_plain(type: Type) -> bool:
    """Return whether values of `type` are dense arrays of machine values: tensors of static shape, not quantized."""
    return isinstance(type, TensorType) and type.is_static and _has_registers(type.element_type)


@cache
def _has_registers(element: object) -> bool:
    if not isinstance(element, ElementType):
        return False
    try:
        register_types(element)
    except TypeError:
        return False
    return True


def is_fusible(op: Op) -> bool:
    """Return whether `op` can be part of a loop nest."""
    if constant_array(op) is not None:
        return is_plain(op.results[0].type)
    if not all(is_plain(value.type) for value in (*op.operands, *op.results)):
        return False
    if op.name == "stablehlo.dot_general":
        return is_outer_product(op) or is_matrix_vector(op)
    if op.name == SCATTER:
        return _is_plain_scatter(op)
    if op.name in INDEX_MAPS or op.name == UPDATE_SLICE:
        return True
    if op.name == CONVOLUTION:
        return is_grouped_sum(op)
    if op.name == REDUCE or (op.name == REDUCE_WINDOW and is_small_window(op)):
        return _is_scalar_region(op.regions[0].block)
    return not op.regions and has_scalar_form(op.name) and _form_cost(op) is not None


def _is_plain_scatter(op: Op) -> bool:
    """Return whether result types equal operand types, and the region computes in them without double rounding.

    A scatter into an empty operand is not plain.
    """
    count = updated(op)
    if not all(op.operands[0].tensor.static_shape):
        return False
    block = op.regions[0].block
    elements = [element_type(argument) for argument in block.arguments[:count]]
    for operand, result, element in zip(op.operands, op.results, elements, strict=False):
        if operand.type is not result.type or element is not element_type(result):
            return False
        if element.is_float and element.bits < 32 and returned_argument(op.regions[0]) is None:
            return False
    return _is_scalar_region(block)


def _is_scalar_region(block: Block) -> bool:
    """Return whether a region computes scalars from scalars, by ops that have a scalar form."""
    for op in block.ops[:-1]:
        if constant_array(op) is not None and is_plain(op.results[0].type):
            continue
        if op.regions or not all(is_plain(v.type) and not v.tensor.rank for v in (*op.operands, *op.results)):
            return False
        if not has_scalar_form(op.name) or _form_cost(op) is None:
            return False
    return True


def cost_of(op: Op) -> int:
    """Return the approximate machine operations per element of the result."""
    if op.name in INDEX_MAPS:
        return _CHOOSING.get(op.name, 0)
    if op.name == CONSTANT or is_reduction(op) or is_update(op):
        return 0
    return _form_cost(op) or 0


_FORM_COSTS: dict[object, int | None] = {}


def _form_cost(op: Op) -> int | None:
    """Return the cost of the scalar form of `op`; None if it has none."""
    elements = tuple(value.tensor.element_type for value in (*op.operands, *op.results))
    try:
        key = (op.name, elements, tuple(op.attributes.items()))
        if key in _FORM_COSTS:
            return _FORM_COSTS[key]
    except TypeError:  # an unhashable attribute
        key = None
    cost = _cost(op)
    if key is not None:
        _FORM_COSTS[key] = cost
    return cost


def _cost(op: Op) -> int | None:
    number = 0
    operands = []
    for value in op.operands:
        types = register_types(element_type(value))
        operands.append(tuple(parameter(number + part, type) for part, type in enumerate(types)))
        number += len(types)
    results = compute(op, operands)
    if results is None:
        return None
    nodes = walk([part for element in results for part in element])
    if len(nodes) > _LARGEST_FORM or any(n.primitive.is_function and n.primitive not in DEFINITIONS for n in nodes):
        return None
    return sum(primitive_cost(node.primitive) for node in nodes)


def primitive_cost(primitive: Primitive) -> int:
    """Return the relative cost of a primitive (addition = 1)."""
    return _FUNCTION_COST if primitive.is_function else _COSTS.get(primitive, 1)


def iteration_shape(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the iteration space of `op`, and which of its dimensions are reduced."""
    if is_update(op):
        return update_shape(op), ()
    if op.name == REDUCE:
        return op.operands[0].tensor.static_shape, tuple(sorted(op["dimensions"]))
    if is_sliding(op):
        return sliding_shape(op)
    if is_matrix_vector(op):
        return matrix_shape(op)
    value: Value = op.results[0]
    return value.tensor.static_shape, ()
