"""Manual computations of Shardy in HLO text: custom calls between a global program and the program of one device.

Their shardings stand in the frontend's attributes, in terms of meshes that the module's header names. They are read as
the calls and strings by which GSPMD says the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from spmd.builder import ops
from spmd.builder.attributes import parse_attribute
from spmd.builder.hlo.parser import Call
from spmd.builder.hlo.shardings import tile_text
from spmd.builder.shape import Shape
from spmd.builder.xla_op import XlaOp
from spmd.dialects import sdy_attributes as sdy
from spmd.ir.attributes import DictAttr, SymbolRefAttr

TO_LOCAL, TO_GLOBAL = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"


def read_manual_call(call: Call, target: str) -> XlaOp:
    """Return the values that enter (or leave) a manual computation, in the shapes that they have inside (or
    outside)."""
    into = target == TO_LOCAL
    shardings = list(_shardings(call, "xla.sdy.in_shardings" if into else "xla.sdy.out_shardings"))
    operands, shapes = call.operands(), call.shape.leaves()
    if not len(operands) == len(shapes) == len(shardings):
        raise call.fail(f"{len(operands)} operands, {len(shapes)} results and {len(shardings)} shardings")
    calls = []
    for operand, shape, (outside, inside) in zip(operands, shapes, shardings, strict=True):
        placed = _call(call, "Sharding", operand, operand.shape, outside if into else inside)
        name = "SPMDFullToShardShape" if into else "SPMDShardToFullShape"
        calls.append(_call(call, name, placed, shape, inside if into else outside))
    return call.builder.Tuple(calls) if call.shape.is_tuple() else calls[0]


def _call(call: Call, target: str, operand: XlaOp, shape: Shape, sharding: str) -> XlaOp:
    xla_op = ops.CustomCall(target, [operand], shape)
    call.builder.mark(xla_op, sharding)
    return xla_op


def _shardings(call: Call, name: str) -> Iterator[tuple[str, str]]:
    """Yield GSPMD's strings for the shardings of a frontend's attribute: of the value outside, and inside."""
    meshes = parse_attribute(call.header("xla.sdy.meshes"))
    per_value = parse_attribute(call.frontend(name))
    manual = parse_attribute(call.frontend("xla.sdy.manual_axes"))
    if not (isinstance(meshes, DictAttr) and isinstance(per_value, sdy.ShardingPerValue)):
        raise call.fail(f"{name} and the meshes of the header do not say how the values are laid out")
    if not isinstance(manual, sdy.ManualAxes):
        raise call.fail(f"xla.sdy.manual_axes are axes of a mesh, got {manual}")
    for sharding in per_value.shardings:
        named = sharding.mesh
        mesh = meshes.entries.get(named.root) if isinstance(named, SymbolRefAttr) else named
        if not isinstance(mesh, sdy.Mesh):
            raise call.fail(f"the header has no mesh {named}")
        if not {axis.name for axis in mesh.axes}.issuperset(manual.axes):
            raise call.fail(f"the mesh {mesh} has not the axes {', '.join(manual.axes)}")
        yield tile_text(sharding, mesh), tile_text(sharding, mesh, manual.axes)
