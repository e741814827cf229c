"""Writes propagation's rules or results on the global program, in Shardy's form.

Source: Shardy's documentation of its passes, "sdy-populate-op-sharding-rules" and the propagation pipeline, whose
export closes all dimensions and replaces constraints by reshards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from partitioner.core import local_function
from partitioner.mesh import Axes, DeviceMesh
from partitioner.program import CONSTRAINT, ImportedProgram, import_program
from partitioner.propagation import propagate
from partitioner.reading import ShardingReader
from partitioner.rules.conservative import conservative_rule
from partitioner.rules.core import published_rule, rule_of
from partitioner.sharding import Sharding
from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.make import make_op
from spmd.dialects.sdy_attributes import RULE_NAME, SHARDING_NAME
from spmd.ir import Block, Function, Module, Op, Value, copy_op
from spmd.ir.attributes import Attribute, DictAttr, SymbolRefAttr
from spmd.types import TensorType


def with_rules(module: Module, *, conservative: bool = False) -> Module:
    """Return a copy of `module` in which ops with a Shardy factor rule carry it as `sdy.sharding_rule`."""
    maker = conservative_rule if conservative else rule_of
    annotated = copy_op(module, {})
    users: dict[Value, list[Op]] = {}
    for op in annotated.walk():
        for operand in op.operands:
            users.setdefault(operand, []).append(op)
    for op in annotated.walk():
        rule = published_rule(op, [user for result in op.results for user in users.get(result, ())], maker)
        if rule is not None:
            op.discardable = {**op.discardable, RULE_NAME: rule.attribute()}
    assert isinstance(annotated, Module)
    return annotated


def with_propagated(
    module: Module, function: str = "main", axis_priority: Sequence[str] = (), *, conservative: bool = False
) -> Module:
    """Return the global program of `function`, calls inlined, with the propagated sharding of every value.

    Arguments, results and ops that are sharded or annotated carry `sdy.sharding` with all dimensions closed.
    """
    entry = module.function(function)
    reader = ShardingReader(module, entry)
    program = import_program(module, entry, reader, as_written=True)
    writer = _Publisher(program, reader, propagate(program, reader, axis_priority, conservative=conservative))
    meshes = [op for op in module.body.ops if op.name == "sdy.mesh"] or [writer.mesh_op()]
    ops = [*(copy_op(op, {}) for op in meshes), writer.function()]
    return module.with_ops(ops)


class _Publisher:
    def __init__(self, program: ImportedProgram, reader: ShardingReader, layouts: dict[Value, Sharding]) -> None:
        self.program = program
        self.reader = reader
        self.layouts = layouts
        self.mesh: DeviceMesh = reader.mesh
        self.symbol = SymbolRefAttr((reader.mesh_name,))

    def mesh_op(self) -> Op:
        """Return a mesh op for a program without meshes."""
        axes = tuple(sdy.MeshAxis(name, size) for name, size in self.mesh.axes.items())
        return make_op("sdy.mesh", (), (), {"sym_name": self.reader.mesh_name, "mesh": sdy.Mesh(axes)})

    def function(self) -> Function:
        """Return the function annotated with the shardings of its values."""
        block = self.program.block
        self._block(block)
        local = local_function(self.program.function, block)
        for name, values, entries in (
            ("arg_attrs", block.arguments, self.program.function.argument_attributes),
            ("res_attrs", block.terminator.operands, self.program.function.result_attributes),
        ):
            shardings = tuple(
                DictAttr({**_without_shardings(entry), **self._entry(value)})
                for value, entry in zip(values, entries, strict=True)
            )
            local.attributes = {**local.attributes, name: shardings}
        return local

    def _entry(self, value: Value) -> dict[str, Attribute]:
        return {SHARDING_NAME: self._sharding(value)} if self._is_written(value) else {}

    def _is_written(self, value: Value) -> bool:
        layout = self.layouts.get(value)
        return layout is not None and (value in self.program.annotations or bool(layout.used))

    def _refs(self, axes: Axes) -> tuple[sdy.AxisRef, ...]:
        return tuple(
            sdy.AxisRef(run.name, None if run.size == run.full_size else sdy.SubAxisInfo(run.pre_size, run.size))
            for run in self.mesh.runs(axes)
        )

    def _sharding(self, value: Value) -> sdy.TensorSharding:
        layout = self.layouts.get(value)
        if layout is None or not isinstance(value.type, TensorType):
            return sdy.TensorSharding(self.symbol)
        dimensions = tuple(sdy.DimensionSharding(self._refs(axes)) for axes in layout.dimensions)
        kind = {"stablehlo.maximum": "max", "stablehlo.minimum": "min"}.get(layout.reduction, "sum")
        return sdy.TensorSharding(self.symbol, dimensions, (), self._refs(layout.partial), kind)

    def _block(self, block: Block) -> None:
        renamed: dict[Value, Value] = {}
        for index, op in enumerate(block.ops):
            if op.name == CONSTRAINT:
                attributes = {"sharding": self._sharding(op.result)}
                block.ops[index] = replaced = make_op(
                    "sdy.reshard", op.operands, op.result_types, attributes, location=op.location
                )
                replaced.name_hint = op.name_hint
                renamed[op.result] = replaced.result
                self._stand_for(op.result, replaced.result)
            elif op.name == "sdy.manual_computation":
                self._manual(op)
            elif "sdy." not in op.name and any(map(self._is_written, op.results)):
                sharding_per_value = sdy.ShardingPerValue(tuple(map(self._sharding, op.results)))
                op.discardable = {**_without_shardings(op.discardable), SHARDING_NAME: sharding_per_value}
            for inner in _blocks(op):
                self._block(inner)
        if renamed:
            for op in block.ops:
                for inner_op in op.walk():
                    inner_op.replace_operands(renamed)

    def _stand_for(self, old: Value, new: Value) -> None:
        self.layouts[new] = self.layouts[old]
        if old in self.program.annotations:
            self.program.annotations[new] = self.program.annotations[old]

    def _manual(self, op: Op) -> None:
        """Set the in and out shardings of a manual computation, adding the propagated free axes of each dimension."""
        body = op.region("body").block
        names = frozenset(op["manual_axes"].axes)
        for name, values in (("in_shardings", body.arguments), ("out_shardings", body.terminator.operands)):
            shardings = []
            for sharding, value in zip(op[name].shardings, values, strict=True):
                free = self._sharding(value)
                if not sharding.dimensions or not isinstance(value.type, TensorType):
                    shardings.append(sharding)
                    continue
                dimensions = tuple(
                    sdy.DimensionSharding(tuple(axis for axis in old.axes if axis.name in names) + new.axes)
                    for old, new in zip(sharding.dimensions, free.dimensions, strict=True)
                )
                shardings.append(replace(sharding, dimensions=dimensions, replicated=()))
            op.attributes = {**op.attributes, name: sdy.ShardingPerValue(tuple(shardings))}


def _blocks(op: Op) -> Iterator[Block]:
    for region in op.regions:
        yield from region.blocks


def _without_shardings(entries: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {name: value for name, value in entries.items() if name not in (SHARDING_NAME, "mhlo.sharding")}
