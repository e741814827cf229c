"""Conversion of a lowered JAX function to a module."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jax.stages import Lowered

from partitioner.gspmd import parse_sharding
from spmd.analysis.custom_calls import retarget_callbacks
from spmd.analysis.shardings import GSPMD_NAME
from spmd.backends.custom_calls import register_custom_call
from spmd.dialects.mesh_groups import inline_meshes
from spmd.dialects.sdy_attributes import SHARDING_NAME
from spmd.errors import UsageError
from spmd.io.reading import parse
from spmd.ir import Function, Module, Op, Value
from spmd.ir.attributes import DictAttr, IntegerAttr, StringAttr
from spmd.jax import places
from spmd.support.arrays import Tree, UserFunction
from spmd.types import I32

_OF_MESHES = ("sdy.sharding_constraint", "sdy.mesh")
_SHARDINGS = (SHARDING_NAME, GSPMD_NAME)
_numbers = itertools.count()


def module_of(lowered: Lowered, name: str) -> Module:
    """Return the module of a `jax.stages.Lowered`, with locations in Python and callbacks connected to the functions
    here.
    """
    module = parse(lowered.as_text(debug_info=True), f"<{name}>", verify=False)
    places.locate(module)
    details = lowered._lowering.compile_args
    _connect_callbacks(module, details.get("host_callbacks") or ())
    return module


def set_processes(module: Module, count: int) -> None:
    """Set the module's number of partitions."""
    module.discardable = {**module.discardable, "mhlo.num_partitions": IntegerAttr(count, I32)}


def drop_shardings(module: Module) -> None:
    """Remove shardings, which have no effect in the view of one process: JAX annotates keys and callbacks."""
    inline_meshes(module.body.ops, module)
    kept: dict[Value, Value] = {}
    for op in list(module.walk()):
        op.replace_operands(kept)
        op.discardable = {name: value for name, value in op.discardable.items() if name not in _SHARDINGS}
        for region in op.regions:
            for block in region.blocks:
                for inner in block.ops:
                    if inner.name == "sdy.sharding_constraint":
                        kept[inner.result] = kept.get(inner.operands[0], inner.operands[0])
                block.ops[:] = [inner for inner in block.ops if inner.name not in _OF_MESHES]


def mesh_size(module: Module) -> int:
    """Return the number of devices of a module with shardings."""
    meshes = [op["mesh"] for op in module.body.ops if op.name == "sdy.mesh"]
    partitions = module.discardable.get("mhlo.num_partitions")
    sizes: list[int] = [math.prod(axis.size for axis in mesh.axes) for mesh in meshes]
    return max([*sizes, partitions.value if isinstance(partitions, IntegerAttr) else 1, *_tiled(module)])


def _tiled(module: Module) -> Iterator[int]:
    """Yield the number of devices of each of GSPMD's shardings."""
    for op in module.walk():
        entries = [op.discardable]
        if isinstance(op, Function):
            entries += [*op.argument_attributes, *op.result_attributes]
        for text in [entry[GSPMD_NAME] for entry in entries if GSPMD_NAME in entry]:
            if isinstance(text, StringAttr):
                yield from (math.prod(sharding.tiles) for sharding in parse_sharding(text.value))


def is_callback(op: Op) -> bool:
    """Return whether `op` calls a Python function of a JAX program."""
    return op.name == "stablehlo.custom_call" and str(op["call_target_name"]).startswith("spmd.jax.callback.")


def _connect_callbacks(module: Module, callbacks: Sequence[UserFunction]) -> None:
    """Register a custom call target for each Python function, which JAX numbers, that runs it on a rank."""
    targets: dict[int, str] = {}

    def target_of(number: int) -> str:
        if number not in targets:
            targets[number] = f"spmd.jax.callback.{next(_numbers)}"
            register_custom_call(targets[number], _calling(callbacks[number]))
        return targets[number]

    retarget_callbacks(module, target_of)


def _calling(callback: UserFunction) -> UserFunction:
    def call(*arrays: Tree, attributes: Tree) -> Tree:
        # JAX may keep its arguments: pass copies.
        return callback(*[np.array(array) if isinstance(array, np.ndarray) else array for array in arrays])

    return call


def name_arguments(module: Module, names: Sequence[str]) -> None:
    """Set the names of the arguments of @main after its tokens."""
    main = module.function("main")
    dictionaries = main.argument_attributes
    tokens = len(dictionaries) - len(names)
    named = [
        {**entry, "jax.arg_info": StringAttr(name.encode())}
        for entry, name in zip(dictionaries[tokens:], names, strict=True)
    ]
    main.attributes = {**main.attributes, "arg_attrs": tuple(map(DictAttr, [*dictionaries[:tokens], *named]))}


def check_no_callbacks(module: Module) -> None:
    """Raise UsageError for a program that calls back into this Python process: no other process can run it."""
    for op in module.walk():
        if is_callback(op):
            raise UsageError(f"{op.location}: a callback into Python cannot be exported")
