"""Attributes of the sdy dialect as text. Source: Shardy's dialect documentation, the syntax of each attribute.

Inside another sdy attribute, and in ops, an attribute stands stripped of its `#sdy.mnemonic`; MLIR reads the long form
and an alias in the same places, and so do the readers here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from spmd.attributes import SymbolRefAttr
from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.structs import STRUCTS, StructAttribute
from spmd.syntax.attribute_cursor import AttributeCursor, attribute_parser

T = TypeVar("T")
S = TypeVar("S", bound=StructAttribute)
_FACTOR = re.compile(r"z_([1-9]\d*)|([i-z])", re.ASCII)
_PRIORITY = re.compile(r"p(0|[1-9]\d*)", re.ASCII)


def listed(cursor: AttributeCursor, opening: str, closing: str, read: Callable[[AttributeCursor], T]) -> tuple[T, ...]:
    """Entries between brackets, with commas between."""
    cursor.expect(opening)
    found: list[T] = []
    if cursor.take(closing):
        return ()
    while True:
        found.append(read(cursor))
        if not cursor.take(","):
            break
    cursor.expect(closing)
    return tuple(found)


def _form(mnemonic: str) -> Callable[[Callable[[AttributeCursor], S]], Callable[[AttributeCursor], S]]:
    """Decorator: files the reader of a body as that of `#sdy.mnemonic`, and makes it read the long form as well."""
    cls = STRUCTS["sdy", mnemonic]

    def add(body: Callable[[AttributeCursor], S]) -> Callable[[AttributeCursor], S]:
        attribute_parser("sdy", mnemonic)(body)

        def read(cursor: AttributeCursor) -> S:
            position = cursor.position
            if not cursor.tokens[position].startswith("#"):
                return cursor.sound(body(cursor), position)
            made = cursor.attribute()
            if not isinstance(made, cls):
                cursor.fail(f"expected a #sdy.{mnemonic} attribute", position)
            return made  # type: ignore[return-value]

        return read

    return add


def _string(cursor: AttributeCursor) -> str:
    return cursor.string()


@_form("manual_axes")
def manual_axes(cursor: AttributeCursor) -> sdy.ManualAxes:
    return sdy.ManualAxes(listed(cursor, "{", "}", _string))


@_form("mesh_axis")
def mesh_axis(cursor: AttributeCursor) -> sdy.MeshAxis:
    name = cursor.string()
    cursor.expect("=")
    return sdy.MeshAxis(name, cursor.int64("an axis size"))


@_form("mesh")
def mesh(cursor: AttributeCursor) -> sdy.Mesh:
    cursor.expect("<")
    axes = listed(cursor, "[", "]", mesh_axis)
    devices: tuple[int, ...] = ()
    if cursor.take(","):
        cursor.expect("device_ids")
        cursor.expect("=")
        devices = cursor.integer_list()
    cursor.expect(">")
    return sdy.Mesh(axes, devices)


@_form("sub_axis_info")
def sub_axis_info(cursor: AttributeCursor) -> sdy.SubAxisInfo:
    cursor.expect("(")
    before = cursor.int64("a pre-size")
    cursor.expect(")")
    return sdy.SubAxisInfo(before, cursor.int64("a size"))


@_form("axis_ref")
def axis_ref(cursor: AttributeCursor) -> sdy.AxisRef:
    name = cursor.string()
    return sdy.AxisRef(name, sub_axis_info(cursor) if cursor.take(":") else None)


@_form("dimension_sharding")
def dimension_sharding(cursor: AttributeCursor) -> sdy.DimensionSharding:
    """`{"x", "y", ?}p1`."""
    cursor.expect("{")
    axes: list[sdy.AxisRef] = []
    closed = True
    while not cursor.take("}"):
        if axes:
            cursor.expect(",")
        if cursor.take("?"):
            closed = False
            cursor.expect("}")
            break
        axes.append(axis_ref(cursor))
    priority = None
    token = cursor.tokens[cursor.position]
    if token[:1].isalpha():
        found = _PRIORITY.fullmatch(token)
        if found is None:
            cursor.expected("a priority such as p1, without leading zeros")
        cursor.position += 1
        priority = int(found[1])
    return sdy.DimensionSharding(tuple(axes), closed, priority)


def _some_axes(cursor: AttributeCursor) -> tuple[sdy.AxisRef, ...]:
    position = cursor.position
    found = axis_refs(cursor)
    if not found:
        cursor.fail("expected at least one axis between the braces", position)
    return found


@_form("sharding")
def sharding(cursor: AttributeCursor) -> sdy.TensorSharding:
    cursor.expect("<")
    place: SymbolRefAttr | sdy.Mesh
    place = mesh(cursor) if cursor.take("mesh") else SymbolRefAttr((cursor.symbol(),))
    cursor.expect(",")
    dimensions = listed(cursor, "[", "]", dimension_sharding)
    replicated: tuple[sdy.AxisRef, ...] = ()
    unreduced: tuple[sdy.AxisRef, ...] = ()
    reduction = "sum"
    while cursor.take(","):
        if not replicated and cursor.take("replicated"):
            cursor.expect("=")
            replicated = _some_axes(cursor)
        elif not unreduced and cursor.take("unreduced"):
            if cursor.take("="):
                reduction = next((kind for kind in ("sum", "max", "min") if cursor.take(kind)), "sum")
            unreduced = _some_axes(cursor)
        else:
            cursor.expected("replicated={...} or unreduced={...}, each once")
    cursor.expect(">")
    return sdy.TensorSharding(place, dimensions, replicated, unreduced, reduction)


def axis_refs(cursor: AttributeCursor) -> tuple[sdy.AxisRef, ...]:
    return listed(cursor, "{", "}", axis_ref)


def shardings(cursor: AttributeCursor) -> sdy.ShardingPerValue:
    """`[<@mesh, [...]>, ...]`: the form inside ops, which may also be the whole attribute."""
    if cursor.tokens[cursor.position].startswith("#"):
        return sharding_per_value(cursor)
    return sdy.ShardingPerValue(listed(cursor, "[", "]", sharding))


@_form("sharding_per_value")
def sharding_per_value(cursor: AttributeCursor) -> sdy.ShardingPerValue:
    cursor.expect("<")
    made = shardings(cursor)
    cursor.expect(">")
    return made


# --- factor rules ----------------------------------------------------------------------------------------------------


def _factors(cursor: AttributeCursor) -> tuple[int, ...]:
    """Symbols such as `ij` or `z_1k`, as indices."""
    position = cursor.position
    word = cursor.keyword("factors such as ij")
    found: list[int] = []
    at = 0
    while at < len(word):
        match = _FACTOR.match(word, at)
        if match is None:
            cursor.fail(f"expected factors from i to z, then z_1, z_2, ...; got '{word}'", position)
        found.append(17 + int(match[1]) if match[1] else ord(match[2]) - ord("i"))
        at = match.end()
    return tuple(found)


def _factor(cursor: AttributeCursor) -> int:
    position = cursor.position
    found = _factors(cursor)
    if len(found) != 1:
        cursor.fail("expected a single factor", position)
    return found[0]


@_form("dim_mapping")
def dim_mapping(cursor: AttributeCursor) -> sdy.DimMapping:
    token = cursor.tokens[cursor.position]
    return sdy.DimMapping(_factors(cursor) if token[:1].isalpha() else ())


@_form("tensor_mapping")
def tensor_mapping(cursor: AttributeCursor) -> sdy.TensorMapping:
    return sdy.TensorMapping(listed(cursor, "[", "]", dim_mapping))


@_form("op_sharding_rule")
def op_sharding_rule(cursor: AttributeCursor) -> sdy.OpShardingRule:
    cursor.expect("<")
    operands = listed(cursor, "(", ")", tensor_mapping)
    cursor.expect("->")
    results = listed(cursor, "(", ")", tensor_mapping)
    sizes: list[int] = []

    def size(cursor: AttributeCursor) -> None:
        position = cursor.position
        if _factor(cursor) != len(sizes):
            cursor.fail(f"expected factor {sdy.factor_symbol(len(sizes))}: factors are named in order", position)
        cursor.expect("=")
        sizes.append(cursor.int64("a factor size"))

    if cursor.at("{"):
        listed(cursor, "{", "}", size)
    kinds: dict[str, tuple[int, ...]] = {}
    for kind in ("reduction", "need_replication", "permutation", "blocked_propagation"):
        if cursor.take(kind):
            cursor.expect("=")
            kinds[kind] = listed(cursor, "{", "}", _factor)
    is_custom = cursor.take(",")
    if is_custom:
        cursor.expect("custom")
    cursor.expect(">")
    return sdy.OpShardingRule(tuple(sizes), operands, results, is_custom=is_custom, **kinds)


# --- collectives -----------------------------------------------------------------------------------------------------


@_form("axis_ref_list")
def axis_ref_list(cursor: AttributeCursor) -> sdy.AxisRefList:
    return sdy.AxisRefList(axis_refs(cursor))


@_form("list_of_axis_ref_lists")
def list_of_axis_ref_lists(cursor: AttributeCursor) -> sdy.ListOfAxisRefLists:
    return sdy.ListOfAxisRefLists(listed(cursor, "[", "]", axis_ref_list))


@_form("all_to_all_param")
def all_to_all_param(cursor: AttributeCursor) -> sdy.AllToAllParam:
    axes = _some_axes(cursor)
    cursor.expect(":")
    source = cursor.int64("a dimension")
    cursor.expect("->")
    return sdy.AllToAllParam(axes, source, cursor.int64("a dimension"))


@_form("all_to_all_param_list")
def all_to_all_param_list(cursor: AttributeCursor) -> sdy.AllToAllParamList:
    return sdy.AllToAllParamList(listed(cursor, "[", "]", all_to_all_param))


# --- what propagation tells ------------------------------------------------------------------------------------------


@_form("edge_value_ref")
def edge_value_ref(cursor: AttributeCursor) -> sdy.EdgeValueRef:
    node = cursor.keyword("operand or result")
    if node not in ("operand", "result"):
        cursor.fail("expected operand or result", cursor.position - 1)
    return sdy.EdgeValueRef(node, _after_minus(cursor))


def _after_minus(cursor: AttributeCursor) -> int:
    """`-3` behind a word: an index; `--1` is the index -1."""
    position = cursor.position
    if cursor.take("-"):
        return cursor.int64("an index")
    found = cursor.int64("an index")
    if found > 0:
        cursor.fail("expected '-' and an index", position)
    return -found


@_form("axis_to_propagation_details")
def axis_to_propagation_details(cursor: AttributeCursor) -> sdy.AxisToPropagationDetails:
    cursor.expect("{")
    axis = axis_ref(cursor)
    cursor.expect("=")
    source = edge_value_ref(cursor)
    cursor.expect("->")
    targets = listed(cursor, "[", "]", edge_value_ref)
    cursor.expect("}")
    return sdy.AxisToPropagationDetails(axis, source, targets)


@_form("propagation_one_step")
def propagation_one_step(cursor: AttributeCursor) -> sdy.PropagationOneStep:
    cursor.expect("{")
    cursor.expect("step")
    step = _after_minus(cursor)
    cursor.expect("=")
    entries = listed(cursor, "[", "]", axis_to_propagation_details)
    cursor.expect("}")
    return sdy.PropagationOneStep(step, entries)


@_form("propagation_edges")
def propagation_edges(cursor: AttributeCursor) -> sdy.PropagationEdges:
    cursor.expect("<")
    steps = listed(cursor, "[", "]", propagation_one_step)
    cursor.expect(">")
    return sdy.PropagationEdges(steps)
