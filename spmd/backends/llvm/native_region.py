"""Stretches of a program as kernels: neighbouring units with a native form become one native function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.backends.llvm.emit.function_emitter import FunctionWriter
from spmd.backends.llvm.emit.native_ops import MakeCallback, supports
from spmd.backends.llvm.fft import transforms as _fft
from spmd.backends.llvm.jit.clocks import NativeClock
from spmd.backends.llvm.jit.entry import ArrayType
from spmd.backends.llvm.jit.interrupts import POLL_TEXT
from spmd.backends.llvm.jit.jit import compile_object
from spmd.backends.llvm.jit.loading import CompiledStretch, StretchCode
from spmd.backends.llvm.matmul import convolutions as _convolutions
from spmd.backends.llvm.matmul import products as _products
from spmd.backends.llvm.matmul.conv_input_fusion import take_images
from spmd.backends.llvm.memory.buffers import Buffer, nbytes
from spmd.backends.llvm.memory.in_place import overwritten
from spmd.backends.llvm.ops import control_flow as _control
from spmd.backends.llvm.ops import lapack as _lapack
from spmd.backends.llvm.ops import scan as _running
from spmd.backends.llvm.ops import top_k as _top_k
from spmd.backends.llvm.ops.callbacks import CALL_TEXT
from spmd.backends.llvm.parallel import workers
from spmd.compiler.schedule.fusion import Unit
from spmd.ir import Value
from spmd.types import TokenType

#: Modules that file their ops in forms.NATIVE.
FORMS = (_control, _convolutions, _fft, _lapack, _products, _running, _top_k)


def is_native(unit: Unit) -> bool:
    """Whether `unit` has a native form."""
    return unit.fused or supports(unit.outputs[0])


def _array_type(value: Value) -> ArrayType | None:
    """Shape and dtype of the array of `value`; None of a token."""
    return None if isinstance(value.type, TokenType) else (value.tensor.static_shape, value.tensor.dtype)


def compile_stretch(
    units: list[Unit],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    make_callback: MakeCallback,
    threads: int = 1,
    donated: Sequence[Value] = (),
    *,
    clocked: bool = False,
) -> CompiledStretch:
    """`units` as one function, run by up to `threads`: arrays of `inputs` in; out one, or a tuple, of `outputs`.

    `make_callback` gives what Python runs in place of an op without a native form. Of the inputs, `donated` may be
    written over. `clocked`: the function times its parts.
    """
    threads = threads if workers.are_supported() else 1
    clock = NativeClock() if clocked else None
    writer = FunctionWriter("stretch", inputs, outputs, make_callback, threads, clock=clock)
    targets = [
        Buffer(writer.argument(len(inputs) + place), nbytes(value), values=[value])
        for place, value in enumerate(outputs)
    ]
    units = take_images(writer, units, outputs)
    over = overwritten(writer, units, donated, outputs)
    free = [target for value, target in zip(outputs, targets, strict=True) if value not in over]
    targets = [writer.buffer_of[over[v]] if v in over else target for v, target in zip(outputs, targets, strict=True)]
    writer.write_results(units, outputs, targets, free)
    text = writer.finish()
    if writer.may_raise:
        text += POLL_TEXT
    if writer.callbacks:
        text += CALL_TEXT
    code = StretchCode(
        compile_object(text),
        tuple(writer.text.callees.values()),
        tuple(writer.symbols),
        tuple(np.ascontiguousarray(array) for array in writer.constants),
        len(inputs) + len(outputs) + 1 + len(writer.constants) + (writer.clock is not None),
        writer.arena_size,
        tuple(map(_array_type, inputs)),
        tuple(map(_array_type, outputs)),
        {place: inputs.index(over[value]) for place, value in enumerate(outputs) if value in over},
        may_raise=writer.may_raise,
        uses_workers=writer.uses_workers,
    )
    return CompiledStretch(code, writer.callbacks, writer.clock)
