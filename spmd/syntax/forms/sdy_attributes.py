"""Attributes of the sdy dialect as text. Source: Shardy's dialect documentation, the syntax of each attribute.

Inside another sdy attribute, and in ops, an attribute is written without its `#sdy.mnemonic`; MLIR also accepts the
long form and an alias there, and so do these parsers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.structs import STRUCTS, StructAttribute
from spmd.ir.attributes import SymbolRefAttr
from spmd.syntax.attribute_parser import AttributeParser, attribute_parser

T = TypeVar("T")
S = TypeVar("S", bound=StructAttribute)
_FACTOR = re.compile(r"z_([1-9]\d*)|([i-z])", re.ASCII)
_PRIORITY = re.compile(r"p(0|[1-9]\d*)", re.ASCII)


def listed(parser: AttributeParser, opening: str, closing: str, read: Callable[[AttributeParser], T]) -> tuple[T, ...]:
    """Parse entries between brackets, separated by commas."""
    parser.expect(opening)
    entries: list[T] = []
    if parser.consume_if(closing):
        return ()
    while True:
        entries.append(read(parser))
        if not parser.consume_if(","):
            break
    parser.expect(closing)
    return tuple(entries)


def _form(mnemonic: str) -> Callable[[Callable[[AttributeParser], S]], Callable[[AttributeParser], S]]:
    """Register the decorated parser of a body as that of `#sdy.mnemonic`, and make it accept the long form as well."""
    cls = STRUCTS["sdy", mnemonic]

    def add(body: Callable[[AttributeParser], S]) -> Callable[[AttributeParser], S]:
        attribute_parser("sdy", mnemonic)(body)

        def read(parser: AttributeParser) -> S:
            position = parser.position
            if not parser.tokens[position].startswith("#"):
                return parser.sound(body(parser), position)
            attribute = parser.parse_attribute()
            if not isinstance(attribute, cls):
                parser.fail(f"expected a #sdy.{mnemonic} attribute", position)
            return attribute  # type: ignore[return-value]

        return read

    return add


def _string(parser: AttributeParser) -> str:
    return parser.parse_string()


@_form("manual_axes")
def manual_axes(parser: AttributeParser) -> sdy.ManualAxes:
    return sdy.ManualAxes(listed(parser, "{", "}", _string))


@_form("mesh_axis")
def mesh_axis(parser: AttributeParser) -> sdy.MeshAxis:
    name = parser.parse_string()
    parser.expect("=")
    return sdy.MeshAxis(name, parser.parse_int64("an axis size"))


@_form("mesh")
def mesh(parser: AttributeParser) -> sdy.Mesh:
    parser.expect("<")
    axes = listed(parser, "[", "]", mesh_axis)
    devices: tuple[int, ...] = ()
    if parser.consume_if(","):
        parser.expect("device_ids")
        parser.expect("=")
        devices = parser.parse_integer_list()
    parser.expect(">")
    return sdy.Mesh(axes, devices)


@_form("sub_axis_info")
def sub_axis_info(parser: AttributeParser) -> sdy.SubAxisInfo:
    parser.expect("(")
    before = parser.parse_int64("a pre-size")
    parser.expect(")")
    return sdy.SubAxisInfo(before, parser.parse_int64("a size"))


@_form("axis_ref")
def axis_ref(parser: AttributeParser) -> sdy.AxisRef:
    name = parser.parse_string()
    return sdy.AxisRef(name, sub_axis_info(parser) if parser.consume_if(":") else None)


@_form("dimension_sharding")
def dimension_sharding(parser: AttributeParser) -> sdy.DimensionSharding:
    """Parse `{"x", "y", ?}p1`."""
    parser.expect("{")
    axes: list[sdy.AxisRef] = []
    closed = True
    while not parser.consume_if("}"):
        if axes:
            parser.expect(",")
        if parser.consume_if("?"):
            closed = False
            parser.expect("}")
            break
        axes.append(axis_ref(parser))
    priority = None
    token = parser.tokens[parser.position]
    if token[:1].isalpha():
        match = _PRIORITY.fullmatch(token)
        if match is None:
            parser.expected("a priority such as p1, without leading zeros")
        parser.position += 1
        priority = int(match[1])
    return sdy.DimensionSharding(tuple(axes), closed, priority)


def _some_axes(parser: AttributeParser) -> tuple[sdy.AxisRef, ...]:
    position = parser.position
    axes = axis_refs(parser)
    if not axes:
        parser.fail("expected at least one axis between the braces", position)
    return axes


@_form("sharding")
def sharding(parser: AttributeParser) -> sdy.TensorSharding:
    parser.expect("<")
    place: SymbolRefAttr | sdy.Mesh
    place = mesh(parser) if parser.consume_if("mesh") else SymbolRefAttr((parser.parse_symbol(),))
    parser.expect(",")
    dimensions = listed(parser, "[", "]", dimension_sharding)
    replicated: tuple[sdy.AxisRef, ...] = ()
    unreduced: tuple[sdy.AxisRef, ...] = ()
    reduction = "sum"
    while parser.consume_if(","):
        if not replicated and parser.consume_if("replicated"):
            parser.expect("=")
            replicated = _some_axes(parser)
        elif not unreduced and parser.consume_if("unreduced"):
            if parser.consume_if("="):
                reduction = next((kind for kind in ("sum", "max", "min") if parser.consume_if(kind)), "sum")
            unreduced = _some_axes(parser)
        else:
            parser.expected("replicated={...} or unreduced={...}, each once")
    parser.expect(">")
    return sdy.TensorSharding(place, dimensions, replicated, unreduced, reduction)


def axis_refs(parser: AttributeParser) -> tuple[sdy.AxisRef, ...]:
    return listed(parser, "{", "}", axis_ref)


def shardings(parser: AttributeParser) -> sdy.ShardingPerValue:
    """Parse `[<@mesh, [...]>, ...]`: the form inside ops, or the whole attribute."""
    if parser.tokens[parser.position].startswith("#"):
        return sharding_per_value(parser)
    return sdy.ShardingPerValue(listed(parser, "[", "]", sharding))


@_form("sharding_per_value")
def sharding_per_value(parser: AttributeParser) -> sdy.ShardingPerValue:
    parser.expect("<")
    value = shardings(parser)
    parser.expect(">")
    return value


# --- factor rules ----------------------------------------------------------------------------------------------------


def _factors(parser: AttributeParser) -> tuple[int, ...]:
    """Parse symbols such as `ij` or `z_1k`; return their indices."""
    position = parser.position
    word = parser.parse_keyword("factors such as ij")
    factors: list[int] = []
    at = 0
    while at < len(word):
        match = _FACTOR.match(word, at)
        if match is None:
            parser.fail(f"expected factors from i to z, then z_1, z_2, ...; got '{word}'", position)
        factors.append(17 + int(match[1]) if match[1] else ord(match[2]) - ord("i"))
        at = match.end()
    return tuple(factors)


def _factor(parser: AttributeParser) -> int:
    position = parser.position
    factors = _factors(parser)
    if len(factors) != 1:
        parser.fail("expected a single factor", position)
    return factors[0]


@_form("dim_mapping")
def dim_mapping(parser: AttributeParser) -> sdy.DimMapping:
    token = parser.tokens[parser.position]
    return sdy.DimMapping(_factors(parser) if token[:1].isalpha() else ())


@_form("tensor_mapping")
def tensor_mapping(parser: AttributeParser) -> sdy.TensorMapping:
    return sdy.TensorMapping(listed(parser, "[", "]", dim_mapping))


@_form("op_sharding_rule")
def op_sharding_rule(parser: AttributeParser) -> sdy.OpShardingRule:
    parser.expect("<")
    operands = listed(parser, "(", ")", tensor_mapping)
    parser.expect("->")
    results = listed(parser, "(", ")", tensor_mapping)
    sizes: list[int] = []

    def size(parser: AttributeParser) -> None:
        position = parser.position
        if _factor(parser) != len(sizes):
            parser.fail(f"expected factor {sdy.factor_symbol(len(sizes))}: factors are named in order", position)
        parser.expect("=")
        sizes.append(parser.parse_int64("a factor size"))

    if parser.at("{"):
        listed(parser, "{", "}", size)
    kinds: dict[str, tuple[int, ...]] = {}
    for kind in ("reduction", "need_replication", "permutation", "blocked_propagation"):
        if parser.consume_if(kind):
            parser.expect("=")
            kinds[kind] = listed(parser, "{", "}", _factor)
    is_custom = parser.consume_if(",")
    if is_custom:
        parser.expect("custom")
    parser.expect(">")
    return sdy.OpShardingRule(tuple(sizes), operands, results, is_custom=is_custom, **kinds)


# --- collectives -----------------------------------------------------------------------------------------------------


@_form("axis_ref_list")
def axis_ref_list(parser: AttributeParser) -> sdy.AxisRefList:
    return sdy.AxisRefList(axis_refs(parser))


@_form("list_of_axis_ref_lists")
def list_of_axis_ref_lists(parser: AttributeParser) -> sdy.ListOfAxisRefLists:
    return sdy.ListOfAxisRefLists(listed(parser, "[", "]", axis_ref_list))


@_form("all_to_all_param")
def all_to_all_param(parser: AttributeParser) -> sdy.AllToAllParam:
    axes = _some_axes(parser)
    parser.expect(":")
    source = parser.parse_int64("a dimension")
    parser.expect("->")
    return sdy.AllToAllParam(axes, source, parser.parse_int64("a dimension"))


@_form("all_to_all_param_list")
def all_to_all_param_list(parser: AttributeParser) -> sdy.AllToAllParamList:
    return sdy.AllToAllParamList(listed(parser, "[", "]", all_to_all_param))


# --- propagation edges -----------------------------------------------------------------------------------------------


@_form("edge_value_ref")
def edge_value_ref(parser: AttributeParser) -> sdy.EdgeValueRef:
    node = parser.parse_keyword("operand or result")
    if node not in ("operand", "result"):
        parser.fail("expected operand or result", parser.position - 1)
    return sdy.EdgeValueRef(node, _after_minus(parser))


def _after_minus(parser: AttributeParser) -> int:
    """Parse `-3` after a word: an index; `--1` is the index -1."""
    position = parser.position
    if parser.consume_if("-"):
        return parser.parse_int64("an index")
    index = parser.parse_int64("an index")
    if index > 0:
        parser.fail("expected '-' and an index", position)
    return -index


@_form("axis_to_propagation_details")
def axis_to_propagation_details(parser: AttributeParser) -> sdy.AxisToPropagationDetails:
    parser.expect("{")
    axis = axis_ref(parser)
    parser.expect("=")
    source = edge_value_ref(parser)
    parser.expect("->")
    targets = listed(parser, "[", "]", edge_value_ref)
    parser.expect("}")
    return sdy.AxisToPropagationDetails(axis, source, targets)


@_form("propagation_one_step")
def propagation_one_step(parser: AttributeParser) -> sdy.PropagationOneStep:
    parser.expect("{")
    parser.expect("step")
    step = _after_minus(parser)
    parser.expect("=")
    entries = listed(parser, "[", "]", axis_to_propagation_details)
    parser.expect("}")
    return sdy.PropagationOneStep(step, entries)


@_form("propagation_edges")
def propagation_edges(parser: AttributeParser) -> sdy.PropagationEdges:
    parser.expect("<")
    steps = listed(parser, "[", "]", propagation_one_step)
    parser.expect(">")
    return sdy.PropagationEdges(steps)
