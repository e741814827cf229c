"""Manual computations of Shardy in HLO text: custom calls between a global program and the program of one device.

Their shardings stand in the frontend's attributes, in terms of meshes that the module's header names. They are read as
the calls and strings by which GSPMD says the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from spmd.attributes import DictAttr, SymbolRefAttr
from spmd.builder import ops
from spmd.builder.attributes import parse_attribute
from spmd.builder.builder import XlaOp
from spmd.builder.hlo.parser import Call
from spmd.builder.shape import Shape
from spmd.dialects import sdy_attributes as sdy

TO_LOCAL, TO_GLOBAL = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"
_MANUAL = "{manual}"


def read_manual_call(call: Call, target: str) -> XlaOp:
    """The values that enter (or leave) a manual computation, in the shapes that they have inside (or outside)."""
    into = target == TO_LOCAL
    shardings = list(_shardings(call, "xla.sdy.in_shardings" if into else "xla.sdy.out_shardings"))
    operands, shapes = call.operands(), call.shape.leaves()
    if not len(operands) == len(shapes) == len(shardings):
        raise call.fail(f"{len(operands)} operands, {len(shapes)} results and {len(shardings)} shardings")
    made = []
    for operand, shape, outside in zip(operands, shapes, shardings, strict=True):
        placed = _call(call, "Sharding", operand, operand.shape, outside if into else _MANUAL)
        name = "SPMDFullToShardShape" if into else "SPMDShardToFullShape"
        made.append(_call(call, name, placed, shape, _MANUAL if into else outside))
    return call.builder.Tuple(made) if call.shape.is_tuple() else made[0]


def _call(call: Call, target: str, operand: XlaOp, shape: Shape, sharding: str) -> XlaOp:
    made = ops.CustomCall(target, [operand], shape)
    call.builder.mark(made, sharding)
    return made


def _shardings(call: Call, name: str) -> Iterator[str]:
    """GSPMD's strings for the shardings of an attribute of the frontend."""
    meshes = parse_attribute(call.header("xla.sdy.meshes"))
    per_value = parse_attribute(call.frontend(name))
    manual = parse_attribute(call.frontend("xla.sdy.manual_axes"))
    if not (isinstance(meshes, DictAttr) and isinstance(per_value, sdy.ShardingPerValue)):
        raise call.fail(f"{name} and the meshes of the header do not say how the values are laid out")
    for sharding in per_value.shardings:
        named = sharding.mesh
        mesh = meshes.entries.get(named.root) if isinstance(named, SymbolRefAttr) else named
        if not isinstance(mesh, sdy.Mesh):
            raise call.fail(f"the header has no mesh {named}")
        if not isinstance(manual, sdy.ManualAxes) or set(manual.axes) != {axis.name for axis in mesh.axes}:
            raise call.fail("a computation that is manual over a part of the mesh's axes is not read here")
        yield tile_text(sharding, mesh)


def tile_text(sharding: sdy.TensorSharding, mesh: sdy.Mesh) -> str:
    """GSPMD's string for a sharding on `mesh`: how many blocks a dimension has, and who holds them.

    Raises ValueError for an axis that is taken in part.
    """
    numbers = {axis.name: number for number, axis in enumerate(mesh.axes)}
    sizes = [axis.size for axis in mesh.axes]
    if any(axis.sub_axis_info is not None for dimension in sharding.dimensions for axis in dimension.axes):
        raise ValueError("a sharding over a part of an axis is not read here")
    tiled = [[numbers[axis.name] for axis in dimension.axes] for dimension in sharding.dimensions]
    order = [number for axes in tiled for number in axes]
    if not order:
        return "{replicated}"
    rest = [number for number in range(len(sizes)) if number not in order]
    tiles = [math.prod(sizes[number] for number in axes) for axes in tiled]
    last = [math.prod(sizes[number] for number in rest)] if rest else []
    devices = np.array(mesh.device_ids or range(math.prod(sizes))).reshape(sizes).transpose([*order, *rest])
    ids = ",".join(map(str, devices.reshape(-1).tolist()))
    return f"{{devices=[{','.join(map(str, [*tiles, *last]))}]{ids}{' last_tile_dim_replicate' if rest else ''}}}"
