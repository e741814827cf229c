"""Structured attributes whose text is not `<field = value, ...>`."""

from __future__ import annotations

from dataclasses import fields

from spmd.dialects import kinds
from spmd.dialects.structs import (
    AxisRefAttr,
    ConvDimensionNumbersAttr,
    MeshAttr,
    MeshAxisAttr,
    ResultAccuracyAttr,
    SubAxisInfoAttr,
)
from spmd.ir.attributes import Attribute, OpaqueAttr, StringAttr
from spmd.syntax.attribute_parser import AttributeParser, attribute_parser
from spmd.syntax.attribute_printer import format_attribute, quoted, struct_printer
from spmd.syntax.forms.convolution import format_dimensions

_ACCURACY_MODE = kinds.enum("stablehlo", "result_accuracy_mode", "DEFAULT", "HIGHEST", "TOLERANCE")


@struct_printer(ConvDimensionNumbersAttr)
def _print_conv(numbers: ConvDimensionNumbersAttr) -> str:
    lettered = format_dimensions(numbers)
    if lettered is not None:
        return f"<{lettered}>"
    values = ((field.name, getattr(numbers, field.name)) for field in fields(ConvDimensionNumbersAttr))
    shown = (f"{name} = {list(value) if isinstance(value, tuple) else value}" for name, value in values)
    return f"<raw {', '.join(shown)}>"


@struct_printer(ResultAccuracyAttr)
def _print_result_accuracy(accuracy: ResultAccuracyAttr) -> str:
    parts = [
        f"{name} = {_decimal(value)}" for name, value in (("atol", accuracy.atol), ("rtol", accuracy.rtol)) if value
    ]
    if accuracy.ulps:
        parts.append(f"ulps = {accuracy.ulps}")
    return f"<{', '.join([*parts, f'mode = #stablehlo.result_accuracy_mode<{accuracy.mode}>'])}>"


def _decimal(value: float) -> str:
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e", 1)


@struct_printer(SubAxisInfoAttr)
def _print_sub_axis_info(info: SubAxisInfoAttr) -> str:
    return f"({info.pre_size}){info.size}"


@struct_printer(AxisRefAttr)
def _print_axis_ref(axis: AxisRefAttr) -> str:
    sub_axis = f", sub_axis_info = {_print_sub_axis_info(axis.sub_axis_info)}" if axis.sub_axis_info else ""
    return f"<name = {quoted(axis.name.encode())}{sub_axis}>"


@struct_printer(MeshAttr)
def _print_mesh(mesh: MeshAttr) -> str:
    axes = ", ".join(f"<name = {quoted(axis.name.encode())}, size = {axis.size}>" for axis in mesh.axes)
    devices = f", device_ids = {format_attribute(mesh.device_ids)}" if mesh.device_ids is not None else ""
    return f"<axes = [{axes}]{devices}>"


@attribute_parser("stablehlo", "result_accuracy")
def _read_result_accuracy(parser: AttributeParser) -> Attribute:
    """Parse `<atol = 1.0e-5, rtol = 0.0, ulps = 1, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>`."""
    return parser.parse_struct(ResultAccuracyAttr, {"mode": _accuracy_mode})


def _accuracy_mode(parser: AttributeParser) -> str:
    position = parser.position
    word = parser.tokens[position][:1] not in ("#", '"')
    mode = StringAttr(parser.parse_keyword("an accuracy mode").encode()) if word else parser.parse_attribute()
    try:
        return _ACCURACY_MODE.decode(mode)
    except ValueError as error:
        parser.fail(str(error), position)


@attribute_parser("stablehlo", "sub_axis_info")
def _read_sub_axis_info(parser: AttributeParser) -> Attribute:
    """Parse `(pre_size)size`, with or without brackets."""
    bracketed = parser.consume_if("<")
    parser.expect("(")
    pre_size = parser.parse_int64()
    parser.expect(")")
    attribute = SubAxisInfoAttr(pre_size, parser.parse_int64())
    if bracketed:
        parser.expect(">")
    return attribute


@attribute_parser("stablehlo", "axis_ref")
def _read_axis_ref(parser: AttributeParser) -> Attribute:
    """Parse `<name = "x", sub_axis_info = (1)2>`."""
    return parser.parse_struct(AxisRefAttr, {"sub_axis_info": _stripped_sub_axis})


def _stripped_sub_axis(parser: AttributeParser) -> Attribute:
    if parser.tokens[parser.position][:1] != "#":
        return _read_sub_axis_info(parser)
    position = parser.position
    attribute = parser.parse_attribute()
    if not isinstance(attribute, SubAxisInfoAttr):
        parser.fail("expected #stablehlo.sub_axis_info<...>", position)
    return attribute


@attribute_parser("stablehlo", "mesh")
def _read_mesh(parser: AttributeParser) -> Attribute:
    """Parse `<axes = [<name = "x", size = 2>], device_ids = dense<...> : tensor<...>>`."""
    return parser.parse_struct(MeshAttr, {"axes": _mesh_axes, "device_ids": AttributeParser.parse_dense})


def _mesh_axes(parser: AttributeParser) -> tuple[MeshAxisAttr, ...]:
    parser.expect("[")
    axes: list[MeshAxisAttr] = []
    while not parser.consume_if("]"):
        stripped = parser.tokens[parser.position][:1] != "#"
        position = parser.position
        axis = parser.parse_struct(MeshAxisAttr) if stripped else parser.parse_attribute()
        if not isinstance(axis, MeshAxisAttr):
            parser.fail("expected a mesh axis", position)
        axes.append(axis)
        if not parser.consume_if(","):
            parser.expect("]")
            break
    return tuple(axes)


@attribute_parser("stablehlo", "bounds")
def _bounds(parser: AttributeParser) -> Attribute:
    """Parse `<?, 4>`, the bounds of a tensor type; as an attribute, its text is kept."""
    return OpaqueAttr("#stablehlo.bounds" + parser.parse_balanced())


@attribute_parser("stablehlo", "type_extensions")
def _type_extensions(parser: AttributeParser) -> Attribute:
    return OpaqueAttr("#stablehlo.type_extensions" + parser.parse_balanced())
