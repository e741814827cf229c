"""How the structured attributes of forms/fields.py print, where that is not just `<field = value, ...>`."""

from __future__ import annotations

from dataclasses import fields

from spmd.dialects.structs import AxisRef, ConvDimensionNumbers, Mesh, ResultAccuracy, SubAxisInfo
from spmd.syntax.attribute_printer import format_attribute, quoted, struct_printer
from spmd.syntax.forms.fields import format_dimensions


@struct_printer(ConvDimensionNumbers)
def _conv(numbers: ConvDimensionNumbers) -> str:
    lettered = format_dimensions(numbers)
    if lettered is not None:
        return f"<{lettered}>"
    values = ((field.name, getattr(numbers, field.name)) for field in fields(ConvDimensionNumbers))
    shown = (f"{name} = {list(value) if isinstance(value, tuple) else value}" for name, value in values)
    return f"<raw {', '.join(shown)}>"


@struct_printer(ResultAccuracy)
def _result_accuracy(accuracy: ResultAccuracy) -> str:
    parts = [
        f"{name} = {_decimal(value)}" for name, value in (("atol", accuracy.atol), ("rtol", accuracy.rtol)) if value
    ]
    if accuracy.ulps:
        parts.append(f"ulps = {accuracy.ulps}")
    return f"<{', '.join([*parts, f'mode = #stablehlo.result_accuracy_mode<{accuracy.mode}>'])}>"


def _decimal(value: float) -> str:
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e", 1)


@struct_printer(SubAxisInfo)
def _sub_axis_info(info: SubAxisInfo) -> str:
    return f"({info.pre_size}){info.size}"


@struct_printer(AxisRef)
def _axis_ref(axis: AxisRef) -> str:
    sub_axis = f", sub_axis_info = {_sub_axis_info(axis.sub_axis_info)}" if axis.sub_axis_info else ""
    return f"<name = {quoted(axis.name.encode())}{sub_axis}>"


@struct_printer(Mesh)
def _mesh(mesh: Mesh) -> str:
    axes = ", ".join(f"<name = {quoted(axis.name.encode())}, size = {axis.size}>" for axis in mesh.axes)
    devices = f", device_ids = {format_attribute(mesh.device_ids)}" if mesh.device_ids is not None else ""
    return f"<axes = [{axes}]{devices}>"
