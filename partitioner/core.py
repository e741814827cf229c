"""The result of partitioning, and the construction of its module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from partitioner.processes import ProcessLayout
from partitioner.sharding import ShardedType
from spmd.dialects.mesh_groups import inline_meshes
from spmd.ir import Block, Function, Module, Op
from spmd.ir.attributes import Attribute, DictAttr, IntegerAttr
from spmd.types import I32, FunctionType

#: Attributes that apply to the global program only.
_GLOBAL_NAMES = ("mhlo.sharding", "mhlo.spmd_", "mhlo.xla_", "sdy.", "mhlo.frontend_attributes")


@dataclass(frozen=True)
class Partitioned:
    """The program of one process, and the shardings of its arguments and results.

    `notes` lists the ops that could not be partitioned, with their locations and the reason.
    """

    module: Module
    function: str
    in_shardings: tuple[ShardedType, ...]
    out_shardings: tuple[ShardedType, ...]
    notes: tuple[str, ...] = ()


def strip(entries: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Return the attributes without shardings."""
    return {name: value for name, value in entries.items() if not name.startswith(_GLOBAL_NAMES)}


def local_module(module: Module, function: Function, others: Iterable[Op], processes: ProcessLayout) -> Module:
    """Return the module of one process: `function` and the ops among `others` that it refers to."""
    kept = [op for op in others if op.name != "sdy.mesh"]
    inline_meshes([function, *kept], module)
    discardable = strip(module.discardable)
    discardable["mhlo.num_partitions"] = IntegerAttr(processes.grid.num_partitions, I32)
    if processes.by_replica:
        discardable["mhlo.num_replicas"] = IntegerAttr(processes.devices, I32)
    discardable.setdefault("mhlo.num_replicas", IntegerAttr(1, I32))
    return module.with_ops([function, *kept], discardable)


def local_function(function: Function, block: Block) -> Function:
    """Return `function` with another body, its types updated and its shardings removed."""
    inputs = tuple(argument.type for argument in block.arguments)
    results = tuple(value.type for value in block.terminator.operands)
    attributes = dict(function.attributes)
    attributes["function_type"] = FunctionType(inputs, results)
    for name in ("arg_attrs", "res_attrs"):
        if attributes.get(name):
            attributes[name] = tuple(DictAttr(strip(dict(entry.entries))) for entry in attributes[name])
    local = function.with_body(block, attributes)
    local.discardable = strip(function.discardable)
    return local


def called_functions(module: Module, roots: Sequence[Op]) -> list[Op]:
    """Return the functions of `module` that `roots` refer to by symbol, directly or indirectly."""
    symbols = module.symbols
    ops: dict[str, Op] = {}
    pending = list(roots)
    while pending:
        for op in pending.pop().walk():
            named = [value for key, value in op.attributes.items() if key != "sym_name"]
            for value in (*named, *op.discardable.values()):
                for name in _symbols(value):
                    if name in symbols and name not in ops and symbols[name].name != "sdy.mesh":
                        ops[name] = symbols[name]
                        pending.append(symbols[name])
    return list(ops.values())


def _symbols(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for entry in value:
            yield from _symbols(entry)
    elif hasattr(value, "path"):
        yield value.path[0]
