"""Blocks as object files: code that is linked into a program of another language, and needs no interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from spmd.backends.llvm.emit.function_emitter import FunctionWriter
from spmd.backends.llvm.jit.interrupts import POLL
from spmd.backends.llvm.jit.jit import compile_module
from spmd.backends.llvm.jit.processor import host
from spmd.backends.llvm.matmul.blas import linked
from spmd.backends.llvm.target import LlvmTarget
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.fusion import fuse
from spmd.compiler.schedule.schedule import plan_region
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Op

#: Nobody can interrupt it.
_POLL_TEXT = f"define internal i32 @{POLL}() {{\n  ret i32 0\n}}"


@dataclass(frozen=True)
class ObjectFile:
    """`image` defines a function of C that takes the addresses of arguments, of results and of memory to work in.

    `scratch`: bytes of that memory. `needs`: routines of BLAS that it calls. `target`: what it was compiled for.
    """

    image: bytes
    scratch: int
    needs: tuple[str, ...]
    target: str


def object_file(block: Block, name: str) -> ObjectFile:
    """`block`, a program's entry as it is scheduled, as the function `name` of an object file for this processor.

    CompileError, which names the op and its place, for what only Python runs.
    """
    inputs, outputs = list(block.arguments), list(block.terminator.operands)
    for op in (value.defining_op for value in (*inputs, *outputs) if not is_plain(value.type)):
        _refuse(op or block.terminator)
    target, units = LlvmTarget(is_hosted=False), fuse(block, outputs)
    for unit in units:
        if not unit.fused and not target.supports(unit.outputs[0]):
            _refuse(unit.outputs[0])
    region = plan_region(units, inputs, outputs, target)
    writer = FunctionWriter(f"{name}.body", region, _refuse, routine=linked, is_hosted=False)
    writer.write(region.body)
    text = [writer.finish(whole=True).replace("define void", "define internal void", 1)]
    text += _constants(name, writer.constants)
    text.append(_entry(name, len(inputs) + len(outputs) + 1, len(writer.constants)))
    if writer.may_raise:
        text.append(_POLL_TEXT)
    processor = host()
    image = compile_module("\n".join(text), processor).image
    return ObjectFile(image, region.placement.size, tuple(writer.symbols), f"{processor.triple}, {processor.cpu}")


def _refuse(op: Op) -> NoReturn:
    text = "it has no native form, and an object file holds native code alone"
    raise CompileError(Diagnostic(op.location, text, op.name))


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
