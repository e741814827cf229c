"""Layouts of a program: shardings of arguments, results and inner values, and their annotation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from partitioner.sharding import ShardedType
from spmd.analysis.shardings import GSPMD_NAME
from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.make import make_op
from spmd.dialects.sdy_attributes import SHARDING_NAME
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module, Op, copy_op
from spmd.ir.attributes import Attribute, DictAttr, IntegerAttr, SymbolRefAttr
from spmd.types import I32, TensorType, Type

#: The axes that shard each dimension, major first.
Spec = tuple[tuple[str, ...], ...]
#: The spec of each argument or result; None: left to propagation.
Specs = tuple[Spec | None, ...]


@dataclass(frozen=True)
class ProgramLayout:
    """The shardings of a program's arguments, results, and of the results of some inner ops.

    `is_open`: propagation may shard arguments further.
    """

    arguments: Specs
    results: Specs
    is_open: bool = False
    inner: tuple[tuple[Op, Spec], ...] = ()


def mesh_op_of(module: Module, axes: Mapping[str, int]) -> Op:
    """Return the mesh op of `module` with these `axes`; a new one if the module has none.

    Raises CompileError if the module has a mesh with other axes.
    """
    meshes = [op for op in module.body.ops if op.name == "sdy.mesh" and op["mesh"].axes]
    for op in meshes:
        if {axis.name: axis.size for axis in op["mesh"].axes} == dict(axes):
            return op
    if meshes:
        there = ", ".join(f"{axis.name}={axis.size}" for axis in meshes[0]["mesh"].axes)
        wanted = ", ".join(f"{name}={size}" for name, size in axes.items())
        text = f"the program's shardings must be over the mesh {wanted}, got {there}"
        raise CompileError(Diagnostic(meshes[0].location, text, "sdy.mesh"))
    names = {op["sym_name"] for op in module.body.ops if "sym_name" in op.attributes}
    name = next(each for each in ("mesh", *(f"mesh_{number}" for number in range(len(names) + 1))) if each not in names)
    entries = tuple(sdy.MeshAxis(axis, size) for axis, size in axes.items())
    return make_op("sdy.mesh", (), (), {"sym_name": name, "mesh": sdy.Mesh(entries)}, location=module.location)


def annotated(module: Module, mesh: Op, layout: ProgramLayout, function: str) -> Module:
    """Return `module` with `layout` as shardings of arguments, results and inner ops that have none.

    Values left to propagation are annotated as open in all dimensions. Without inner ops, bodies are shared.
    """
    module = _with_inner(module, mesh, layout.inner)
    entry = module.function(function)
    attributes = dict(entry.attributes)
    for name, specs, types, dictionaries, is_open in (
        ("arg_attrs", layout.arguments, entry.type.inputs, entry.argument_attributes, layout.is_open),
        ("res_attrs", layout.results, entry.type.results, entry.result_attributes, False),
    ):
        attributes[name] = tuple(
            DictAttr(_with_sharding(dict(entries), spec, type, mesh, is_open))
            for spec, type, entries in zip(specs, types, dictionaries, strict=True)
        )
    copy = entry.clone((), attributes=attributes)
    assert isinstance(copy, Function)
    discardable: dict[str, Attribute] = dict(module.discardable)
    discardable["mhlo.num_partitions"] = IntegerAttr(prod(axis.size for axis in mesh["mesh"].axes), I32)
    discardable.setdefault("mhlo.num_replicas", IntegerAttr(1, I32))
    others = [op for op in module.body.ops if op is not entry and not _is_mesh(op, mesh)]
    return module.with_ops([mesh, copy, *others], discardable)


def with_given(module: Module, mesh: Op, specs: Mapping[int, Spec], function: str) -> Module:
    """Return `module` with shardings on the arguments of `function` in `specs` only."""
    if not specs:
        return module
    entry = module.function(function)
    attributes = dict(entry.attributes)
    attributes["arg_attrs"] = tuple(
        DictAttr(_with_sharding(dict(entries), specs[index], type, mesh, False) if index in specs else dict(entries))
        for index, (type, entries) in enumerate(zip(entry.type.inputs, entry.argument_attributes, strict=True))
    )
    copy = entry.clone((), attributes=attributes)
    return module.with_ops([mesh, *(copy if op is entry else op for op in module.body.ops if not _is_mesh(op, mesh))])


def _with_inner(module: Module, mesh: Op, inner: Sequence[tuple[Op, Spec]]) -> Module:
    """Return `module` with shardings on the results of the ops in `inner`."""
    if not inner:
        return module
    inner_specs = dict(inner)
    copy = copy_op(module, {})
    for op, copied in zip(module.walk(), copy.walk(), strict=True):
        spec = inner_specs.get(op)
        if spec is not None:
            sharding = sdy.ShardingPerValue((_sharding(spec, op.result.tensor.rank, mesh, True),))
            copied.discardable = {**copied.discardable, SHARDING_NAME: sharding}
    assert isinstance(copy, Module)
    return copy


def _is_mesh(op: Op, mesh: Op) -> bool:
    return op.name == "sdy.mesh" and bool(op["sym_name"] == mesh["sym_name"])


def is_given(entries: Mapping[str, Attribute]) -> bool:
    """Return whether attributes of an argument or a result have a sharding."""
    return SHARDING_NAME in entries or GSPMD_NAME in entries


def _with_sharding(
    entries: dict[str, Attribute], spec: Spec | None, type: Type, mesh: Op, is_open: bool
) -> dict[str, Attribute]:
    if is_given(entries) or not isinstance(type, TensorType):
        return entries
    return {**entries, SHARDING_NAME: _sharding(spec, type.rank, mesh, spec is not None and not is_open)}


def _sharding(spec: Spec | None, rank: int, mesh: Op, is_closed: bool) -> sdy.TensorSharding:
    axes = spec if spec is not None else ((),) * rank
    dimensions = tuple(sdy.DimensionSharding(tuple(map(sdy.AxisRef, each)), is_closed) for each in axes)
    return sdy.TensorSharding(SymbolRefAttr((mesh["sym_name"],)), dimensions)


def specs_of(layouts: Sequence[ShardedType], axes: Mapping[str, int]) -> Specs | None:
    """Return the specs of layouts of the partitioner; None if one is sharded along a sub-axis."""
    return tuple(map(spec_of_layout, layouts)) if all(_is_whole(each, axes) for each in layouts) else None


def _is_whole(layout: ShardedType, axes: Mapping[str, int]) -> bool:
    if layout.sharding is None:
        return True
    mesh = layout.sharding.mesh
    runs = [run for cut in layout.sharding.dimensions for run in mesh.runs(cut)]
    return not layout.sharding.partial and all(run.size == axes.get(run.name) for run in runs)


def spec_of_layout(layout: ShardedType) -> Spec | None:
    if layout.sharding is None:
        return None
    mesh = layout.sharding.mesh
    return tuple(tuple(run.name for run in mesh.runs(axes)) for axes in layout.sharding.dimensions)


def format_spec(spec: Spec | None) -> str:
    """Return a spec in the notation of shardings, `[{"data"}, {}]`."""
    if spec is None:
        return "open"
    return "[" + ", ".join("{" + ", ".join(f'"{axis}"' for axis in axes) + "}" for axes in spec) + "]"
