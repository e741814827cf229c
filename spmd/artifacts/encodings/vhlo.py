"""Encodings of VHLO's attributes and types, decoded to their equivalents in StableHLO and MLIR.

Source: openxla/stablehlo, VhloBytecode, VhloAttrs, VhloTypes, VhloEnums. `since` is the VHLO version that introduced
the code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spmd import types as t
from spmd.artifacts.encodings.builtin import (
    BoundsAttr,
    complex_of,
    encoding_of,
    entry_name,
    name_attribute,
    tensor_of,
)
from spmd.artifacts.encodings.fields import (
    ATTRIBUTE,
    ATTRIBUTES,
    BYTES,
    F64,
    OPTIONAL_ATTRIBUTE,
    SHAPE,
    SVARINT,
    SVARINTS,
    TYPE,
    TYPES,
    VARINT,
    DialectEncodings,
    EntryReader,
    EntryWriter,
    FieldValue,
    ListOf,
    Simple,
    attribute_of,
    expect,
)
from spmd.artifacts.encodings.numbers import DENSE, FLOAT, INTEGER
from spmd.artifacts.encodings.stablehlo import (
    STRUCT_FIELDS,
    accuracy_encodings,
    checked_axis,
    checked_mesh,
    enum_encoding,
    enum_encodings,
)
from spmd.dialects import structs
from spmd.ir import attributes as attrs

VHLO = DialectEncodings()
_attributes, _types = VHLO.attributes, VHLO.types


# --- attributes ------------------------------------------------------------------------------------------------------


def _read_truth(reader: EntryReader) -> attrs.Attribute:
    value = reader.varint()
    if value > 1:
        reader.fail(f"expected 0 or 1, got {value}")
    return attrs.TRUE if value else attrs.FALSE


def _read_entries(reader: EntryReader) -> attrs.DictAttr:
    count = reader.count("entries")
    return attrs.DictAttr({entry_name(ATTRIBUTE.read(reader)): ATTRIBUTE.read(reader) for _ in range(count)})


def _write_entries(writer: EntryWriter, value: attrs.DictAttr) -> None:
    writer.varint(len(value.entries))
    for name, entry in sorted(value.entries.items()):
        ATTRIBUTE.write(writer, name_attribute(name))
        ATTRIBUTE.write(writer, entry)


def _dense_of_array(value: attrs.DenseArrayAttr) -> tuple[FieldValue, ...] | None:
    """Return the fields of an array of 64-bit integers or booleans, which VHLO represents as a tensor."""
    if value.element_type not in (t.I64, t.I1):
        return None
    array = np.array(value.values, value.element_type.dtype)
    return (attrs.DenseAttr(array, t.TensorType(array.shape, value.element_type)),)


#: The number of versions of a custom call's interface, an integer in StableHLO and an enum here.
API_VERSIONS = 5


@dataclass(frozen=True)
class ApiVersion(structs.StructAttribute):
    """The version of a custom call's interface, as an enum."""

    DIALECT, MNEMONIC = "vhlo", "api_version_v1"
    number: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < API_VERSIONS:
            raise ValueError(f"a custom call's interface version must be below {API_VERSIONS}, got {self.number}")

    def format(self) -> str:
        return f"<{self.number}>"


def _mesh_axes(mesh: attrs.Attribute, axes: attrs.ArrayAttr) -> structs.ReplicaGroupMeshAxesAttr:
    if isinstance(mesh, attrs.StringAttr):
        mesh = attrs.SymbolRefAttr((mesh.value,))
    return structs.ReplicaGroupMeshAxesAttr(mesh, axes)


def _mesh_of(value: structs.ReplicaGroupMeshAxesAttr) -> attrs.Attribute:
    return name_attribute(value.mesh.root) if isinstance(value.mesh, attrs.SymbolRefAttr) else value.mesh


_attributes.encoding(1, attrs.ArrayAttr, ATTRIBUTES)
_attributes.whole(2, attrs.BoolAttr, Simple(_read_truth, lambda writer, value: writer.varint(int(value.value))))
enum_encodings(
    _attributes, "stablehlo",
    comparison_direction=3, comparison_type=4, fft_type=7, precision=11, rng_algorithm=12, transpose=16,
)  # fmt: skip
enum_encoding(_attributes, 13, "stablehlo", "rng_distribution", first=1)
_attributes.encoding(5, ApiVersion, VARINT, take=lambda value: (value.number,))
_attributes.whole(6, attrs.DictAttr, Simple(_read_entries, _write_entries))
_attributes.whole(8, attrs.FloatAttr, FLOAT)
_attributes.whole(9, attrs.IntegerAttr, INTEGER)
_attributes.encoding(10, structs.OutputOperandAliasAttr, *STRUCT_FIELDS[structs.OutputOperandAliasAttr])
_attributes.encoding(14, attrs.StringAttr, BYTES, take=lambda value: (value.data,) if value.type is None else None)
_attributes.encoding(
    14, attrs.SymbolRefAttr, BYTES, make=attrs.StringAttr,
    take=lambda value: (name_attribute(value.root).data,) if len(value.path) == 1 else None,
)  # fmt: skip
_attributes.encoding(15, attrs.DenseArrayAttr, DENSE, make=lambda array: array, take=_dense_of_array)
_attributes.whole(15, attrs.DenseAttr, DENSE)
_attributes.encoding(17, attrs.TypeAttr, TYPE)
_attributes.encoding(18, BoundsAttr, SHAPE, take=lambda value: (value.bounds,))
accuracy_encodings(_attributes, 19, 20, since=(1, 9))
_attributes.encoding(21, structs.SubAxisInfoAttr, SVARINT, SVARINT, since=(1, 16))


def _read_flagged(reader: EntryReader) -> attrs.Attribute | None:
    return ATTRIBUTE.read(reader) if reader.varint() else None


def _write_flagged(writer: EntryWriter, value: attrs.Attribute | None) -> None:
    writer.varint(value is not None)
    if value is not None:
        ATTRIBUTE.write(writer, value)


_attributes.encoding(
    22, structs.AxisRefAttr, ATTRIBUTE, Simple(_read_flagged, _write_flagged),
    make=lambda name, info: checked_axis(entry_name(name), info),
    take=lambda value: (name_attribute(value.name), value.sub_axis_info), since=(1, 16),
)  # fmt: skip
_attributes.encoding(
    23, structs.ReplicaGroupMeshAxesAttr, ATTRIBUTE, attribute_of(attrs.ArrayAttr),
    make=_mesh_axes, take=lambda value: (_mesh_of(value), value.axes), since=(1, 16),
)  # fmt: skip
_attributes.encoding(
    24, structs.MeshAxisAttr, ATTRIBUTE, SVARINT,
    make=lambda name, size: structs.MeshAxisAttr(entry_name(name), size),
    take=lambda value: (name_attribute(value.name), value.size), since=(1, 16),
)  # fmt: skip
_attributes.encoding(
    25, structs.MeshAttr, ATTRIBUTE, OPTIONAL_ATTRIBUTE, make=checked_mesh,
    take=lambda value: (attrs.ArrayAttr(value.axes), value.device_ids), since=(1, 16),
)  # fmt: skip


# --- types -----------------------------------------------------------------------------------------------------------

#: Element types: code, and the version that introduced each.
_ELEMENTS: dict[str, tuple[int, tuple[int, int]]] = {
    "i1": (0, (0, 9)), "bf16": (2, (0, 9)), "f16": (3, (0, 9)), "f32": (4, (0, 9)), "f64": (5, (0, 9)),
    "f8E4M3FN": (6, (0, 9)), "f8E5M2": (7, (0, 9)), "index": (9, (0, 9)),
    "i4": (10, (0, 9)), "i8": (11, (0, 9)), "i16": (12, (0, 9)), "i32": (13, (0, 9)), "i64": (14, (0, 9)),
    "ui4": (15, (0, 9)), "ui8": (16, (0, 9)), "ui16": (17, (0, 9)), "ui32": (18, (0, 9)), "ui64": (19, (0, 9)),
    "f8E4M3FNUZ": (27, (0, 10)), "f8E5M2FNUZ": (28, (0, 10)), "f8E4M3B11FNUZ": (29, (0, 11)),
    "i2": (31, (1, 2)), "ui2": (32, (1, 2)), "tf32": (34, (1, 6)), "f8E4M3": (35, (1, 7)), "f8E3M4": (36, (1, 7)),
    "f4E2M1FN": (37, (1, 8)), "f6E2M3FN": (38, (1, 8)), "f6E3M2FN": (39, (1, 8)), "f8E8M0FNU": (40, (1, 8)),
}  # fmt: skip
_SIGNED = 1


def _storage(flags: int, storage: t.Type) -> t.ElementType:
    """Return the storage type of a quantized type, with the signedness in `flags`."""
    storage_type = expect(storage, t.ElementType)
    if not storage_type.is_integer:
        raise ValueError(f"the storage type must be an integer type, got {storage_type}")
    return (
        storage_type
        if flags & _SIGNED
        else t.ELEMENT_TYPES["ui" + storage_type.name.removeprefix("u").removeprefix("i")]
    )


def _expressed(type: t.Type) -> t.ElementType:
    expressed_type = expect(type, t.ElementType)
    if not expressed_type.is_float or expressed_type.numpy is None:
        raise ValueError(f"the expressed type must be a floating-point type, got {expressed_type}")
    return expressed_type  # type: ignore[no-any-return]


def _quantized(
    flags: int, storage: t.Type, expressed: t.Type, scale: float, zero: int, low: int, high: int
) -> t.QuantizedType:
    return t.QuantizedType(_storage(flags, storage), _expressed(expressed), low, high, (scale,), (zero,))


def _quantized_axis(
    flags: int,
    storage: t.Type,
    expressed: t.Type,
    axis: int,
    low: int,
    high: int,
    scales: FieldValue,
    zeros: FieldValue,
) -> t.QuantizedType:
    return t.QuantizedType(_storage(flags, storage), _expressed(expressed), low, high, scales, zeros, axis)


def _storage_fields(type: t.QuantizedType) -> tuple[FieldValue, ...]:
    return int(type.storage.is_signed), t.ELEMENT_TYPES[f"i{type.storage.bits}"], type.expressed


def _per_tensor(type: t.QuantizedType) -> tuple[FieldValue, ...] | None:
    if type.is_per_axis or type.block_sizes or not type.storage.is_integer:
        return None
    return *_storage_fields(type), type.scales[0], type.zero_points[0], type.storage_min, type.storage_max


def _per_axis(type: t.QuantizedType) -> tuple[FieldValue, ...] | None:
    if not type.is_per_axis or not type.storage.is_integer:
        return None
    bounds = type.storage_min, type.storage_max
    return *_storage_fields(type), type.quantization_dimension, *bounds, type.scales, type.zero_points


for _name, (_code, _since) in _ELEMENTS.items():
    _types.constant(_code, t.ELEMENT_TYPES[_name], _since)
_types.encoding(
    1, t.ElementType, TYPE, make=complex_of,
    take=lambda type: (type.real,) if type.is_complex else None,
)  # fmt: skip
_types.encoding(8, t.FunctionType, TYPES, TYPES)
_types.encoding(
    20, t.TensorType, SHAPE, TYPE, make=tensor_of,
    take=lambda type: (type.shape, type.element_type) if encoding_of(type) is None else None,
)  # fmt: skip
_types.encoding(
    21, t.TensorType, ATTRIBUTE, SHAPE, TYPE,
    make=lambda encoding, shape, element: tensor_of(shape, element, encoding),
    take=lambda type: (encoding_of(type), type.shape, type.element_type) if type.bounds is not None else None,
)  # fmt: skip
_types.encoding(22, t.TokenType, make=lambda: t.TOKEN)
_types.encoding(23, t.TupleType, TYPES)
_types.encoding(
    24, t.QuantizedType, VARINT, TYPE, TYPE, F64, SVARINT, SVARINT, SVARINT, make=_quantized, take=_per_tensor
)
_types.encoding(25, t.UnrankedTensorType, TYPE)
_types.encoding(
    30, t.QuantizedType, VARINT, TYPE, TYPE, VARINT, SVARINT, SVARINT, ListOf(F64), SVARINTS,
    make=_quantized_axis, take=_per_axis, since=(0, 18),
)  # fmt: skip
for _code, _name, _since in ((26, "!shape.witness", (0, 9)), (33, "none", (1, 6))):
    _types.constant(_code, t.OpaqueType(_name), _since)
_types.encoding(
    41, t.BufferType, SHAPE, TYPE,
    take=lambda type: (type.shape, type.element_type) if type.memory is None else None, since=(1, 13),
)  # fmt: skip
_types.encoding(42, t.FutureType, TYPES, since=(1, 15))
