"""Shardy's attributes in bytecode. Source: openxla/shardy, dialect/sdy/ir/bytecode."""

from __future__ import annotations

from spmd.artifacts.encodings.builtin import entry_name, name_attribute
from spmd.artifacts.encodings.fields import (
    ATTRIBUTES,
    BOOL,
    STRING,
    SVARINT,
    SVARINTS,
    DialectEncodings,
    EntryReader,
    EntryWriter,
    Enum,
    FieldValue,
    Simple,
    attribute_of,
    attributes_of,
    optional_of,
)
from spmd.dialects import sdy_attributes as sdy
from spmd.ir.attributes import SymbolRefAttr

SDY = DialectEncodings()
_table = SDY.attributes


def _read_priority(reader: EntryReader) -> int | None:
    value, there = reader.flagged()
    return value if there else None


def _write_priority(writer: EntryWriter, value: int | None) -> None:
    writer.flagged(value or 0, value is not None)


_PRIORITY = Simple(_read_priority, _write_priority)
#: Reductions of unreduced axes, in the dialect's order.
_REDUCTIONS = ("sum", "max", "min")


_AXES = attributes_of(sdy.AxisRef)
_MESH = attribute_of(SymbolRefAttr, sdy.Mesh)
_DIMENSIONS = attributes_of(sdy.DimensionSharding)


def _sharding(
    mesh: FieldValue, dimensions: FieldValue, replicated: FieldValue, unreduced: FieldValue = (), reduction: str = "sum"
) -> FieldValue:
    return sdy.TensorSharding(mesh, dimensions, replicated, unreduced, reduction)


def _parts(value: sdy.TensorSharding) -> tuple[FieldValue, ...]:
    return value.mesh, value.dimensions, value.replicated


_table.encoding(
    0, sdy.ManualAxes, ATTRIBUTES,
    make=lambda names: sdy.ManualAxes(tuple(map(entry_name, names))),
    take=lambda value: (tuple(map(name_attribute, value.axes)),),
)  # fmt: skip
_table.encoding(1, sdy.MeshAxis, STRING, SVARINT)
_table.encoding(2, sdy.Mesh, attributes_of(sdy.MeshAxis), SVARINTS)
_table.encoding(3, sdy.SubAxisInfo, SVARINT, SVARINT)
_table.encoding(4, sdy.AxisRef, STRING, optional_of(sdy.SubAxisInfo))
_table.encoding(5, sdy.DimensionSharding, _AXES, BOOL, _PRIORITY)
_table.encoding(
    6, sdy.TensorSharding, _MESH, _DIMENSIONS, _AXES,
    make=_sharding, take=lambda value: None if value.unreduced else _parts(value),
)  # fmt: skip
_table.encoding(
    7, sdy.ShardingPerValue, attributes_of(sdy.TensorSharding),
    take=lambda value: None if any(sharding.unreduced for sharding in value.shardings) else (value.shardings,),
)  # fmt: skip
_table.encoding(8, sdy.DimMapping, SVARINTS)
_table.encoding(9, sdy.TensorMapping, attributes_of(sdy.DimMapping))
_table.encoding(10, sdy.OpShardingRule, SVARINTS, *(attributes_of(sdy.TensorMapping),) * 2, *(SVARINTS,) * 4, BOOL)
_table.encoding(11, sdy.AxisRefList, _AXES)
_table.encoding(12, sdy.ListOfAxisRefLists, attributes_of(sdy.AxisRefList))
_table.encoding(13, sdy.AllToAllParam, _AXES, SVARINT, SVARINT)
_table.encoding(14, sdy.AllToAllParamList, attributes_of(sdy.AllToAllParam))
_table.encoding(
    15, sdy.TensorSharding, _MESH, _DIMENSIONS, _AXES, _AXES,
    make=_sharding, take=lambda value: (*_parts(value), value.unreduced) if value.reduction_op == "sum" else None,
)  # fmt: skip
_table.encoding(16, sdy.ShardingPerValue, attributes_of(sdy.TensorSharding))
_table.encoding(
    17, sdy.TensorSharding, _MESH, _DIMENSIONS, _AXES, _AXES, Enum(_REDUCTIONS, signed=True),
    make=_sharding, take=lambda value: (*_parts(value), value.unreduced, value.reduction_op),
)  # fmt: skip
