"""Shape refinement: makes a dynamic program static, given argument types.

Dimension sizes become constants and are folded, ops that take a shape as an operand become their static forms, and
result types are inferred. Source: StableHLO's docs on dynamism: shape refinement, and canonicalization of dynamic ops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.analysis.constants import CONSTANT, constant_array
from spmd.compiler.pipeline.dynamic import is_dynamic, with_operands
from spmd.compiler.pipeline.passes import with_function
from spmd.compiler.transforms.inline import inline
from spmd.compiler.transforms.simplify import Evaluate, fold
from spmd.dialects.core import Trait, has_trait
from spmd.dialects.make import make_op
from spmd.errors import CompileError, Diagnostic
from spmd.ir import AttributeValue, Function, Module, Op, Value
from spmd.ir.attributes import DenseAttr
from spmd.types import FunctionType, TensorType, Type


def refine(module: Module, function: Function, types: Sequence[Type], evaluate: Evaluate) -> Module:
    """Return `module` with `function` refined for arguments of `types`, which must agree with its static dimensions.

    Calls are inlined. What does not follow from the argument types stays dynamic. CompileError for a loop that carries
    a value whose shape changes.
    """
    flat = inline(module, function, whole=True)
    for argument, type in zip(flat.arguments, types, strict=True):
        argument.type = type
    _Refiner(evaluate).ops(flat.body.ops)
    results = tuple(value.type for value in flat.body.terminator.operands)
    flat.attributes = {**flat.attributes, "function_type": FunctionType(tuple(types), results)}
    return with_function(module, flat)


class _Refiner:
    """Replaces ops by refined ones; `values` maps old results to new ones."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._values: dict[Value, Value] = {}

    def ops(self, ops: list[Op]) -> None:
        ops[:] = [refined for op in ops if not self._holds(refined := self._op(op))]

    def _holds(self, op: Op) -> bool:
        """Return whether `op` is a shape assertion that is known to hold; ExecutionError if it is violated."""
        if op.name != "stablehlo.custom_call" or op["call_target_name"] != "shape_assertion":
            return False
        known = [constant_array(operand.defining_op) for operand in op.operands]
        return all(array is not None for array in known) and self._evaluate(op, known) is not None

    def _op(self, op: Op) -> Op:
        operands = [self._values.get(operand, operand) for operand in op.operands]
        self._regions(op, operands)
        refined = fold(_static(op, operands) or self._inferred(op, operands), self._evaluate)
        self._values.update(zip(op.results, refined.results, strict=True))
        return refined

    def _regions(self, op: Op, operands: Sequence[Value]) -> None:
        for region in op.regions:
            for block in region.blocks:
                if has_trait(op, Trait.LOOP):
                    for argument, operand in zip(block.arguments, operands, strict=True):
                        argument.type = operand.type
                self.ops(block.ops)

    def _inferred(self, op: Op, operands: Sequence[Value]) -> Op:
        if has_trait(op, Trait.LOOP):
            carried = [value.type for value in operands]
            returned = op.regions[1].block.terminator.operand_types
            if carried != returned:
                text = f"shapes of loop-carried values must not change: {_listed(carried)} becomes {_listed(returned)}"
                raise CompileError(Diagnostic(op.location, text, op.name))
            return op.clone(operands, result_types=carried)
        if op.regions and has_trait(op, Trait.RUNS_REGIONS) and any(is_dynamic(type) for type in op.result_types):
            return op.clone(operands, result_types=op.regions[0].block.terminator.operand_types)
        if op.name == "stablehlo.custom_call" and op["call_target_name"] == "Sharding":
            return op.clone(operands, result_types=[value.type for value in operands])
        return with_operands(op, operands)


def _listed(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types))


# --- ops that take shapes --------------------------------------------------------------------------------------------

#: By op: its static form, the operands kept, and the operands that become attributes, by name; "" for the result shape.
_Static = tuple[str, tuple[str, ...], dict[str, str]]
_STATIC: dict[str, _Static] = {
    "stablehlo.dynamic_broadcast_in_dim": ("broadcast_in_dim", ("operand",), {"output_dimensions": ""}),
    "stablehlo.dynamic_iota": ("iota", (), {"output_shape": ""}),
    "stablehlo.dynamic_reshape": ("reshape", ("operand",), {"output_shape": ""}),
    "stablehlo.dynamic_pad": (
        "pad", ("operand", "padding_value"),
        {name: name for name in ("edge_padding_low", "edge_padding_high", "interior_padding")},
    ),
    "stablehlo.real_dynamic_slice": (
        "slice", ("operand",), {name: name for name in ("start_indices", "limit_indices", "strides")}
    ),
    "stablehlo.dynamic_gather": ("gather", ("operand", "start_indices"), {"slice_sizes": "slice_sizes"}),
    "stablehlo.dynamic_conv": ("convolution", ("lhs", "rhs"), {"padding": "padding"}),
}  # fmt: skip
#: Attributes of dynamic ops that are implied by a static type.
_HINTS = ("known_expanding_dimensions", "known_nonexpanding_dimensions")


def _static(op: Op, operands: Sequence[Value]) -> Op | None:
    """Return `op` with static result types; None if they cannot be inferred, or it takes no shape."""
    if op.name == "stablehlo.get_dimension_size":
        return _size(op, operands[0].type)
    static = _STATIC.get(op.name)
    if static is None or op.definition is None:
        return None
    name, kept_operands, as_attributes = static
    by_name = dict(zip((declared.name for declared in op.definition.operands), operands, strict=True))
    arrays = {operand: constant_array(by_name[operand].defining_op) for operand in as_attributes}
    attributes: dict[str, AttributeValue] = {key: value for key, value in op.attributes.items() if key not in _HINTS}
    for operand, attribute in as_attributes.items():
        array = arrays[operand]
        if array is None:
            return None
        if attribute:
            attributes[attribute] = array.astype(np.int64) if array.ndim > 1 else tuple(array.tolist())
    shapes = [array.tolist() for operand, array in arrays.items() if array is not None and not as_attributes[operand]]
    type = op.result.type
    assert isinstance(type, TensorType)
    types = [TensorType(tuple(shape), type.element_type) for shape in shapes] or None
    values = [by_name[operand] for operand in kept_operands]
    return make_op(f"stablehlo.{name}", values, types, attributes, op.regions, location=op.location)


def _size(op: Op, type: Type) -> Op | None:
    """Return the queried dimension size as a constant, if it is known."""
    size = type.shape[op["dimension"]] if isinstance(type, TensorType) else None
    scalar = op.result.type
    if size is None or not isinstance(scalar, TensorType):
        return None
    array = np.array(size, scalar.dtype)
    array.flags.writeable = False
    return make_op(CONSTANT, (), [scalar], {"value": DenseAttr(array, scalar)}, location=op.location)
