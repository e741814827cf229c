"""Assembles the lowered ops to the module of one process."""

from __future__ import annotations

from dataclasses import replace

from partitioner.core import Partitioned, called_functions, local_function, local_module
from partitioner.emit import Emitter
from partitioner.lowering.core import Lowering
from partitioner.manual import local_callee
from partitioner.processes import ProcessLayout
from partitioner.program import ImportedProgram
from partitioner.reading import ShardingReader
from partitioner.record import PartitionRecord
from partitioner.sharding import ShardedType, Sharding
from spmd.dialects.make import make_op
from spmd.ir import Block, Module, Op, Value
from spmd.types import I32, I64, ElementType, TensorType


def assemble(
    module: Module,
    program: ImportedProgram,
    reader: ShardingReader,
    layouts: dict[Value, Sharding],
    processes: ProcessLayout,
    record: PartitionRecord | None = None,
    *,
    even_boundary: bool = False,
) -> Partitioned:
    """Lower `program`, whose values have the shardings `layouts`, to the program of one process.

    `even_boundary` shards arguments and results into equal blocks along full axes only.
    """
    emitter = Emitter(reader.mesh, processes, _index_type(program))
    lowering = Lowering(program, reader, layouts, emitter, record)
    source = program.block
    targets = [lowering.target_sharding(value) if _is_tensor(value) else None for value in source.arguments]
    argument_layouts = [
        _boundary_layout(lowering, value, layout, even_boundary)
        for value, layout in zip(source.arguments, targets, strict=True)
    ]
    block = lowering.block(source, argument_layouts, is_loop=False)
    out_layouts, returned = [], []
    for value in source.terminator.operands:
        layout = _boundary_layout(lowering, value, _result_layout(lowering, value), even_boundary)
        out_layouts.append(ShardedType(value.type, layout))
        returned.append(lowering.replicated(value) if layout is None else lowering.get(value, layout))
    end = make_op("func.return", returned, location=source.terminator.location)
    block.ops = [*emitter.prologue, *block.ops, end]
    remove_unused(block)
    function = local_function(program.function, block)
    others = [local_callee(other) for other in called_functions(module, [function])]
    in_layouts = tuple(
        ShardedType(value.type, layout) for value, layout in zip(source.arguments, argument_layouts, strict=True)
    )
    return Partitioned(
        local_module(module, function, others, processes),
        program.function.symbol,
        in_layouts,
        tuple(out_layouts),
        tuple(lowering.notes),
    )


#: i32 indices suffice below this; what is added to an index (padding, the length of a window) is no larger.
_NARROW = 1 << 30


def _index_type(program: ImportedProgram) -> ElementType:
    """Return i32 if every dimension of every value of `program` is below 2^30, else i64."""
    values = [*program.block.arguments, *(value for op in program.block.walk() for value in op.results)]
    types = [value.type for value in values if isinstance(value.type, TensorType)]
    return I32 if all(size < _NARROW for type in types for size in type.static_shape) else I64


def _boundary_layout(lowering: Lowering, value: Value, layout: Sharding | None, is_even: bool) -> Sharding | None:
    """Return the boundary layout of `value`: `layout` with the annotated device order, unreduced if annotated so."""
    if layout is None:
        return None
    if is_even:
        layout = layout.even(value.tensor.static_shape)
    annotation = lowering.program.annotations.get(value)
    return (
        lowering.with_declared_partial(value, layout)
        if annotation is None
        else replace(layout, mesh=annotation.sharding.mesh)
    )


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


def _result_layout(lowering: Lowering, value: Value) -> Sharding | None:
    """Return the annotated layout or, without annotation, the cheapest of the available ones."""
    if not _is_tensor(value):
        return None
    target = lowering.target_sharding(value)
    if value in lowering.program.annotations:
        return target
    options = [target.without_partial(), *(layout.without_partial() for layout in lowering.layouts_of(value))]
    return min(options, key=lambda layout: lowering.price(value, layout))


def remove_unused(block: Block) -> None:
    """Remove ops whose results are unused. Collectives may be removed, since all processes remove the same ones."""
    used: set[Value] = set()
    kept: list[Op] = []
    for op in reversed(block.ops):
        if not _stays(op) and not any(result in used for result in op.results):
            continue
        for region in op.regions:
            for inner in region.blocks:
                if op.name in ("stablehlo.while", "stablehlo.case", "stablehlo.if"):
                    remove_unused(inner)
        for inner_op in op.walk():
            used.update(inner_op.operands)
        kept.append(op)
    block.ops[:] = reversed(kept)


_STAYING = frozenset(("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv"))


def _stays(op: Op) -> bool:
    definition = op.definition
    if definition is None or definition.is_terminator or op.name in _STAYING:
        return True
    if op.name == "stablehlo.custom_call":
        return bool(op["has_side_effect"])
    if op.name.startswith("stablehlo.") or op.name.startswith("chlo."):
        if not op.regions:
            return False
        return any(
            _stays(inner) and not (inner.definition is not None and inner.definition.is_terminator)
            for region in op.regions
            for nested in region.blocks
            for inner in nested.ops
        )
    return not definition.is_pure
