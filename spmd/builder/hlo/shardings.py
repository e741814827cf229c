"""Shardings as HLO text has them, GSPMD's `{devices=[2,1]<=[2]}`, of those of Shardy, which are over axes of meshes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spmd.builder.shape import Shape
from spmd.dialects import sdy_attributes as sdy
from spmd.ir import Module
from spmd.ir.attributes import Attribute, StringAttr, SymbolRefAttr

#: The attribute that has GSPMD's own text.
_TEXT = "mhlo.sharding"


def tile_text(sharding: sdy.TensorSharding, mesh: sdy.Mesh, manual: Sequence[str] = ()) -> str:
    """Return GSPMD's string for a sharding on `mesh`: the blocks of each dimension, and their devices.

    `manual`: axes over which the value is a block already. Raises ValueError for what it cannot say: an axis that is
    taken in part, sums that are left open.
    """
    numbers = {axis.name: number for number, axis in enumerate(mesh.axes)}
    sizes = [axis.size for axis in mesh.axes]
    if any(axis.sub_axis_info is not None for dimension in sharding.dimensions for axis in dimension.axes):
        raise ValueError("a sharding over a part of an axis is neither read nor written here")
    if sharding.unreduced:
        raise ValueError(f"a sharding with unreduced axes is not written, got {sharding}")
    blocks = [numbers[name] for name in manual]
    if not sizes:
        return f"{{maximal device={mesh.device_ids[0]}}}" if mesh.device_ids else "{replicated}"
    if len(blocks) == len(sizes):
        return "{manual}"
    tiled = [[numbers[axis.name] for axis in d.axes if axis.name not in manual] for d in sharding.dimensions]
    order = [number for axes in tiled for number in axes]
    if not order and not manual:
        return "{replicated}"
    rest = [number for number in range(len(sizes)) if number not in (*order, *blocks)]
    groups = [("manual", blocks), ("replicated", rest)]
    kinds = ", ".join(kind for kind, axes in groups if axes)
    tiles = [math.prod(sizes[number] for number in axes) for axes in (*tiled, *(axes for _, axes in groups if axes))]
    devices = _devices(mesh, sizes, [*order, *blocks, *rest])
    last = {"": "", "replicated": " last_tile_dim_replicate"}.get(kinds, f" last_tile_dims={{{kinds}}}")
    return f"{{devices=[{','.join(map(str, tiles))}]{devices}{last}}}"


def _devices(mesh: sdy.Mesh, sizes: Sequence[int], order: Sequence[int]) -> str:
    """Return the devices of a mesh, its axes in `order`: as numbers counted up and transposed, or one by one."""
    if mesh.device_ids:
        ids = np.array(mesh.device_ids).reshape(sizes).transpose(order)
        return ",".join(map(str, ids.reshape(-1).tolist()))
    if list(order) == list(range(len(sizes))):
        return f"<=[{math.prod(sizes)}]"
    return f"<=[{','.join(map(str, sizes))}]T({','.join(map(str, order))})"


@dataclass(frozen=True)
class ShardingTexts:
    """Writes the shardings of one module; `manual` are the axes over which what is written is a block already."""

    meshes: Mapping[str, sdy.Mesh]
    manual: tuple[str, ...] = ()
    mesh: sdy.Mesh | None = None

    @classmethod
    def of(cls, module: Module) -> ShardingTexts:
        """Return what writes the shardings of `module`."""
        ops = module.regions[0].block.ops
        return cls({op["sym_name"]: op["mesh"] for op in ops if op.name == "sdy.mesh"})

    def inside(self, sharding: sdy.TensorSharding, axes: Sequence[str]) -> ShardingTexts:
        """Return what writes the shardings of a computation that is manual over `axes`, too."""
        return ShardingTexts(self.meshes, (*self.manual, *axes), self._mesh(sharding))

    def _mesh(self, sharding: sdy.TensorSharding) -> sdy.Mesh:
        named = sharding.mesh
        mesh = self.meshes.get(named.root) if isinstance(named, SymbolRefAttr) else named
        if mesh is None:
            raise ValueError(f"there is no mesh {named}")
        return mesh

    def text(self, sharding: sdy.TensorSharding) -> str:
        """Return GSPMD's text of one sharding."""
        return tile_text(sharding, self._mesh(sharding), self.manual)

    def given(self, attributes: Mapping[str, Attribute]) -> str | None:
        """Return the sharding among the attributes of an op, an argument or a result; None where there is none."""
        text, given = attributes.get(_TEXT), attributes.get(sdy.SHARDING_NAME)
        if isinstance(text, StringAttr):
            return text.value
        if isinstance(given, sdy.TensorSharding):
            return self.text(given)
        if isinstance(given, sdy.ShardingPerValue) and given.shardings:
            return listed([self.text(sharding) for sharding in given.shardings])
        return None

    def of_block(self, shape: Shape) -> str | None:
        """Return the sharding of a value of a computation that is manual over axes; None in any other."""
        if self.mesh is None:
            return None
        mesh = self.mesh
        leaves = [sdy.TensorSharding(mesh, (sdy.DimensionSharding(),) * leaf.rank()) for leaf in shape.leaves()]
        texts = [tile_text(leaf, mesh, self.manual) for leaf in leaves]
        return listed(texts, is_tuple=shape.is_tuple()) if texts else None


def listed(texts: Sequence[str], *, is_tuple: bool = False) -> str:
    """Return one sharding as it is, those of a tuple in braces."""
    return texts[0] if len(texts) == 1 and not is_tuple else "{" + ", ".join(texts) + "}"
