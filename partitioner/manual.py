"""Programs whose ops are per-process already, so that only the shardings of arguments and results are needed.

Either the program is one manual computation over all axes (JAX's shard_map lowers to it), with explicit collectives,
or its mesh is a single device, as in JAX's exports with the empty mesh if a random key is an argument.
Source: Shardy's dialect documentation, sdy.manual_computation.
"""

from __future__ import annotations

from partitioner.core import Partitioned, called_functions, local_function, local_module
from partitioner.processes import ProcessLayout
from partitioner.reading import ShardingReader
from partitioner.sharding import Annotation, ShardedType, replicated
from spmd.analysis.shardings import is_layout_call
from spmd.dialects.make import make_op
from spmd.ir import Block, Function, Module, Op, Value, copy_arguments, copy_op
from spmd.types import TensorType, Type

_DROPPED = frozenset(("sdy.sharding_constraint", "sdy.sharding_group", "sdy.propagation_barrier"))
_SHARDINGS = ("sdy.", "mhlo.sharding")
_OPENED = frozenset(("sdy.mesh", "sdy.manual_computation", "sdy.named_computation", "sdy.return"))


def manual_body(function: Function, reader: ShardingReader) -> Op | None:
    """Return the manual computation that is the whole body of `function`, or None."""
    ops = function.body.ops
    if len(ops) != 2 or ops[0].name != "sdy.manual_computation":
        return None
    op, returned = ops[0], ops[1].operands
    if not _is_all(op, reader) or any(value not in function.arguments for value in op.operands):
        return None
    is_plain = len(set(op.operands)) == len(op.operands) and returned == op.results
    return op if is_plain and not _contradicts(function, op, reader) else None


def _is_all(op: Op, reader: ShardingReader) -> bool:
    manual = reader.manual(op)
    return len(manual) == len(reader.mesh.sub_axes)


def _agree(annotation: Annotation | None, layout: ShardedType | None) -> bool:
    """Return whether there is no annotation, or it equals the layout of the computation."""
    if annotation is None:
        return True
    cuts = annotation.sharding.dimensions
    return layout is not None and layout.sharding is not None and cuts == layout.sharding.dimensions


def _contradicts(function: Function, op: Op, reader: ShardingReader) -> bool:
    """Return whether arguments or results are annotated with another layout than the computation's."""
    inner = dict(zip(op.operands, layouts(op, "in_shardings", op.operand_types, reader), strict=True))
    for argument, entry in zip(function.arguments, function.argument_attributes, strict=True):
        (annotation,) = reader.of_attributes(dict(entry), [argument.type], function)
        if not _agree(annotation, inner.get(argument)):
            return True
    outer = layouts(op, "out_shardings", op.result_types, reader)
    for layout, entry in zip(outer, function.result_attributes, strict=True):
        (annotation,) = reader.of_attributes(dict(entry), [layout.type], function)
        if not _agree(annotation, layout):
            return True
    return False


def layouts(op: Op, name: str, types: list[Type], reader: ShardingReader) -> list[ShardedType]:
    """Return the layouts in the in_shardings or out_shardings of `op`."""
    sharded_types = []
    for sharding, type in zip(op[name].shardings, types, strict=True):
        annotation = reader.annotation_of(op, sharding, type)
        sharded_types.append(ShardedType(type, None if annotation is None else annotation.sharding))
    return sharded_types


def manual_program(
    module: Module, function: Function, op: Op, reader: ShardingReader, processes: ProcessLayout
) -> Partitioned:
    """Return the program of one process for a `function` that consists of the manual computation `op`."""
    inner = op.region("body").block
    by_value = dict(zip(op.operands, layouts(op, "in_shardings", op.operand_types, reader), strict=True))
    in_shardings = [by_value.get(argument) or _everywhere(argument.type, reader) for argument in function.arguments]
    block = Block(layout.local_type for layout in in_shardings)
    values: dict[Value, Value] = {}
    by_operand = dict(zip(op.operands, inner.arguments, strict=True))
    for outer, body_argument in zip(function.arguments, block.arguments, strict=True):
        body_argument.name_hint = outer.name_hint
        if outer in by_operand:
            values[by_operand[outer]] = body_argument
    append_local(inner.ops[:-1], values, block.ops)
    returned = [values.get(value, value) for value in inner.terminator.operands]
    block.ops.append(make_op("func.return", returned, location=inner.terminator.location))
    entry = local_function(function, block)
    others = [local_callee(other) for other in called_functions(module, [entry])]
    return Partitioned(
        local_module(module, entry, others, processes),
        function.symbol,
        tuple(in_shardings),
        tuple(layouts(op, "out_shardings", op.result_types, reader)),
    )


def is_single_device(module: Module, reader: ShardingReader) -> bool:
    """Return whether the mesh is a single device and shardings are hints only."""
    return reader.mesh.size == 1 and all(
        op.name in _OPENED or not op.name.startswith("sdy.") for op in module.walk() if op.name not in _DROPPED
    )


def single_device_program(
    module: Module, function: Function, reader: ShardingReader, processes: ProcessLayout
) -> Partitioned:
    """Return the program of the mesh's single device: `function` without hints."""
    values: dict[Value, Value] = {}
    block = copy_arguments(function.body, values)
    append_local(function.body.ops, values, block.ops)
    entry = local_function(function, block)
    others = [local_callee(other) for other in called_functions(module, [entry])]
    return Partitioned(
        local_module(module, entry, others, processes),
        function.symbol,
        tuple(_everywhere(argument.type, reader) for argument in function.arguments),
        tuple(_everywhere(value.type, reader) for value in function.body.terminator.operands),
    )


def local_callee(op: Op) -> Op:
    """Return a called function without its shardings."""
    callee = copy_local(op, {})
    return local_function(callee, callee.body) if isinstance(callee, Function) and not callee.is_declaration else callee


def _everywhere(type: Type, reader: ShardingReader) -> ShardedType:
    return ShardedType(type, replicated(reader.mesh, type.rank) if isinstance(type, TensorType) else None)


def append_local(ops: list[Op], values: dict[Value, Value], target: list[Op]) -> None:
    """Append copies of per-process ops to `target`, without shardings and with nested computations inlined."""
    for op in ops:
        if op.name in _DROPPED or is_layout_call(op):
            if op.results:
                values[op.result] = values.get(op.operands[0], op.operands[0])
        elif op.name in ("sdy.manual_computation", "sdy.named_computation"):
            inner = op.region("body").block
            for argument, operand in zip(inner.arguments, op.operands, strict=True):
                values[argument] = values.get(operand, operand)
            append_local(inner.ops[:-1], values, target)
            for result, returned in zip(op.results, inner.terminator.operands, strict=True):
                values[result] = values.get(returned, returned)
        else:
            target.append(copy_local(op, values))


def copy_local(op: Op, values: dict[Value, Value]) -> Op:
    """Return a deep copy of a per-process op without its shardings."""
    copy = copy_op(op, values)
    for inner in copy.walk():
        if inner.discardable:
            kept = {key: value for key, value in inner.discardable.items() if not key.startswith(_SHARDINGS)}
            inner.discardable = kept
    for region in copy.regions:
        for block in region.blocks:
            _clean(block)
    return copy


def _clean(block: Block) -> None:
    """Remove sharding ops from a copied block, in place."""
    if any(op.name.startswith("sdy.") or is_layout_call(op) for op in block.ops):
        renamed: dict[Value, Value] = {}
        kept: list[Op] = []
        append_local(block.ops, renamed, kept)
        block.ops[:] = kept
        return
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                _clean(inner)
