"""Compilation of the native regions of a schedule."""

from __future__ import annotations

import numpy as np

from spmd.backends.llvm.emit.region_writer import RegionEmitter
from spmd.backends.llvm.jit.clocks import NativeClock
from spmd.backends.llvm.jit.entry import ArrayType
from spmd.backends.llvm.jit.interrupts import POLL_TEXT
from spmd.backends.llvm.jit.jit import compile_object
from spmd.backends.llvm.jit.loading import RegionCode
from spmd.backends.llvm.ops.callbacks import CALL_TEXT
from spmd.backends.native import CompiledRegion, MakeCallback
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.ir import Value
from spmd.types import TokenType


def compile_region(region: NativeRegion, make_callback: MakeCallback, *, clocked: bool) -> CompiledRegion:
    """Return `region` compiled to one function from arrays of its inputs to an array, or a tuple of arrays, of its
    outputs.

    `make_callback` returns the callback of an op that Python runs. `clocked`: the function times its steps.
    """
    writer, text = write_region(region, make_callback, clocked=clocked)
    inputs, outputs, over = region.inputs, region.outputs, region.overwrites
    code = RegionCode(
        compile_object(text, region.target.processor),
        region.target.processor,
        tuple(writer.text.callees.values()),
        tuple(writer.symbols),
        dict(writer.c_targets),
        tuple(np.ascontiguousarray(array) for array in writer.constants),
        len(inputs) + len(outputs) + 1 + len(writer.constants) + (writer.clock is not None),
        region.placement.size,
        tuple(map(_array_type, inputs)),
        tuple(map(_array_type, outputs)),
        {place: inputs.index(over[value]) for place, value in enumerate(outputs) if value in over},
        may_raise=writer.may_raise,
        uses_workers=writer.uses_workers,
    )
    return CompiledRegion(code, writer.callbacks, writer.clock)


def write_region(region: NativeRegion, make_callback: MakeCallback, *, clocked: bool) -> tuple[RegionEmitter, str]:
    """Return `region` as a module of LLVM IR, and the emitter, which records its external references."""
    writer = RegionEmitter("stretch", region, make_callback, clock=NativeClock() if clocked else None)
    writer.write(region.body)
    text = writer.finish()
    if writer.may_raise:
        text += POLL_TEXT
    if writer.callbacks:
        text += CALL_TEXT
    return writer, text


def _array_type(value: Value) -> ArrayType | None:
    """Return shape and dtype of the array of `value`; None for a token."""
    return None if isinstance(value.type, TokenType) else (value.tensor.static_shape, value.tensor.dtype)
