"""Adds shardings to a program: a mesh, and the sharding of each argument and result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.make import make_op
from spmd.dialects.sdy_attributes import SHARDING_NAME
from spmd.errors import CompileError, Diagnostic, UsageError
from spmd.ir import Function, Module, Op
from spmd.ir.attributes import Attribute, DictAttr, IntegerAttr, SymbolRefAttr
from spmd.types import I32, TensorType, Type

#: One entry per dimension: no axis, one axis, or several from major to minor.
Spec = Sequence[str | Sequence[str] | None]


def with_shardings(
    module: Module,
    mesh: Mapping[str, int],
    arguments: Sequence[Spec | None],
    results: Sequence[Spec | None] | None = None,
    function: str = "main",
) -> Module:
    """Return `module` with the arguments and results of `function` sharded over a mesh.

    `mesh` maps axis names to sizes. `arguments` and `results` hold one spec per value: per dimension an axis name, a
    tuple of them from major to minor, or None; missing trailing dimensions are not sharded. None instead of a spec
    leaves the value to propagation, as do absent `results`. The body is shared with `module`. Raises CompileError for
    specs of the wrong number or rank; other constraints are checked when the module is partitioned.
    """
    entry = module.function(function)
    annotated_entry = _annotated(entry, arguments, results)
    size = prod(mesh.values())
    axes = tuple(sdy.MeshAxis(name, extent) for name, extent in mesh.items())
    mesh_op = make_op("sdy.mesh", (), (), {"sym_name": "mesh", "mesh": sdy.Mesh(axes)})
    others = [op for op in module.body.ops if op is not entry and op.name != "sdy.mesh"]
    discardable: dict[str, Attribute] = dict(module.discardable)
    discardable["mhlo.num_partitions"] = IntegerAttr(size, I32)
    discardable.setdefault("mhlo.num_replicas", IntegerAttr(1, I32))
    return module.with_ops([mesh_op, annotated_entry, *others], discardable)


def axis_of_mesh(module: Module, axis: str | None = None) -> str:
    """Return the name of an axis of the module's mesh, by default the first; raises UsageError if it has none such."""
    mesh = _mesh(module)
    names = [] if mesh is None else [each.name for each in mesh["mesh"].axes]
    if not names or (axis is not None and axis not in names):
        absent = "no axes" if axis is None else f"no axis {axis!r}"
        raise UsageError(f"the mesh has {absent}; its axes are: {', '.join(names) or 'none'}")
    return names[0] if axis is None else axis


def _mesh(module: Module) -> Op | None:
    return next((op for op in module.body.ops if op.name == "sdy.mesh"), None)


def with_axis_size(module: Module, axis: str | None, size: int) -> Module:
    """Return `module` with one axis of its mesh, by default the first, resized to `size`.

    Raises UsageError if the mesh has no such axis.
    """
    chosen, mesh = axis_of_mesh(module, axis), _mesh(module)
    assert mesh is not None
    axes = tuple([sdy.MeshAxis(each.name, size if each.name == chosen else each.size) for each in mesh["mesh"].axes])
    other = make_op("sdy.mesh", (), (), {"sym_name": mesh["sym_name"], "mesh": sdy.Mesh(axes)})
    ops = [other if op is mesh else op for op in module.body.ops]
    discardable: dict[str, Attribute] = dict(module.discardable)
    discardable["mhlo.num_partitions"] = IntegerAttr(prod(each.size for each in axes), I32)
    return module.with_ops(ops, discardable)


def _annotated(function: Function, arguments: Sequence[Spec | None], results: Sequence[Spec | None] | None) -> Function:
    attributes = dict(function.attributes)
    for name, specs, types, dictionaries in (
        ("arg_attrs", arguments, function.type.inputs, function.argument_attributes),
        ("res_attrs", results, function.type.results, function.result_attributes),
    ):
        if specs is None:
            continue
        if len(specs) != len(types):
            text = f"there must be {len(types)} specs of {name.split('_')[0]} values, got {len(specs)}"
            raise CompileError(Diagnostic(function.location, text, function.name))
        attributes[name] = tuple(
            DictAttr(dict(entries) if spec is None else {**entries, SHARDING_NAME: _sharding(spec, type, function)})
            for spec, type, entries in zip(specs, types, dictionaries, strict=True)
        )
    annotated = function.clone((), attributes=attributes)
    assert isinstance(annotated, Function)
    return annotated


def _sharding(spec: Spec, type: Type, function: Function) -> sdy.TensorSharding:
    rank = type.rank if isinstance(type, TensorType) else 0
    if len(spec) > rank:
        text = f"a spec must have at most {rank} dimensions for {type}, got {len(spec)}"
        raise CompileError(Diagnostic(function.location, text, function.name))
    dimensions = []
    for entry in (*spec, *[None] * (rank - len(spec))):
        names = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
        dimensions.append(sdy.DimensionSharding(tuple(map(sdy.AxisRef, names))))
    return sdy.TensorSharding(SymbolRefAttr(("mesh",)), tuple(dimensions))
