"""Calls of functions that the implementation provides. Source: StableHLO specification, custom_call, "Alias"."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.dialects import kinds, type_sets
from spmd.dialects.checks import (
    compatible_shapes,
    compatible_types,
    dims,
    element_of,
    listed,
    shape_of,
)
from spmd.dialects.core import Trait, attribute, define, operand, result
from spmd.dialects.forms import TYPED
from spmd.dialects.structs import OutputOperandAliasAttr
from spmd.ir import Op
from spmd.ir.attributes import DictAttr, TypeAttr
from spmd.support.arrays import Array
from spmd.types import BufferType, TensorType, TupleType, Type, UnrankedTensorType

#: The counterpart of XLA's rng-get-and-update-state: returns the 128-bit state before the update, as low and high ui64.
RNG_STATE = "spmd.rng_get_and_update_state"

#: Holds the type of the complete result if its leaves do not determine it: a tuple of one, or of tuples.
RESULT_TYPE = "spmd.result_type"
#: Holds the configuration of a typed call that HLO text gives as a string, not as a dictionary.
TYPED_TEXT = "spmd.typed_text"

_LAYOUT = kinds.INDEX_DENSE

CUSTOM_CALL = define(
    "stablehlo.custom_call",
    operands=[operand("inputs", type_sets.CUSTOM_CALL_VALUE, variadic=True)],
    attributes=[
        attribute("call_target_name", kinds.STRING),
        attribute("has_side_effect", kinds.BOOL, default=False),
        attribute("backend_config", kinds.either(kinds.STRING, kinds.DICTIONARY), optional=True),
        attribute("api_version", kinds.I32, default=1),
        attribute("called_computations", kinds.array_of(kinds.SYMBOL), default=()),
        attribute("operand_layouts", kinds.array_of(_LAYOUT), optional=True),
        attribute("result_layouts", kinds.array_of(_LAYOUT), optional=True),
        attribute("output_operand_aliases", kinds.array_of(kinds.struct(OutputOperandAliasAttr)), default=()),
        attribute("result_tilings", kinds.array_of(kinds.array_of(_LAYOUT)), optional=True),
    ],
    results=[result("results", type_sets.CUSTOM_CALL_VALUE, variadic=True)],
    assembly="custom<CustomCallTarget>($call_target_name) `(` $inputs `)` " + TYPED,
    traits=[Trait.READS_CONTEXT],
)


def output_type(op: Op) -> Type:
    """Return the type of a custom call's complete result: that of its only result, or a tuple of all, its leaves."""
    declared = op.discardable.get(RESULT_TYPE)
    if isinstance(declared, TypeAttr):
        return declared.type
    return op.result.type if len(op.results) == 1 else TupleType(tuple(op.result_types))


_TYPED_FFI = 4


@CUSTOM_CALL.constraint("", "api_version must be from 0 to 4")
def _(op: Op) -> str | None:
    return None if 0 <= op["api_version"] <= _TYPED_FFI else str(op["api_version"])


@CUSTOM_CALL.constraint("", "operand_layouts and result_layouts must be given together")
def _(op: Op) -> str | None:
    present = [name for name in ("operand_layouts", "result_layouts") if op[name] is not None]
    return present[0] if len(present) == 1 else None


def _layout_fault(types: Sequence[Type], layouts: Sequence[Array]) -> str | None:
    if len(types) != len(layouts):
        return f"{len(layouts)} layouts for {len(types)} values"
    for type, layout in zip(types, layouts, strict=True):
        if layout.ndim != 1:
            return f"a layout of shape {dims(layout.shape)}, not a list"
        order = layout.tolist()
        shape = shape_of(type)
        if isinstance(type, UnrankedTensorType):
            continue
        if isinstance(type, TupleType) or sorted(order) != list(range(len(shape or ()))):
            return f"{dims(order)} for {type}"
    return None


@CUSTOM_CALL.constraint("", "layouts must be permutations of the dimensions of their values, one for each value")
def _(op: Op) -> str | None:
    if op["operand_layouts"] is None or op["result_layouts"] is None:
        return None
    return _layout_fault(op.operand_types, op["operand_layouts"])


def _output_type(op: Op) -> Type:
    """Return the type that output_tuple_indices index: of the only result, or a tuple of all."""
    return op.results[0].type if len(op.results) == 1 else TupleType(tuple(op.result_types))


@CUSTOM_CALL.constraint(
    "", "layouts must be permutations of the dimensions of their values, one for each value", on_results=True
)
def _(op: Op) -> str | None:
    if op["operand_layouts"] is None or op["result_layouts"] is None:
        return None
    whole = _output_type(op)
    return _layout_fault(whole.types if isinstance(whole, TupleType) else op.result_types, op["result_layouts"])


def _part(type: Type, indices: Sequence[int]) -> Type | None:
    """Return the type of the leaf at `indices`, or None."""
    for index in indices:
        if not isinstance(type, TupleType) or not 0 <= index < len(type.types):
            return None
        type = type.types[index]
    return type


@CUSTOM_CALL.constraint(
    "", "an output_operand_alias names parts of an operand and of the output that have one type", on_results=True
)
def _(op: Op) -> str | None:
    aliases: tuple[OutputOperandAliasAttr, ...] = op["output_operand_aliases"]
    for alias in aliases:
        if not 0 <= alias.operand_index < len(op.operands):
            return f"operand {alias.operand_index} of {len(op.operands)}"
        source = _part(op.operands[alias.operand_index].type, alias.operand_tuple_indices)
        target = _part(_output_type(op), alias.output_tuple_indices)
        if source is None or target is None or not compatible_types(source, target):
            return f"{source or dims(alias.operand_tuple_indices)} and {target or dims(alias.output_tuple_indices)}"
    return None


@CUSTOM_CALL.constraint("", "backend_config must be a dictionary for API_VERSION_TYPED_FFI and a string for the others")
def _(op: Op) -> str | None:
    config = op["backend_config"]
    typed = op["api_version"] == _TYPED_FFI
    sound = config is None or isinstance(config, DictAttr) == typed
    return None if sound else f"{'a string' if typed else 'a dictionary'} for version {op['api_version']}"


def _conversion_fault(op: Op, source: type[Type], target: type[Type]) -> str | None:
    """Check for one operand of class `source` and one result of class `target` with the same shape and element type."""
    types = [*op.operand_types, *op.result_types]
    if len(op.operands) == 1 and len(op.results) == 1 and isinstance(types[0], source) and isinstance(types[1], target):
        shapes = [shape_of(type) or () for type in types]
        if compatible_shapes(*shapes) and element_of(types[0]) is element_of(types[1]):
            return None
    return f"({listed(op.operand_types)}) -> ({listed(op.result_types)})"


@CUSTOM_CALL.constraint("", "CreateBuffer must take no operands and return a buffer", on_results=True)
def _(op: Op) -> str | None:
    if op["call_target_name"] != "CreateBuffer":
        return None
    sound = not op.operands and len(op.results) == 1 and isinstance(op.results[0].type, BufferType)
    return None if sound else f"({listed(op.operand_types)}) -> ({listed(op.result_types)})"


@CUSTOM_CALL.constraint("", "Pin must convert a tensor to a buffer, Unpin a buffer to a tensor", on_results=True)
def _(op: Op) -> str | None:
    if op["call_target_name"] == "Pin":
        return _conversion_fault(op, TensorType, BufferType)
    return _conversion_fault(op, BufferType, TensorType) if op["call_target_name"] == "Unpin" else None


def _buffers(type: Type, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Return the paths of buffers in a type."""
    if isinstance(type, TupleType):
        return [buffer for index, inner in enumerate(type.types) for buffer in _buffers(inner, (*path, index))]
    return [path] if isinstance(type, BufferType) else []


@CUSTOM_CALL.constraint(
    "", "each buffer is in one output_operand_alias at most, and each buffer of the results in one", on_results=True
)
def _(op: Op) -> str | None:
    if op["call_target_name"] in ("CreateBuffer", "Pin", "Unpin"):
        return None
    aliases: tuple[OutputOperandAliasAttr, ...] = op["output_operand_aliases"]
    outputs: list[tuple[int, ...]] = []
    inputs: list[tuple[int, tuple[int, ...]]] = []
    for alias in aliases:
        if isinstance(_part(op.operands[alias.operand_index].type, alias.operand_tuple_indices), BufferType):
            outputs.append(alias.output_tuple_indices)
            inputs.append((alias.operand_index, alias.operand_tuple_indices))
    for output in outputs:
        if outputs.count(output) > 1:
            return f"output {dims(output)} {outputs.count(output)} times"
    for index, path in inputs:
        if inputs.count((index, path)) > 1:
            return f"operand {index} {dims(path)} {inputs.count((index, path))} times"
    missing = [path for path in _buffers(_output_type(op)) if path not in outputs]
    return f"no alias of output {dims(missing[0])}" if missing else None
