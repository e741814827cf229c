"""Object files: code that is linked into programs of other languages, without an interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spmd.backends.llvm.emit.region_writer import RegionEmitter
from spmd.backends.llvm.jit.interrupts import POLL
from spmd.backends.llvm.jit.jit import compile_module
from spmd.backends.llvm.matmul.blas import linked
from spmd.backends.llvm.target import LlvmTarget
from spmd.backends.native import ObjectFile
from spmd.backends.refusals import naming, refuse, whole_region
from spmd.ir import Block
from spmd.support.processor import Processor

#: There are no interrupts.
_POLL_TEXT = f"define internal i32 @{POLL}() {{\n  ret i32 0\n}}"


def object_file(block: Block, name: str, processor: Processor) -> ObjectFile:
    """Return `block`, an entry function after all passes, as function `name` of an object file for `processor`.

    AMX tiles are not used, since the linking program may not have requested permission. CompileError, which names the
    op and its location, for ops that only Python runs.
    """
    target = LlvmTarget(processor=replace(processor, has_tiles=False), is_linked=True)
    region = whole_region(block, target)
    writer = RegionEmitter(f"{name}.body", region, refuse, routine=linked, is_linked=True)
    writer.write(region.body)
    text = [writer.finish(whole=True).replace("define void", "define internal void", 1)]
    text += _constants(name, writer.constants)
    text.append(_entry(name, len(region.inputs) + len(region.outputs) + 1, len(writer.constants)))
    if writer.may_raise:
        text.append(_POLL_TEXT)
    with naming(region.ops):
        image = compile_module("\n".join(text), target.processor).image
    made_for = f"{processor.triple}, {processor.cpu}"
    return ObjectFile(image, region.placement.size, tuple(writer.symbols), made_for, tuple(writer.c_targets))


def _constants(name: str, arrays: Sequence[np.ndarray]) -> list[str]:
    lines = []
    for place, array in enumerate(arrays):
        data = array.tobytes().hex("\\")
        lines.append(f'@{name}.constant{place} = private constant [{array.nbytes} x i8] c"\\{data}", align 64')
    return lines


def _entry(name: str, parameters: int, constants: int) -> str:
    """Return the C entry point: it passes all addresses in one array."""
    names = [f"%p{place}" for place in range(parameters)]
    pointers = [*names, *(f"@{name}.constant{place}" for place in range(constants))]
    lines = [
        f"define void @{name}({', '.join(f'ptr {each}' for each in names)}) nounwind {{",
        f"  %all = alloca [{len(pointers)} x ptr], align 8",
    ]
    for place, pointer in enumerate(pointers):
        lines += [f"  %at{place} = getelementptr ptr, ptr %all, i64 {place}", f"  store ptr {pointer}, ptr %at{place}"]
    return "\n".join([*lines, f"  call void @{name}.body(ptr %all)", "  ret void", "}"])
