"""Converts ops of StableHLO and func to a version of VHLO, and back.

Operands, results and regions are the same in both, and types differ only in their encoding, so that only names and
attributes are converted. Attributes that an older version of an op lacks get their defaults when upgrading, and must
have them when downgrading. Source: openxla/stablehlo, the passes StablehloLegalizeToVhlo,
VhloToVersion and VhloLegalizeToStablehlo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from spmd import types as t
from spmd.artifacts.encodings.fields import Version
from spmd.artifacts.encodings.vhlo import ApiVersion
from spmd.artifacts.vhlo.defaults import default_of, integers
from spmd.artifacts.vhlo.ops import BY_BASE, VhloOp, base_of
from spmd.dialects import structs
from spmd.dialects.checks import element_of
from spmd.errors import ConversionError, Diagnostic
from spmd.ir import AttributeValue, Op
from spmd.ir.attributes import (
    TRUE,
    ArrayAttr,
    Attribute,
    BoolAttr,
    DenseAttr,
    DictAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    TypeAttr,
    UnitAttr,
)


@dataclass(frozen=True)
class _Exploded:
    """A structured attribute that VHLO represents as one attribute per field, with these names."""

    attribute: str
    cls: Any
    names: tuple[str, ...]
    #: Each field's name, its value's type, and whether it has a default.
    fields: tuple[tuple[str, type, bool], ...]


def _exploded(attribute: str, cls: Any, *names: str) -> _Exploded:
    parts = tuple((entry.name, _FIELD_TYPES[str(entry.type)], entry.default is not MISSING) for entry in fields(cls))
    return _Exploded(attribute, cls, names or tuple(name for name, _, _ in parts), parts)


_FIELD_TYPES: dict[str, type] = {"int": int, "bool": bool, "Type": t.Type, "tuple[int, ...]": tuple}


_CONVOLUTION = (_exploded("dimension_numbers", structs.ConvDimensionNumbersAttr),)
_GATHER = (_exploded("dimension_numbers", structs.GatherDimensionNumbersAttr),)
_TRANSFER = (_exploded("channel_handle", structs.ChannelHandleAttr, "channel_id", "channel_type"),)
_EXPLODED: dict[str, tuple[_Exploded, ...]] = {
    "convolution": _CONVOLUTION,
    "dynamic_conv": _CONVOLUTION,
    "dot_general": (
        _exploded("dot_dimension_numbers", structs.DotDimensionNumbersAttr),
        _exploded("algorithm", structs.DotAlgorithmAttr),
    ),
    "gather": _GATHER,
    "dynamic_gather": _GATHER,
    "scatter": (_exploded("scatter_dimension_numbers", structs.ScatterDimensionNumbersAttr),),
    "send": _TRANSFER,
    "recv": _TRANSFER,
}
_LAYOUTS = ("operand_layouts", "result_layouts")
#: Window attributes whose length is the number of spatial dimensions, which others depend on.
_WINDOW = "window_dimensions"


# --- from VHLO -------------------------------------------------------------------------------------------------------


def from_vhlo(row: VhloOp, attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Return the attributes of the op that `row` represents; raises ValueError for an invalid one."""
    base, left = row.base, dict(attributes)
    converted: dict[str, Attribute] = {}
    for exploded in _EXPLODED.get(base, ()):
        pieces = {name: left.pop(name) for name in exploded.names if name in left}
        if exploded.cls is not structs.DotAlgorithmAttr or not all(map(_is_none, pieces.values())):
            whole = _imploded(exploded, pieces)
            if whole is not None:
                converted[exploded.attribute] = whole
    if base == "dynamic_conv" and "padding" in row.attributes:
        left.pop("padding", None)  # the operand d_padding has the same information
    for name, value in left.items():
        if name not in row.attributes:
            converted[name] = value
            continue
        default = default_of(base, name)
        if default is None or not default.holds(value):
            converted["channel_handle" if name == "channel_id" else name] = _restored(base, name, value)
    if base == "custom_call" and any(name in converted for name in _LAYOUTS):
        converted.update((name, left[name]) for name in _LAYOUTS if name in left)
    return converted


def _is_none(value: Attribute) -> bool:
    return isinstance(value, TypeAttr) and str(value.type) == "none"


def _imploded(exploded: _Exploded, pieces: Mapping[str, Attribute]) -> Attribute | None:
    """Return the structured attribute; None if its fields indicate that there is none."""
    values: dict[str, AttributeValue] = {}
    for (field, kind, optional), name in zip(exploded.fields, exploded.names, strict=True):
        piece = pieces.get(name)
        if piece is not None:
            value = values[field] = _plain(piece)
            if not isinstance(value, kind):
                raise ValueError(f"attribute '{name}': {value} is no {kind.__name__}")
        elif not optional:
            return None
    return exploded.cls(**values)  # type: ignore[no-any-return]


def _plain(value: Attribute) -> AttributeValue:
    if isinstance(value, (IntegerAttr, BoolAttr)):
        return value.value
    if isinstance(value, TypeAttr):
        return value.type
    if isinstance(value, DenseAttr) and value.array.ndim == 1 and value.type.element_type is t.I64:
        return tuple(value.array.tolist())
    raise ValueError(f"expected integers or a type, got {type(value).__name__}")


def _restored(base: str, name: str, value: Attribute) -> Attribute:
    """Return an attribute in StableHLO's form."""
    if name == "channel_id":
        return structs.ChannelHandleAttr(_plain(value), 0)
    if (base, name) in (("call", "callee"), ("composite", "decomposition")):
        return _symbol(value)
    if name == "called_computations" and isinstance(value, ArrayAttr):
        return ArrayAttr(tuple(map(_symbol, value.elements)))
    if isinstance(value, ApiVersion):
        return IntegerAttr(value.number, t.I32)
    return value


def _symbol(value: Attribute) -> Attribute:
    return SymbolRefAttr((value.value,)) if isinstance(value, StringAttr) else value


# --- to VHLO ---------------------------------------------------------------------------------------------------------


def to_vhlo(op: Op, version: Version) -> tuple[VhloOp, dict[str, Attribute]]:
    """Return the VHLO op of `version` for `op`, and its inherent attributes; raises ConversionError if it has none."""
    base = base_of(op.name)
    assert base is not None and op.definition is not None
    rows = BY_BASE[base]
    row = next((row for row in rows if row.is_in(version)), None)
    if row is None:
        raise fault(op, f"is supported from version {_text(rows[-1].since)}", version)
    newest = rows[0]
    attributes = _vhlo_attributes(op, base, {*newest.attributes, *row.attributes})
    for name in newest.attributes:
        default = default_of(base, name)
        if name not in row.attributes and (default is None or not default.holds(attributes[name])):
            raise fault(op, f"attribute {name} is supported from version {_text(newest.since)}", version)
    if newest.widened and not row.widened and len(op.operands) != 1:
        raise fault(op, f"any number of operands is supported from version {_text(newest.since)}", version)
    _check_constraints(op, base, version)
    return row, {name: attributes[name] for name in row.attributes}


def fault(op: Op, why: str, version: Version) -> ConversionError:
    """Return the error that `op` cannot be written at `version`."""
    return ConversionError(Diagnostic(op.location, f"VHLO {_text(version)} cannot hold it: {why}", op.name))


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _vhlo_attributes(op: Op, base: str, names: set[str]) -> dict[str, Attribute]:
    assert op.definition is not None
    attributes: dict[str, Attribute] = {}
    for name, value in op.attributes.items():
        declared = op.definition.attribute_table.get(name)
        if declared is not None:
            attributes[name] = _spelled(declared.kind.encode(value))
    for exploded in _EXPLODED.get(base, ()):
        whole = attributes.pop(exploded.attribute, None)
        if whole is not None:
            for (field, _, _), name in zip(exploded.fields, exploded.names, strict=True):
                attributes[name] = _attribute(getattr(whole, field))
    handle = attributes.pop("channel_handle", None)
    if isinstance(handle, structs.ChannelHandleAttr):
        attributes["channel_id"] = IntegerAttr(handle.handle, t.I64)
    if isinstance(attributes.get("api_version"), IntegerAttr):
        attributes["api_version"] = ApiVersion(attributes["api_version"].value)  # type: ignore[attr-defined]
        if attributes["api_version"] == ApiVersion(4):
            attributes.setdefault("backend_config", DictAttr({}))
    rank = _rank(op)
    for name in names - set(attributes):
        default = default_of(base, name)
        if default is None:
            raise ConversionError(Diagnostic(op.location, f"attribute {name} must be given", op.name))
        attributes[name] = default.make(rank)
    return attributes


def _rank(op: Op) -> int:
    """Return the number of dimensions of the op's window."""
    numbers = op.attributes.get("dimension_numbers")
    if isinstance(numbers, structs.ConvDimensionNumbersAttr):
        return len(numbers.input_spatial_dimensions)
    return len(op.attributes.get(_WINDOW, ()))


def _spelled(value: Attribute) -> Attribute:
    return TRUE if isinstance(value, UnitAttr) else value


def _attribute(value: AttributeValue) -> Attribute:
    """Return a field of a structured attribute as an attribute."""
    if isinstance(value, bool):
        return BoolAttr(value)
    if isinstance(value, int):
        return IntegerAttr(value, t.I64)
    if isinstance(value, tuple):
        array = integers((len(value),), 0).array.copy()
        array[:] = value
        return DenseAttr(array, t.TensorType(array.shape, t.I64))
    return TypeAttr(value)


_REDUCERS = ("all_reduce", "reduce", "reduce_scatter", "reduce_window", "scatter", "select_and_scatter")


def _check_constraints(op: Op, base: str, version: Version) -> None:
    if base in _REDUCERS and version < (0, 17):
        pairs = zip(op.operand_types, op.result_types, strict=False)
        if any(element_of(a) is not element_of(b) for a, b in pairs):
            raise fault(op, "reductions to another element type are supported from version 0.17", version)
    if base == "composite" and op.regions and version < (1, 14):
        raise fault(op, "regions are supported from version 1.14", version)
    if base == "custom_call":
        if version < (1, 3) and (isinstance(op["backend_config"], DictAttr) or op["api_version"] == 4):
            raise fault(op, "a dictionary as backend_config is supported from version 1.3", version)
        if version < (1, 17) and any(isinstance(type, t.FutureType) for type in op.operand_types):
            raise fault(op, "operands of future type are supported from version 1.17", version)
