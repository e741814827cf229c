"""Conformance programs as programs that depend on arguments: their constants are given when they run."""

import numpy as np

import spmd
from launch.conformance import entry_point
from spmd.analysis.constants import constant_array
from spmd.compiler.pipeline.passes import with_function
from spmd.compiler.transforms.inline import inline
from spmd.dialects.faults import faults
from spmd.ir import Block, Op, Value
from spmd.types import FunctionType, TensorType, Type

#: Ops whose meaning is their declared shape.
_SHAPED = frozenset({"stablehlo.iota", "stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.bitcast_convert"})


def with_arguments(module: spmd.Module, *, symbolic: bool = False) -> tuple[spmd.Module, list[np.ndarray]] | None:
    """The program whose constants are arguments, and these; None of one that runs nothing, or has none.

    `symbolic`: sizes are not known, but where an op is nothing without them.
    """
    name = entry_point(module)
    if name is None or any(op.name == "interpreter.run_parallel" for op in module.walk()):
        return None
    flat = inline(module, module.function(name), whole=True)
    arrays: list[np.ndarray] = []
    values: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in flat.body.ops:
        array = constant_array(op)
        if array is not None:
            values[op.result] = flat.body.add_argument(_unsized(op.result.type) if symbolic else op.result.type)
            arrays.append(np.array(array))
            continue
        ops.append(_replaced(op, values, symbolic))
    flat.body.ops = ops
    inputs = tuple(value.type for value in flat.body.arguments)
    results = tuple(flat.body.terminator.operand_types)
    flat.attributes = {**flat.attributes, "function_type": FunctionType(inputs, results)}
    return (with_function(module, flat), arrays) if arrays else None


def _replaced(op: Op, values: dict[Value, Value], symbolic: bool) -> Op:
    """`op` on what stands for its operands, with results of unknown sizes where that can be."""
    for inner in op.walk():
        inner.replace_operands(values)
    if not symbolic or op.definition is None or op.name in _SHAPED or op.definition.is_terminator:
        return op
    loose = op.clone(op.operands, result_types=[_unsized(type) for type in op.result_types], regions=op.regions)
    if next(faults(loose, op.definition), None) is not None:
        return op
    values.update(zip(op.results, loose.results, strict=True))
    return loose


def _unsized(type: Type) -> Type:
    if not isinstance(type, TensorType) or type.is_quantized:
        return type
    return TensorType((None,) * type.rank, type.element_type)


def with_sizes(block: Block, rng: np.random.Generator) -> bool:
    """Declares sizes that are not known, of one op's result, as others than they will be; False where there are none."""
    unknown = [value for op in block.ops for value in op.results if _is_unsized(value.type)]
    if not unknown:
        return False
    value = unknown[rng.integers(len(unknown))]
    sizes = [int(rng.choice([0, 1, 2, 7, 4097, 1 << 20])) for _ in value.tensor.shape]
    value.type = TensorType(tuple(sizes), value.tensor.element_type)
    return True


def _is_unsized(type: Type) -> bool:
    return isinstance(type, TensorType) and type.rank > 0 and not type.is_static
