"""Meshes, shardings and their propagation, as data for a page."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from partitioner.graph import DATA_FLOW, Spec
from partitioner.mesh import DeviceMesh
from partitioner.record import PartitionRecord, PropagationStep
from partitioner.sharding import ShardedType, Sharding
from spmd.ir import Block, NumberedValue, Op, Value
from spmd.types import TensorType, Type
from spmd.viewing.places import LocationTable, name_in
from spmd.viewing.tables import Json, JsonTable, Texts


def element_bytes(type: Type) -> float:
    """Return the bytes of an element in memory; 0 if `type` is no tensor, or no array can hold its elements."""
    with suppress(TypeError):
        return type.dtype.itemsize if isinstance(type, TensorType) else 0
    return 0


def static_shape(type: Type) -> list[int] | None:
    """Return the shape of a tensor with static shape; None for other types."""
    return list(type.static_shape) if isinstance(type, TensorType) and type.is_static else None


@dataclass
class Layouts:
    """Tables of meshes, shardings and values of the global program."""

    texts: Texts
    places: LocationTable
    record: PartitionRecord | None
    meshes: JsonTable = field(default_factory=JsonTable)
    shardings: JsonTable = field(default_factory=JsonTable)
    globals: JsonTable = field(default_factory=JsonTable)
    _values_of: dict[int, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.record.graph if self.record is not None else None
        for value, spec in graph.specs.items() if graph is not None else ():
            self._values_of.setdefault(id(spec), value)

    def mesh(self, mesh: DeviceMesh) -> int:
        """Return the number of a mesh: its axes, their prime sub-axes, and the device at each position."""
        entry = {
            "axes": [[name, size] for name, size in mesh.axes.items()],
            "parts": [[part.name, part.pre_size, part.size] for part in mesh.sub_axes],
            "order": None if mesh.order is None else list(mesh.order),
        }
        return self.meshes.add((mesh.sub_axes, mesh.order), entry)

    def sharding(self, sharding: Sharding | None) -> int:
        """Return the number of a sharding; -1 for None."""
        if sharding is None:
            return -1
        key = (self.mesh(sharding.mesh), sharding.dimensions, sharding.partial, sharding.reduction)
        entry = {
            "mesh": key[0],
            "dims": [list(axes) for axes in sharding.dimensions],
            "partial": list(sharding.partial),
            "reduction": sharding.reduction.removeprefix("stablehlo."),
            "text": str(sharding),
        }
        return self.shardings.add(key, entry)

    def value(self, value: Value) -> int:
        """Return the number of a value of the global program: its type, sharding and propagation.

        [name, type, shape, bytes of an element, sharding, place, whether it is annotated, propagation steps].
        """
        number = self.globals.number(value)
        if number is not None:
            return number
        assert self.record is not None
        entry: list[Json] = [
            self.texts.of(name_of(value)),
            self.texts.of(str(value.type)),
            static_shape(value.type),
            element_bytes(value.type),
            self.sharding(self.record.layouts.get(value)),
            self.places.number(value.owner) if isinstance(value.owner, Op) else -1,
            int(self.record.is_annotated(value)),
            [],
        ]
        number = self.globals.add(value, entry)
        entry[-1] = [self._growth(growth) for growth in self.record.steps_of(value)]
        return number

    def boundary(self, name: str, sharded: ShardedType) -> int:
        """Return the number of an argument or result of which only the layout is known."""
        text, type = self.texts.of(name), self.texts.of(str(sharded.type))
        entry = [text, type, static_shape(sharded.type), element_bytes(sharded.type)]
        return self.globals.add((name, sharded), [*entry, self.sharding(sharded.sharding), -1, 1, []])

    def _growth(self, growth: PropagationStep) -> list[Json]:
        """Return [dimension, axes, op, its place, the value that the axes come from, its dimension]."""
        assert self.record is not None and self.record.mesh is not None
        op = growth.edge.op
        name = op.name.removeprefix("stablehlo.") if op is not None else ""
        origin = f"data flow of {name}" if growth.edge.name == DATA_FLOW else name
        source = self._of_spec(growth.source)
        return [
            growth.dimension,
            self.texts.of(self.record.mesh.format(growth.axes)),
            self.texts.of(origin),
            -1 if op is None else self.places.number(op),
            source,
            growth.source_dimension,
        ]

    def _of_spec(self, spec: Spec) -> int:
        """Return a value with the spec `spec`; -1 for a boundary that is no value."""
        value = self._values_of.get(id(spec))
        return -1 if value is None else self.value(value)


def name_of(value: Value) -> str:
    """Return the display name of a value: that of an argument in JAX, in the source, of its op, or its number."""
    if isinstance(value, NumberedValue) and (given := name_in(value.debug_location)) is not None:
        return given
    hint = value.name_hint
    if hint:
        return f"%{hint}"
    if isinstance(value.owner, Block):
        return f"%arg{value.index}"
    return value.owner.name.removeprefix("stablehlo.") if isinstance(value.owner, Op) else "?"
