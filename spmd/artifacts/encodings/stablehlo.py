"""StableHLO's and CHLO's attributes and types. Source: openxla/stablehlo, StablehloBytecode and ChloBytecode."""

from __future__ import annotations

from dataclasses import dataclass

from spmd import types as t
from spmd.artifacts.encodings.builtin import BoundsAttr
from spmd.artifacts.encodings.fields import (
    ATTRIBUTE,
    ATTRIBUTES,
    BOOL,
    F64,
    SHAPE,
    STRING,
    SVARINT,
    SVARINTS,
    TYPE,
    TYPES,
    DialectEncodings,
    EncodingTable,
    EntryReader,
    EntryWriter,
    Enum,
    Field,
    Simple,
    Version,
    expect,
)
from spmd.dialects import structs
from spmd.dialects.kinds import ENUMS
from spmd.ir.attributes import ArrayAttr, Attribute, EnumAttr

STABLEHLO, CHLO = DialectEncodings(), DialectEncodings()
_attributes = STABLEHLO.attributes

#: The fields of each structured attribute, in order.
STRUCT_FIELDS: dict[type, tuple[Field, ...]] = {
    structs.ChannelHandleAttr: (SVARINT, SVARINT),
    structs.ConvDimensionNumbersAttr: (SVARINT, SVARINT, SVARINTS) * 3,
    structs.DotDimensionNumbersAttr: (SVARINTS,) * 4,
    structs.GatherDimensionNumbersAttr: (SVARINTS,) * 5 + (SVARINT,),
    structs.ScatterDimensionNumbersAttr: (SVARINTS,) * 5 + (SVARINT,),
    structs.OutputOperandAliasAttr: (SVARINTS, SVARINT, SVARINTS),
    structs.DotAlgorithmAttr: (TYPE, TYPE, TYPE, SVARINT, SVARINT, SVARINT, BOOL),
    structs.SubAxisInfoAttr: (SVARINT, SVARINT),
}


def enum_encodings(table: EncodingTable, dialect: str, **codes: int) -> None:
    """Declare the codes of enum attributes, by their mnemonics."""
    for mnemonic, code in codes.items():
        enum_encoding(table, code, dialect, mnemonic)


def enum_encoding(table: EncodingTable, code: int, dialect: str, mnemonic: str, first: int = 0) -> None:
    """Declare the code of an enum attribute whose cases are numbered from `first`."""
    table.encoding(
        code, EnumAttr, Enum(ENUMS[dialect, mnemonic], first),
        make=lambda case: EnumAttr(dialect, mnemonic, case),
        take=lambda value: (value.value,) if (value.dialect, value.mnemonic) == (dialect, mnemonic) else None,
    )  # fmt: skip


@dataclass(frozen=True)
class AccuracyMode(structs.StructAttribute):
    """The mode of a result's accuracy, which is a separate attribute in files."""

    DIALECT, MNEMONIC = "stablehlo", "result_accuracy_mode"
    mode: str

    def format(self) -> str:
        return f"<{self.mode}>"


_MODES = ("DEFAULT", "HIGHEST", "TOLERANCE")


def accuracy_encodings(table: EncodingTable, mode_code: int, code: int, since: Version = (0, 9)) -> None:
    """Declare the codes of a result's accuracy and its mode."""
    table.encoding(mode_code, AccuracyMode, Enum(_MODES), take=lambda value: (value.mode,), since=since)
    table.encoding(
        code, structs.ResultAccuracyAttr, F64, F64, SVARINT, ATTRIBUTE,
        make=lambda atol, rtol, ulps, mode:
            structs.ResultAccuracyAttr(atol, rtol, ulps, expect(mode, AccuracyMode).mode),
        take=lambda value: (value.atol, value.rtol, value.ulps, AccuracyMode(value.mode)),
        since=since,
    )  # fmt: skip


def _read_flagged_attribute(reader: EntryReader) -> Attribute | None:
    return reader.attribute_at(reader.varint()) if BOOL.read(reader) else None


def _write_flagged_attribute(writer: EntryWriter, value: Attribute | None) -> None:
    BOOL.write(writer, value is not None)
    if value is not None:
        writer.varint(writer.attribute_number(value))


#: A byte that tells whether there is an attribute, then the attribute.
FLAGGED_ATTRIBUTE = Simple(_read_flagged_attribute, _write_flagged_attribute)


def checked_mesh(axes: Attribute, device_ids: Attribute | None) -> structs.MeshAttr:
    """Return a mesh with an array of axes."""
    elements = expect(axes, ArrayAttr).elements
    return structs.MeshAttr(tuple(expect(axis, structs.MeshAxisAttr) for axis in elements), device_ids)  # type: ignore[arg-type]


def checked_axis(name: str, info: Attribute | None) -> structs.AxisRefAttr:
    return structs.AxisRefAttr(name, None if info is None else expect(info, structs.SubAxisInfoAttr))


for _code, _cls in (
    (1, structs.ChannelHandleAttr), (4, structs.ConvDimensionNumbersAttr), (5, structs.DotDimensionNumbersAttr),
    (7, structs.GatherDimensionNumbersAttr), (11, structs.ScatterDimensionNumbersAttr),
    (14, structs.OutputOperandAliasAttr), (15, structs.DotAlgorithmAttr), (19, structs.SubAxisInfoAttr),
):  # fmt: skip
    _attributes.encoding(_code, _cls, *STRUCT_FIELDS[_cls])
enum_encodings(
    _attributes, "stablehlo",
    comparison_direction=2, comparison_type=3, fft_type=6, precision=8, rng_algorithm=9, transpose=12,
)  # fmt: skip
enum_encoding(_attributes, 10, "stablehlo", "rng_distribution", first=1)
_attributes.encoding(13, BoundsAttr, SHAPE, take=lambda value: (value.bounds,))
accuracy_encodings(_attributes, 16, 17)
_attributes.encoding(
    18, structs.ReplicaGroupMeshAxesAttr, ATTRIBUTE, ATTRIBUTES,
    make=lambda mesh, axes: structs.ReplicaGroupMeshAxesAttr(mesh, ArrayAttr(axes)),
    take=lambda value: (value.mesh, value.axes.elements),
)  # fmt: skip
_attributes.encoding(20, structs.AxisRefAttr, STRING, FLAGGED_ATTRIBUTE, make=checked_axis)
_attributes.encoding(21, structs.MeshAxisAttr, STRING, SVARINT)
_attributes.encoding(
    22, structs.MeshAttr, ATTRIBUTE, FLAGGED_ATTRIBUTE, make=checked_mesh,
    take=lambda value: (ArrayAttr(value.axes), value.device_ids),
)  # fmt: skip
STABLEHLO.types.encoding(0, t.TokenType, make=lambda: t.TOKEN)
STABLEHLO.types.encoding(1, t.FutureType, TYPES)

enum_encoding(CHLO.attributes, 0, "chlo", "comparison_direction")
enum_encoding(CHLO.attributes, 1, "chlo", "comparison_type")
