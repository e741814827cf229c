"""Blocks as object files: code that is linked into a program of another language, and needs no interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from spmd.analysis.collectives import COMMUNICATING
from spmd.backends.llvm.emit.region_writer import RegionWriter
from spmd.backends.llvm.jit.interrupts import POLL
from spmd.backends.llvm.jit.jit import compile_module
from spmd.backends.llvm.matmul.blas import linked
from spmd.backends.llvm.target import LlvmTarget
from spmd.backends.native import ObjectFile
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.fusion import fuse
from spmd.compiler.schedule.schedule import plan_region
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Op, Value
from spmd.support.processor import Processor
from spmd.types import TensorType, TupleType, Type

#: Nobody can interrupt it.
_POLL_TEXT = f"define internal i32 @{POLL}() {{\n  ret i32 0\n}}"


def object_file(block: Block, name: str, processor: Processor) -> ObjectFile:
    """`block`, a program's entry as it is scheduled, as the function `name` of an object file for `processor`.

    Who links it has not told the system that tile registers are used, so that it uses none. CompileError, which names
    the op and its place, for what only Python runs.
    """
    inputs, outputs = list(block.arguments), list(block.terminator.operands)
    _check_types(inputs, outputs, block)
    target, units = LlvmTarget(processor=replace(processor, has_tiles=False)), fuse(block, outputs)
    for unit in units:
        if not unit.fused and not target.supports(unit.outputs[0]):
            _refuse(unit.outputs[0])
    region = plan_region(units, inputs, outputs, target)
    writer = RegionWriter(f"{name}.body", region, _refuse, routine=linked)
    writer.write(region.body)
    text = [writer.finish(whole=True).replace("define void", "define internal void", 1)]
    text += _constants(name, writer.constants)
    text.append(_entry(name, len(inputs) + len(outputs) + 1, len(writer.constants)))
    if writer.may_raise:
        text.append(_POLL_TEXT)
    image = compile_module("\n".join(text), target.processor).image
    return ObjectFile(image, region.placement.size, tuple(writer.symbols), f"{processor.triple}, {processor.cpu}")


def _check_types(inputs: Sequence[Value], outputs: Sequence[Value], block: Block) -> None:
    """CompileError for an argument or a result that is no array as C has them."""
    for kind, values in (("argument", inputs), ("result", outputs)):
        for index, value in enumerate(values):
            if not is_plain(value.type):
                location = block.terminator.location if value.defining_op is None else value.defining_op.location
                text = f"{kind} {index} is {_unlike_c(value.type)}, and a function of C takes arrays of known sizes"
                raise CompileError(Diagnostic(location, text))


def _unlike_c(type: Type) -> str:
    """What is not C's about a type, with the type."""
    if isinstance(type, TensorType):
        return f"of dynamic shape, {type}" if not type.is_static else f"quantized, {type}"
    return f"a tuple, {type}" if isinstance(type, TupleType) else f"no array, {type}"


def _refuse(op: Op) -> NoReturn:
    raise CompileError(Diagnostic(op.location, _why_not_native(op), op.name))


def _why_not_native(op: Op) -> str:
    """What of an op keeps it from being native code that runs without this package."""
    types = [value.type for value in (*op.operands, *op.results)]
    unlike = next((type for type in types if not is_plain(type)), None)
    if op.name in COMMUNICATING or op.name in ("stablehlo.infeed", "stablehlo.outfeed"):
        reason = "it communicates with other processes"
    elif op.name == "stablehlo.custom_call":
        reason = "what is called is a function of Python, or of a library that an object file cannot count on"
    elif unlike is not None:
        reason = f"a value of it is {_unlike_c(unlike)}"
    elif op.name == "stablehlo.fft":
        reason = "a transform of this length has no native form"
    elif any(isinstance(type, TensorType) and type.dtype.kind == "c" for type in types):
        reason = "for complex numbers it has no native form"
    else:
        reason = "it has no native form"
    return f"{reason}; an object file holds native code alone"


def _constants(name: str, arrays: Sequence[np.ndarray]) -> list[str]:
    lines = []
    for place, array in enumerate(arrays):
        data = array.tobytes().hex("\\")
        lines.append(f'@{name}.constant{place} = private constant [{array.nbytes} x i8] c"\\{data}", align 64')
    return lines


def _entry(name: str, parameters: int, constants: int) -> str:
    """The function that C calls: it hands all addresses on in one array."""
    names = [f"%p{place}" for place in range(parameters)]
    pointers = [*names, *(f"@{name}.constant{place}" for place in range(constants))]
    lines = [
        f"define void @{name}({', '.join(f'ptr {each}' for each in names)}) nounwind {{",
        f"  %all = alloca [{len(pointers)} x ptr], align 8",
    ]
    for place, pointer in enumerate(pointers):
        lines += [f"  %at{place} = getelementptr ptr, ptr %all, i64 {place}", f"  store ptr {pointer}, ptr %at{place}"]
    return "\n".join([*lines, f"  call void @{name}.body(ptr %all)", "  ret void", "}"])
