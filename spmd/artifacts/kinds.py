"""What ops with the same name and attributes share in a file, computed once for all of them.

An op's inherent attributes are in the dictionary of all its attributes or, since version 5 of the format, in separate
properties: one reference per attribute, sorted by name, if the producer knew the op.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from spmd.artifacts import sections as s
from spmd.artifacts.encodings.fields import ATTRIBUTE, OPTIONAL_ATTRIBUTE, EntryReader
from spmd.artifacts.entries import Entry, Referrer
from spmd.artifacts.memo import Memo
from spmd.artifacts.page import FilePage
from spmd.artifacts.tables import OpName, Tables
from spmd.artifacts.vhlo.convert import from_vhlo
from spmd.artifacts.vhlo.ops import VHLO_OPS, VhloOp, name_of
from spmd.dialects import core
from spmd.dialects.core import OpDef
from spmd.errors import Diagnostic
from spmd.ir import OP_CLASSES, AttributeValue, Op
from spmd.ir.attributes import Attribute, DenseArrayAttr, DenseAttr, DictAttr
from spmd.syntax.directives import SEGMENTS
from spmd.types import I32, FunctionType

CAST = "builtin.unrealized_conversion_cast"
_MOST_SEGMENTS = 64


@dataclass(frozen=True, slots=True)
class OpKind:
    """The name, declaration and attributes that ops share."""

    name: str
    cls: type[Op]
    definition: OpDef | None
    attributes: Mapping[str, AttributeValue]
    discardable: Mapping[str, Attribute]
    faults: tuple[str, ...]
    #: Whether attributes are sound, the op has nothing but its declaration, and is no cast.
    plain: bool

    def diagnostics(self, page: FilePage, token: int) -> list[Diagnostic]:
        """Return the faults of the attributes of the op at `token`."""
        return [Diagnostic(page.location(token), fault, self.name) for fault in self.faults]


class OpKinds:
    """The kinds of the ops of one file."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        #: Known kinds by name, dictionary and properties (-1: none), and whether in a function's own body.
        self.by_key: dict[tuple[int, int, int, bool], OpKind] = {}

    def make(self, key: tuple[int, int, int, bool], referrer: Referrer) -> OpKind:
        """Return the new kind for `key`."""
        kind_of_op = self.by_key[key] = self._make(*key, referrer)
        return kind_of_op

    def _make(self, name: int, attributes: int, properties: int, in_function: bool, referrer: Referrer) -> OpKind:
        tables = self._tables
        if name >= len(tables.op_names):
            referrer.fail(f"op name {name} of {len(tables.op_names)}")
        op_name = tables.op_names[name]
        if attributes < 0 and properties < 0:
            _check_known(op_name.name, referrer)
            return _bare(op_name.name, in_function)
        data = tables.property_key(properties, referrer)
        key = None if data is None else (op_name, in_function, tables.version, attributes, properties < 0, data)
        kind_of_op: OpKind | None = None if key is None else _KINDS.recall(key, tables)
        if kind_of_op is None:
            _check_known(op_name.name, referrer)
            entry = tables.property_entry(properties)
            kind_of_op = self._read(op_name, in_function, attributes, properties, entry)
            tables.remember(_KINDS, key, entry, kind_of_op)
        return kind_of_op

    def _read(self, op_name: OpName, in_function: bool, attributes: int, properties: int, entry: Entry) -> OpKind:
        """Return the kind of ops with these attributes; `entry` reads their properties."""
        full = op_name.name
        row = VHLO_OPS.get(full)
        attributes_here: dict[str, Attribute] = {}
        if properties >= 0:
            attributes_here |= self._properties(op_name, row, entry)
        if attributes >= 0:
            whole = entry.attribute_at(attributes)
            if not isinstance(whole, DictAttr):
                entry.fail(f"the attributes of {full} must be a dictionary, got {type(whole).__name__}")
            attributes_here |= whole.entries
        return _kind(full, row, in_function, attributes_here)

    # --- properties --------------------------------------------------------------------------------------------------

    def _properties(self, op_name: OpName, row: VhloOp | None, entry: Entry) -> dict[str, Attribute]:
        name, registered = op_name
        definition = core.OPS.get(name)
        if registered and row is not None:
            attributes = {attribute: ATTRIBUTE.read(entry) for attribute in row.attributes}
        elif registered and definition is not None:
            attributes = _declared(definition, entry, self._tables.version)
        elif registered:
            entry.fail(f"the properties of the unknown op {name} cannot be read")
        else:
            whole = ATTRIBUTE.read(entry)
            attributes = dict(whole.entries) if isinstance(whole, DictAttr) else {}
        entry.expect_end(f"the properties of {name}")
        return attributes


def _check_known(full: str, referrer: Referrer) -> None:
    if full.startswith("vhlo.") and full not in VHLO_OPS:
        referrer.fail(f"{full} is not an op of any known version of VHLO")
    if (fault := core.name_fault(full)) is not None:
        referrer.fail(fault)


def _kind(full: str, row: VhloOp | None, in_function: bool, attributes: dict[str, Attribute]) -> OpKind:
    """Return the kind of ops named `full`, which is VHLO's `row` if given, with these attributes."""
    faults: list[str] = []
    if row is not None:
        full = name_of(row, in_function)
        try:
            attributes = from_vhlo(row, attributes)
        except ValueError as error:
            faults.append(str(error))
    definition = core.OPS.get(full)
    known, discardable = _file(definition, attributes, faults)
    cls = OP_CLASSES.get(full, Op)
    plain = cls is Op and definition is not None and not (discardable or faults or full == CAST)
    return OpKind(full, cls, definition, known, discardable, tuple(faults), plain)


#: Kinds with attributes, shared by all files.
_KINDS = Memo()


@lru_cache(maxsize=1 << 12)
def _bare(full: str, in_function: bool) -> OpKind:
    """Return the kind of ops without attributes, which is the same in every file."""
    return _kind(full, VHLO_OPS.get(full), in_function, {})


def _declared(definition: OpDef, entry: EntryReader, version: int) -> dict[str, Attribute]:
    """Return the properties of an op by its declaration: a reference per attribute, then the sizes of segments."""
    properties: dict[str, Attribute] = {}
    absent = _absent(definition, entry)
    for name, declared in sorted(definition.attribute_table.items()):
        if name in absent or (name in SEGMENTS and version >= s.SEGMENTS_AS_PROPERTIES):
            continue
        value = (ATTRIBUTE if declared.required else OPTIONAL_ATTRIBUTE).read(entry)
        if value is not None:
            properties[name] = value
    if version >= s.SEGMENTS_AS_PROPERTIES:
        for name, values in zip(SEGMENTS, (definition.operands, definition.results), strict=True):
            if name in definition.attribute_table:
                properties[name] = DenseArrayAttr(I32, _sizes(entry, len(values)))
    return properties


#: Attributes added to ops since the first release with properties, the latest first; older files lack them.
_ADDED: dict[str, tuple[str, ...]] = {
    "chlo.top_k": ("is_stable",),
    "sdy.all_reduce": ("reduction_op",),
    "sdy.reduce_scatter": ("reduction_op",),
    "stablehlo.collective_broadcast": ("has_dynamic_root",),
    "stablehlo.custom_call": ("result_tilings",),
}


def _absent(definition: OpDef, entry: EntryReader) -> tuple[str, ...]:
    """Return the attributes that the producer did not know, by the number of references."""
    added = _ADDED.get(definition.name)
    if added is None:
        return ()
    start, count = entry.position, 0
    while entry.left:
        entry.varint()
        count += 1
    entry.position = start
    return added[: len(definition.attributes) - count]


def _sizes(entry: EntryReader, length: int) -> tuple[int, ...]:
    """Return a short list of numbers, encoded sparsely if most are zero."""
    count, sparse = entry.flagged()
    sizes = [0] * length
    if count > length:
        entry.fail(f"{count} sizes of {length} segments")
    bits = entry.varint() if sparse and count else 0
    if bits > 8:
        entry.fail(f"the number of a segment must have at most 8 bits, got {bits}")
    for position in range(count):
        value = entry.varint()
        at = value & ((1 << bits) - 1) if sparse else position
        if at >= length:
            entry.fail(f"segment {at} of {length}")
        sizes[at] = value >> bits
    return tuple(sizes)


# --- attributes ------------------------------------------------------------------------------------------------------


def _file(
    definition: OpDef | None, attributes: Mapping[str, Attribute], faults: list[str]
) -> tuple[dict[str, AttributeValue], dict[str, Attribute]]:
    """Return the declared attributes, decoded, and all others."""
    if definition is None:
        return {}, dict(attributes)
    known: dict[str, AttributeValue] = {}
    discardable: dict[str, Attribute] = {}
    for name, value in attributes.items():
        declared = definition.attribute_table.get(name)
        if name in SEGMENTS:
            sizes = _segments(value)
            if sizes is None:
                faults.append(f"attribute '{name}': expected array<i32: ...> of non-negative sizes")
            else:
                known[name] = sizes
        elif declared is None:
            discardable[name] = value
        else:
            try:
                known[name] = declared.kind.decode(value)
            except ValueError as error:
                faults.append(f"attribute '{name}': {error}")
    if not faults:
        faults += [f"requires attribute '{name}'" for name in definition.required_attributes if name not in known]
        if "function_type" in known and not isinstance(known["function_type"], FunctionType):
            faults.append(f"function_type is a function type, got {known['function_type']}")
    return known, discardable


def _segments(value: Attribute) -> tuple[int, ...] | None:
    sizes: tuple[Any, ...] | None = None
    if isinstance(value, DenseArrayAttr):
        sizes = value.values
    elif isinstance(value, DenseAttr) and value.array.ndim == 1 and value.array.size <= _MOST_SEGMENTS:
        sizes = tuple(value.array.tolist())
    sound = sizes is not None and all(isinstance(size, int) and size >= 0 for size in sizes)
    return sizes if sound else None
