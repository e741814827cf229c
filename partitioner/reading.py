"""Reads sdy's and GSPMD's sharding attributes as meshes and annotations in one form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from partitioner.core import called_functions
from partitioner.gspmd import TileSharding, merged_grid, parse_sharding, tile_axes
from partitioner.mesh import Axes, DeviceMesh, Grid, MeshBuilder, MeshError
from partitioner.sharding import Annotation, Sharding
from spmd.analysis.shardings import GSPMD_NAME, TO_SHARD_CALL
from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.sdy_attributes import SHARDING_NAME
from spmd.dialects.sdy_collectives import collective_axes
from spmd.dialects.sdy_values import is_collective
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module, Op
from spmd.ir.attributes import Attribute, IntegerAttr, StringAttr, SymbolRefAttr
from spmd.types import TensorType, Type


class ShardingReader:
    """Reads the shardings of one program as sub-axes of one `DeviceMesh`.

    Meshes that the program does not refer to are ignored. `devices` is the number of devices if it refers to none, or
    to single devices only.
    """

    def __init__(self, module: Module, function: Function | None = None, devices: int | None = None) -> None:
        roots = [module] if function is None else [function, *called_functions(module, [function])]
        self._sdy: dict[str, sdy.Mesh] = {op["sym_name"]: op["mesh"] for op in module.body.ops if op.name == "sdy.mesh"}
        used = list(_used_meshes(roots, self._sdy))
        tiles = [tile for op, value, text in _strings(roots) for tile in _parse(text, op, value)]
        self._used = [mesh for _, mesh in used]
        grids = list(map(_grid, self._used))
        if any(tile.kind == "tiled" for tile in tiles) or not grids:
            grids += merged_grid(tiles, devices or _partitions(module))
        try:
            self._builder = MeshBuilder(grids, _cuts(roots, self._sdy))
        except MeshError as error:
            raise CompileError(Diagnostic(module.location, str(error), module.name)) from None
        #: The mesh of propagation and lowering: that of the first mesh to which the program refers.
        self.mesh: DeviceMesh = self._builder.mesh
        #: The name of this mesh in the program, or one that is free.
        self.mesh_name = next((name for name, _ in used if name is not None), "mesh")
        self._axes: dict[Grid, list[Axes]] = {}

    def _grid_axes(self, grid: Grid) -> list[Axes]:
        if grid not in self._axes:
            self._axes[grid] = self._builder.axes(grid)
        return self._axes[grid]

    def mesh_of(self, reference: SymbolRefAttr | sdy.Mesh) -> sdy.Mesh:
        """Return the mesh of a sharding, which may be a symbol or inline."""
        return reference if isinstance(reference, sdy.Mesh) else self._sdy[reference.root]

    def axes(self, refs: Iterable[sdy.AxisRef], mesh: sdy.Mesh) -> Axes:
        """Return the sub-axes that axis references to `mesh` name, major first."""
        by_axis = dict(zip((axis.name for axis in mesh.axes), self._grid_axes(_grid(mesh)), strict=True))
        picked_axes: list[int] = []
        for ref in refs:
            sub_axes = by_axis[ref.name]
            size = mesh.axis_size(ref.name)
            assert size is not None
            start, stop = ref.interval(size)
            before = 1
            picked = []
            for sub_axis in sub_axes:
                if start <= before < stop:
                    picked.append(sub_axis)
                before *= self.mesh.sizes[sub_axis]
            if self.mesh.count(picked) != stop // start:
                raise MeshError(f"sub-axis {ref.format()} is not a sequence of the mesh's prime sub-axes")
            picked_axes += picked
        return tuple(picked_axes)

    def replicated(self, type: TensorType) -> Annotation:
        """Return the annotation of a replicated tensor."""
        return Annotation(Sharding(self.mesh, ((),) * type.rank), (True,) * type.rank, (0,) * type.rank)

    def annotation(self, sharding: sdy.TensorSharding, type: Type) -> Annotation | None:
        """Return the annotation of an sdy sharding; None for values that are no tensors."""
        mesh = self.mesh_of(sharding.mesh)
        if not isinstance(type, TensorType):
            return None
        if mesh.is_maximal:
            (device,) = mesh.device_ids
            if device >= self.mesh.size > 1:
                raise MeshError(f"device ids must be less than {self.mesh.size}, got {device}")
            return replace(self.replicated(type), device=device) if self.mesh.size > 1 else self.replicated(type)
        if not mesh.axes:
            closed = tuple(dimension.is_closed for dimension in sharding.dimensions)
            return Annotation(Sharding(self.mesh, ((),) * type.rank), closed, (0,) * type.rank)
        return Annotation(
            Sharding(
                self._builder.mesh_of(_grid(mesh)),
                tuple(self.axes(dimension.axes, mesh) for dimension in sharding.dimensions),
                tuple(sorted(self.axes(sharding.unreduced, mesh))),
                {"sum": "stablehlo.add", "max": "stablehlo.maximum", "min": "stablehlo.minimum"}[sharding.reduction_op],
            ),
            tuple(dimension.is_closed for dimension in sharding.dimensions),
            tuple(dimension.priority or 0 for dimension in sharding.dimensions),
            frozenset(self.axes(sharding.replicated, mesh)),
        )

    def collective_axes(self, op: Op) -> frozenset[int]:
        """Return the sub-axes that one of sdy's collectives operates on."""
        mesh = self.mesh_of(op["out_sharding"].mesh)
        return frozenset(axis for axes in collective_axes(op) for axis in self.axes(axes, mesh))

    def manual(self, op: Op) -> frozenset[int]:
        """Return the manual sub-axes of an sdy.manual_computation."""
        names = op["manual_axes"].axes
        shardings = [*op["in_shardings"].shardings, *op["out_shardings"].shardings]
        for mesh in [*(self.mesh_of(sharding.mesh) for sharding in shardings), *self._used]:
            if names and all(mesh.axis_size(name) is not None for name in names):
                return frozenset(self.axes([sdy.AxisRef(name) for name in names], mesh))
        return frozenset()

    def order(self, op: Op) -> DeviceMesh:
        """Return the mesh whose device order an sdy.manual_computation uses."""
        for sharding in (*op["in_shardings"].shardings, *op["out_shardings"].shardings):
            mesh = self.mesh_of(sharding.mesh)
            if mesh.axes:
                return self._builder.mesh_of(_grid(mesh))
        return self.mesh

    def tiles(self, text: str, op: Op) -> tuple[TileSharding, ...]:
        """Return the shardings in the GSPMD string `text` of `op`; raises CompileError if it cannot be parsed."""
        return _parse(text, op)

    def tile_annotation(self, tile: TileSharding, type: Type) -> tuple[Annotation | None, frozenset[int]]:
        """Return the annotation of a GSPMD sharding (None: unspecified), and its manual sub-axes."""
        if not isinstance(type, TensorType):
            return None, frozenset()
        rank = type.rank
        if tile.kind == "manual":
            return None, frozenset(range(len(self.mesh.sub_axes)))
        if tile.kind == "unknown":
            return None, frozenset()
        closed = (not tile.is_open,) * rank
        if tile.kind == "maximal" and self.mesh.size > 1:
            if tile.device >= self.mesh.size:
                raise MeshError(f"device ids must be less than {self.mesh.size}, got {tile.device}")
            return replace(self.replicated(type), device=tile.device), frozenset()
        if tile.kind != "tiled":
            return Annotation(Sharding(self.mesh, ((),) * rank), closed, (0,) * rank), frozenset()
        if tile.rank != rank:
            raise MeshError(f"the sharding must have the tensor's rank {rank}, got {tile.rank}")
        dimensions, manual = tile_axes(tile, self._grid_axes(tile.grid()))
        return Annotation(Sharding(self._builder.mesh_of(tile.grid()), dimensions), closed, (0,) * rank), manual

    def manual_call(self, op: Op) -> frozenset[int]:
        """Return the manual sub-axes of the per-process value of a call into or out of manual code."""
        text = op.discardable.get(GSPMD_NAME) if op["call_target_name"] == TO_SHARD_CALL else None
        if not isinstance(text, StringAttr):
            source = op.operands[0].defining_op
            text = None if source is None else source.discardable.get(GSPMD_NAME)
        if not isinstance(text, StringAttr):
            return frozenset(range(len(self.mesh.sub_axes)))
        part = op.result if op["call_target_name"] == TO_SHARD_CALL else op.operands[0]
        return self.tile_annotation(_parse(text.value, op)[0], part.type)[1]

    def manual_axes(self, op: Op) -> frozenset[int]:
        """Return the manual sub-axes in the GSPMD shardings of `op`."""
        text = op.discardable.get(GSPMD_NAME)
        axes: frozenset[int] = frozenset()
        for tile in _parse(text.value, op) if isinstance(text, StringAttr) else ():
            if tile.kind == "manual":
                return frozenset(range(len(self.mesh.sub_axes)))
            if tile.kind == "tiled":
                axes |= tile_axes(tile, self._grid_axes(tile.grid()))[1]
        return axes

    def device(self, op: Op) -> int | None:
        """Return the only device that computes `op`, by the shardings of its results; None if there is none.

        Raises CompileError for a device outside the mesh, for several, and if results are also sharded over others.
        """
        shardings, cut = self._devices(op)
        devices = sorted(shardings)
        if not devices or self.mesh.size == 1:
            return None
        if devices[-1] >= self.mesh.size:
            text = f"device ids must be less than {self.mesh.size}, got {devices[-1]}"
        elif len(devices) > 1:
            text = f"all results must be on one device, got devices {devices[0]} and {devices[1]}"
        elif cut:
            text = f"results must not be both on device {devices[0]} alone and sharded over several"
        else:
            return devices[0]
        raise CompileError(Diagnostic(op.location, text, op.name))

    def _devices(self, op: Op) -> tuple[set[int], bool]:
        """Return the single devices that the shardings of `op` name, and whether a result is sharded."""
        attribute = op.discardable.get(SHARDING_NAME)
        text = op.discardable.get(GSPMD_NAME)
        if isinstance(attribute, sdy.TensorSharding | sdy.ShardingPerValue):
            shardings = [attribute] if isinstance(attribute, sdy.TensorSharding) else attribute.shardings
            meshes = [self.mesh_of(sharding.mesh) for sharding in shardings]
            cut = any(dimension.axes for sharding in shardings for dimension in sharding.dimensions)
            return {mesh.device_ids[0] for mesh in meshes if mesh.is_maximal}, cut
        if isinstance(text, StringAttr):
            tiles = _parse(text.value, op)
            cut = any(prod(tile.tiles[: tile.rank]) > 1 for tile in tiles if tile.kind == "tiled")
            return {tile.device for tile in tiles if tile.kind == "maximal"}, cut
        return set(), False

    def annotation_of(self, op: Op, sharding: sdy.TensorSharding, type: Type) -> Annotation | None:
        """Return the annotation of a value by `op`; raises CompileError at the op if it does not fit the mesh."""
        try:
            return self.annotation(sharding, type)
        except MeshError as error:
            raise CompileError(Diagnostic(op.location, str(error), op.name)) from None

    def of_attributes(self, entries: Mapping[str, Attribute], types: list[Type], op: Op) -> list[Annotation | None]:
        """Return the annotations in the attributes of a value or an op; sdy's take precedence over GSPMD's."""
        try:
            return self._of_attributes(entries, types, op)
        except MeshError as error:
            raise CompileError(Diagnostic(op.location, str(error), op.name)) from None

    def _of_attributes(self, entries: Mapping[str, Attribute], types: list[Type], op: Op) -> list[Annotation | None]:
        attribute = entries.get(SHARDING_NAME)
        if isinstance(attribute, sdy.TensorSharding):
            return [self.annotation(attribute, types[0])]
        if isinstance(attribute, sdy.ShardingPerValue) and len(attribute.shardings) == len(types):
            return [self.annotation(sharding, type) for sharding, type in zip(attribute.shardings, types, strict=True)]
        text = entries.get(GSPMD_NAME)
        if isinstance(text, StringAttr):
            tiles = _parse(text.value, op)
            if len(tiles) == len(types):
                return [self.tile_annotation(tile, type)[0] for tile, type in zip(tiles, types, strict=True)]
            if len(tiles) == 1:
                return [self.tile_annotation(tiles[0], type)[0] for type in types]
        return [None] * len(types)


def _parse(text: str, op: Op, value: str = "") -> tuple[TileSharding, ...]:
    """Return the shardings in a string of `op`, which belongs to `value` if given. Raises CompileError if malformed."""
    try:
        return parse_sharding(text)
    except MeshError as error:
        message = f"{value}: {error}" if value else str(error)
        raise CompileError(Diagnostic(op.location, message, op.name)) from None


def _grid(mesh: sdy.Mesh) -> Grid:
    return Grid(tuple((axis.name, axis.size) for axis in mesh.axes), mesh.device_ids or None)


def _partitions(module: Module) -> int:
    count = module.discardable.get("mhlo.num_partitions")
    return count.value if isinstance(count, IntegerAttr) else 1


def _strings(roots: Sequence[Op]) -> Iterator[tuple[Op, str, str]]:
    """Yield (op, argument or result, text) of GSPMD's shardings."""
    for op in _walked(roots):
        entries = {"": op.discardable}
        if isinstance(op, Function):
            entries |= {f"argument {i} of @{op.symbol}": entry for i, entry in enumerate(op.argument_attributes)}
            entries |= {f"result {i} of @{op.symbol}": entry for i, entry in enumerate(op.result_attributes)}
        for value, entry in entries.items():
            text = entry.get(GSPMD_NAME)
            if isinstance(text, StringAttr):
                yield op, value, text.value


def _walked(roots: Sequence[Op]) -> Iterator[Op]:
    for root in roots:
        yield from root.walk()


def _used_meshes(roots: Sequence[Op], known: Mapping[str, sdy.Mesh]) -> Iterator[tuple[str | None, sdy.Mesh]]:
    """Yield (name, mesh) of the meshes with axes that shardings refer to, the module's first, in its order."""
    meshes = list(dict.fromkeys(sharding.mesh for sharding in _shardings(roots)))
    names = {mesh.root for mesh in meshes if isinstance(mesh, SymbolRefAttr)}
    for name, mesh in known.items():
        if name in names and mesh.axes:
            yield name, mesh
    yield from ((None, inline) for inline in meshes if isinstance(inline, sdy.Mesh) and inline.axes)


def _shardings(roots: Sequence[Op]) -> Iterator[sdy.TensorSharding]:
    for op in _walked(roots):
        values_of_op: list[object] = list(op.discardable.values())
        if op.name.startswith("sdy."):
            values_of_op += op.attributes.values()
        if isinstance(op, Function):
            values_of_op += [
                value for entry in (*op.argument_attributes, *op.result_attributes) for value in entry.values()
            ]
        for value in values_of_op:
            if isinstance(value, sdy.TensorSharding):
                yield value
            elif isinstance(value, sdy.ShardingPerValue):
                yield from value.shardings


def _cuts(roots: Sequence[Op], known: Mapping[str, sdy.Mesh]) -> dict[Grid, set[tuple[str, int]]]:
    """Return (axis, pre-size) of the boundaries of sub-axes, by mesh."""
    cuts: dict[Grid, set[tuple[str, int]]] = {}
    for reference, refs in _axis_lists(roots):
        for ref in refs:
            if ref.sub_axis_info is not None:
                mesh = reference if isinstance(reference, sdy.Mesh) else known[reference.root]
                start, stop = ref.interval(mesh.axis_size(ref.name) or 1)
                cuts.setdefault(_grid(mesh), set()).update(((ref.name, start), (ref.name, stop)))
    return cuts


def _axis_lists(roots: Sequence[Op]) -> Iterator[tuple[SymbolRefAttr | sdy.Mesh, Sequence[sdy.AxisRef]]]:
    """Yield every list of axes in the program, with its mesh."""
    for sharding in _shardings(roots):
        for axes in (*(dimension.axes for dimension in sharding.dimensions), sharding.replicated, sharding.unreduced):
            yield sharding.mesh, axes
    for op in _walked(roots):
        if is_collective(op):
            for axes in collective_axes(op):
                yield op["out_sharding"].mesh, axes
