"""Operations with computations as operands, and operations on tokens and order.

Source: XlaBuilder operation semantics, "AfterAll", "Call", "CompositeCall", "Conditional", "CustomCall",
"OptimizationBarrier", "While".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spmd import types as t
from spmd.builder import checks
from spmd.builder.attributes import parse_attribute
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import XlaComputation, leaf_types, region_of
from spmd.builder.errors import ArgumentError
from spmd.builder.operation import operation
from spmd.builder.ops.source import shape_argument
from spmd.builder.shape import Shape
from spmd.builder.xla_op import XlaOp
from spmd.dialects.custom_call import RESULT_TYPE
from spmd.dialects.structs import OutputOperandAliasAttr
from spmd.ir import AttributeValue, Region, Value
from spmd.ir.attributes import BoolAttr, DenseAttr, DictAttr, FloatAttr, IntegerAttr, StringAttr, TypeAttr
from spmd.support.arrays import Array

#: The calling convention with a dictionary as configuration.
_TYPED = 4


def _arguments(builder: XlaBuilder, args: Sequence[Any], argument: str) -> list[Value]:
    """Return the values of operands passed one by one or as one sequence."""
    sequence = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    return [builder.value(one, f"{argument}[{i}]") for i, one in enumerate(sequence)]


@operation
def Call(builder: XlaBuilder, computation: XlaComputation, *args: XlaOp | Sequence[XlaOp]) -> XlaOp:
    """Return `computation` applied to `args`, which must match its parameters. Source: "Call"."""
    values = _arguments(builder, args, "args")
    used = checks.signature(builder, computation, "computation", [value.type for value in values])
    builder.called[used.symbol] = used
    results = builder.emit("func.call", values, {"callee": used.symbol}, used.result_leaves)
    return builder.pack(used.result.type, results)


@operation
def CompositeCall(
    builder: XlaBuilder,
    computation: XlaComputation,
    inputs: Sequence[XlaOp],
    name: str,
    composite_attributes: Mapping[str, AttributeValue] | str | None = None,
    version: int = 0,
) -> XlaOp:
    """Return the op `name` composed of others: `computation` is its decomposition. Source: "CompositeCall".

    `composite_attributes`: a dictionary of bools, ints, floats, strings and arrays, or its text
    (`{n = 1 : i32, tensor = dense<1> : tensor<i32>}`).
    """
    values = _arguments(builder, [inputs], "inputs")
    if "." not in str(name).strip("."):
        raise ArgumentError("name", f"must be namespaced, as in foo.bar, got {name!r}")
    used = checks.signature(builder, computation, "computation", [value.type for value in values])
    builder.called[used.symbol] = used
    attributes = {
        "name": name,
        "composite_attributes": _dictionary(composite_attributes),
        "decomposition": used.symbol,
        "version": checks.integer(version, "version", 0),
    }
    results = builder.emit("stablehlo.composite", values, attributes, used.result_leaves)
    return builder.pack(used.result.type, results)


def _dictionary(entries: Mapping[str, AttributeValue] | str | None) -> DictAttr:
    if isinstance(entries, str):
        return _parsed(entries)
    return DictAttr({str(key): _attribute(key, value) for key, value in (entries or {}).items()})


def _parsed(text: str) -> DictAttr:
    try:
        attribute = parse_attribute(text)
    except ValueError as error:
        raise ArgumentError("composite_attributes", f"must be a dictionary of attributes: {error}") from None
    if not isinstance(attribute, DictAttr):
        raise ArgumentError("composite_attributes", f"must be a dictionary, got {text!r}")
    return attribute


def _attribute(key: str, value: object) -> AttributeValue:
    if isinstance(value, bool):
        return BoolAttr(value)
    if isinstance(value, int):
        return IntegerAttr(value, t.I64)
    if isinstance(value, float):
        return FloatAttr(int(np.float32(value).view(np.uint32)), t.F32)
    if isinstance(value, str):
        return StringAttr(value.encode())
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return DenseAttr(array, t.tensor_of(array))
    raise ArgumentError("composite_attributes", f"{key}: must be an attribute, got a {type(value).__name__}")


@operation
def Conditional(
    builder: XlaBuilder,
    pred: XlaOp | None = None,
    true_operand: XlaOp | Sequence[XlaComputation] | None = None,
    true_computation: XlaComputation | Sequence[XlaOp] | None = None,
    false_operand: XlaOp | None = None,
    false_computation: XlaComputation | None = None,
    *,
    branch_index: XlaOp | None = None,
    branch_computations: Sequence[XlaComputation] | None = None,
    branch_operands: Sequence[XlaOp] | None = None,
) -> XlaOp:
    """Run one of several computations on its operand. Source: "Conditional".

    Conditional(pred, true_operand, true_computation, false_operand, false_computation), `pred` a PRED scalar; or
    Conditional(branch_index, branch_computations, branch_operands), `branch_index` an S32 scalar: outside [0, N)
    the last branch runs. All computations take one parameter and return the same shape.
    """
    if false_operand is None and false_computation is None:
        computations = true_operand if branch_computations is None else branch_computations
        operands = true_computation if branch_operands is None else branch_operands
        return _case(builder, pred if branch_index is None else branch_index, computations, operands)
    chooser = checks.scalar(builder, pred, "pred")
    checks.kind(chooser, "pred", "of element type PRED", "i1")
    names = [("true_operand", "true_computation"), ("false_operand", "false_computation")]
    sides = [true_computation, false_computation], [true_operand, false_operand]
    return _branch(builder, "stablehlo.if", chooser, *sides, names)


def _case(builder: XlaBuilder, index: Any, computations: Any, operands: Any) -> XlaOp:
    chooser = checks.scalar(builder, index, "branch_index")
    if chooser.tensor.element_type is not t.I32:
        raise ArgumentError("branch_index", f"must be s32[], got {Shape.of(chooser.type).brief}")
    for argument, sequence in (("branch_computations", computations), ("branch_operands", operands)):
        if not isinstance(sequence, (list, tuple)):
            raise ArgumentError(argument, f"must be a sequence, got {type(sequence).__name__}")
    if not computations or len(computations) != len(operands):
        message = f"{len(operands)} for {len(computations)} branch_computations, at least one"
        raise ArgumentError("branch_operands", message)
    names = [(f"branch_operands[{i}]", f"branch_computations[{i}]") for i in range(len(operands))]
    return _branch(builder, "stablehlo.case", chooser, computations, operands, names)


def _branch(
    builder: XlaBuilder,
    op: str,
    chooser: Value,
    computations: Sequence[Any],
    operands: Sequence[AttributeValue],
    names: Sequence[tuple[str, str]],
) -> XlaOp:
    regions: list[Region] = []
    result: t.Type | None = None
    for computation, operand, (operand_name, computation_name) in zip(computations, operands, names, strict=True):
        value = builder.value(operand, operand_name)
        results = None if result is None else [result]
        used = checks.signature(builder, computation, computation_name, [value.type], results)
        result = used.result.type if result is None else result
        if used.result.type != result:
            raise ArgumentError(
                computation_name, f"must return {Shape.of(result).brief}, got {Shape.of(used.result.type).brief}"
            )
        regions.append(region_of(used, [], [value]))
    assert result is not None
    return builder.pack(result, builder.emit(op, [chooser], None, leaf_types(result), regions))


@operation
def While(builder: XlaBuilder, condition: XlaComputation, body: XlaComputation, init: XlaOp) -> XlaOp:
    """Return `body` applied repeatedly, first to `init`, while `condition` holds. Source: "While".

    condition: T -> PRED, body: T -> T, where T, possibly a tuple, is the shape of `init`.
    """
    value = builder.value(init, "init")
    predicate = checks.signature(builder, condition, "condition", [value.type], [t.TensorType((), t.I1)])
    step = checks.signature(builder, body, "body", [value.type], [value.type])
    leaves = builder.unpack(value)
    types = [leaf.type for leaf in leaves]
    regions = [region_of(predicate, types), region_of(step, types)]
    return builder.pack(value.type, builder.emit("stablehlo.while", leaves, None, types, regions))


@operation
def CustomCall(
    builder: XlaBuilder,
    target_name: str,
    args: Sequence[XlaOp],
    shape: Shape,
    opaque: str | bytes | Mapping[str, AttributeValue] = "",
    has_side_effect: bool = False,
    api_version: int = 1,
    operand_shapes_with_layout: Sequence[Shape] | None = None,
    output_operand_aliasing: Sequence[tuple[Sequence[int], tuple[int, Sequence[int]]]] = (),
) -> XlaOp:
    """Return the user's function `target_name` applied to `args`; its result has `shape`. Source: "CustomCall".

    `operand_shapes_with_layout`, and then the layouts of `shape`, give the memory layouts of the arrays passed to the
    function; `output_operand_aliasing` gives the results, by tuple index, that share memory with which part of which
    operand. `opaque` is its configuration: a string, or a dictionary for `api_version` 4. The function is
    looked up by name among those registered by spmd.register_custom_call.
    """
    values = _arguments(builder, [args], "args")
    kind = shape_argument(shape).ir_type
    config: str | DictAttr
    if api_version == _TYPED or isinstance(opaque, Mapping):
        config = _dictionary(opaque if isinstance(opaque, Mapping) else _decoded(opaque) or "{}")
    else:
        config = _decoded(opaque)
    attributes_of_call = {
        "has_side_effect": bool(has_side_effect),
        "backend_config": config,
        "api_version": checks.integer(api_version, "api_version", 0),
    }
    defaults = {"has_side_effect": False, "backend_config": "", "api_version": 1}
    attributes: dict[str, AttributeValue] = {
        name: value for name, value in attributes_of_call.items() if value != defaults[name]
    }
    attributes["call_target_name"] = str(target_name)
    if operand_shapes_with_layout is not None:
        attributes["operand_layouts"] = tuple(_order(one) for one in operand_shapes_with_layout)
        attributes["result_layouts"] = tuple(_order(leaf) for leaf in shape.leaves())
    if output_operand_aliasing:
        attributes["output_operand_aliases"] = tuple(
            OutputOperandAliasAttr(tuple(place), operand, tuple(part))
            for place, (operand, part) in output_operand_aliasing
        )
    leaves = builder.emit("stablehlo.custom_call", values, attributes, leaf_types(kind))
    if isinstance(kind, t.TupleType) and (len(kind.types) == 1 or list(kind.types) != leaf_types(kind)):
        call = builder.block.ops[-1]
        call.discardable = {**call.discardable, RESULT_TYPE: TypeAttr(kind)}
    return builder.pack(kind, leaves)


def _order(shape: Shape) -> Array:
    """Return the dimensions from minor to major."""
    return np.array(shape.minor_to_major(), np.int64)


def _decoded(opaque: str | bytes) -> str:
    return opaque.decode("utf-8", "surrogateescape") if isinstance(opaque, bytes) else opaque


@operation
def CustomCallOp(builder: XlaBuilder, call_target_name: str, operands: Sequence[XlaOp], shape: Shape) -> XlaOp:
    """Return CustomCall, under its name in the first builder. Source: "CustomCall"."""
    return CustomCall(call_target_name, operands, shape, builder=builder)  # type: ignore[call-arg]


@operation
def OptimizationBarrier(builder: XlaBuilder, operand: XlaOp) -> XlaOp:
    """Return `operand`, all of which is computed before any user of the result. Source:
    "OptimizationBarrier"."""
    value = builder.value(operand, "operand")
    leaves = builder.unpack(value)
    types = [leaf.type for leaf in leaves]
    return builder.pack(value.type, builder.emit("stablehlo.optimization_barrier", leaves, None, types))


@operation
def AfterAll(builder: XlaBuilder, operands: Sequence[XlaOp]) -> XlaOp:
    """Return a token ordered after all given tokens. Source: "AfterAll"."""
    sequence = operands if isinstance(operands, (list, tuple)) else [operands]
    tokens = [checks.token(builder, one, f"operands[{i}]") for i, one in enumerate(sequence)]
    return builder.emit_one("stablehlo.after_all", tokens, None, t.TOKEN)


@operation
def CreateToken(builder: XlaBuilder) -> XlaOp:
    """Return a token without predecessors. Source: "AfterAll"."""
    return builder.emit_one("stablehlo.create_token", [], None, t.TOKEN)
