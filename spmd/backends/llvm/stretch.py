"""Stretches of a program as kernels: neighbouring units with a native form become one native function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spmd.arrays import Array
from spmd.backends.llvm import control as _control
from spmd.backends.llvm import convolutions as _convolutions
from spmd.backends.llvm import fft as _fft
from spmd.backends.llvm import lapack as _lapack
from spmd.backends.llvm import products as _products
from spmd.backends.llvm import running as _running
from spmd.backends.llvm import top_k as _top_k
from spmd.backends.llvm import workers
from spmd.backends.llvm.blas import routine
from spmd.backends.llvm.callbacks import CALL_TEXT, Callbacks
from spmd.backends.llvm.clocks import NativeClock
from spmd.backends.llvm.entry import entry_symbols, entry_text, python_function
from spmd.backends.llvm.function import Buffer, Callback, FunctionWriter, MakeCallback, nbytes, supports
from spmd.backends.llvm.functions import link
from spmd.backends.llvm.in_place import overwritten
from spmd.backends.llvm.interrupts import POLL_TEXT, poll_symbols
from spmd.backends.llvm.jit import ObjectCode, compile_object, load_object
from spmd.backends.llvm.writer import Callee
from spmd.compiler.schedule.fusion import Unit
from spmd.ir import Value
from spmd.types import TokenType

#: Modules that file their ops in function.NATIVE.
FORMS = (_control, _convolutions, _fft, _lapack, _products, _running, _top_k)

_NUMBERS = itertools.count()
_NO_ARRAY = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class StretchCode:
    """A native function as it is kept: its code, and what it is to be given when it is loaded and called.

    `callees` and `routines` are the functions of floats and the names of BLAS's routines that it calls; `results` has
    shape and dtype of each array that it writes, None for a token, and `over` by its place the input that a result is
    written over. After inputs and results the function takes `arena` bytes of memory, then `constants`.
    """

    code: ObjectCode
    callees: tuple[Callee, ...]
    routines: tuple[str, ...]
    constants: tuple[Array, ...]
    arena: int
    results: tuple[tuple[tuple[int, ...], np.dtype[Any]] | None, ...]
    over: Mapping[int, int]
    takes_tokens: bool
    may_raise: bool
    uses_workers: bool


@dataclass(frozen=True, slots=True)
class CompiledStretch:
    """A native function, what Python runs for it, by number, and what times its parts."""

    code: StretchCode
    callbacks: Sequence[Callback] = ()
    clock: NativeClock | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A native function for Python. `needs_process`: it takes the process before the arrays.

    `is_plain`: it takes and gives arrays, no tokens, and does not call Python.
    `overwrites` has pairs (output, input): the output is the input's array.
    """

    call: Callable[..., Any]
    needs_process: bool
    overwrites: tuple[tuple[int, int], ...]
    is_plain: bool


def is_native(unit: Unit) -> bool:
    """Whether `unit` has a native form."""
    return unit.fused or supports(unit.roots[0])


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
    over = overwritten(writer, units, donated, outputs)
    free = [target for value, target in zip(outputs, targets, strict=True) if value not in over]
    targets = [writer.buffer_of[over[v]] if v in over else target for v, target in zip(outputs, targets, strict=True)]
    writer.write_results(units, outputs, targets, free)
    text = writer.finish()
    count = len(inputs) + len(outputs) + 1 + len(writer.constants) + (writer.clock is not None)
    text += "\n" + entry_text("entry", "stretch", count, may_raise=writer.may_raise)
    if writer.may_raise:
        text += POLL_TEXT
    if writer.callbacks:
        text += CALL_TEXT
    code = StretchCode(
        compile_object(text),
        tuple(writer.text.callees.values()),
        tuple(writer.symbols),
        tuple(np.ascontiguousarray(array) for array in writer.constants),
        writer.arena_size,
        tuple(None if isinstance(v.type, TokenType) else (v.tensor.static_shape, v.tensor.dtype) for v in outputs),
        {place: inputs.index(over[value]) for place, value in enumerate(outputs) if value in over},
        takes_tokens=any(isinstance(value.type, TokenType) for value in inputs),
        may_raise=writer.may_raise,
        uses_workers=writer.uses_workers,
    )
    return CompiledStretch(code, writer.callbacks, writer.clock)


def load_stretch(compiled: CompiledStretch) -> Stretch:
    """The native function in this process."""
    code = compiled.code
    linked = link(code.callees)
    symbols = {**{name: routine(name).address for name in code.routines}, **linked.symbols, **entry_symbols()}
    if code.uses_workers:
        symbols |= workers.symbols()
    if code.may_raise:
        symbols |= poll_symbols()
    callbacks = Callbacks(compiled.callbacks) if compiled.callbacks else None
    if callbacks is not None:
        symbols |= callbacks.symbols()
    library = load_object(code.code, symbols, uses=linked.libraries)
    native = python_function(library.address("entry"), f"stretch{next(_NUMBERS)}", (library, code.constants, callbacks))
    call = _call(_clocked(native, compiled.clock), code)
    has_tokens = code.takes_tokens or None in code.results
    if has_tokens:
        call = _without_tokens(call, code)
    if callbacks is not None:
        call = callbacks.running(call)
    is_plain = callbacks is None and not has_tokens
    return Stretch(call, callbacks is not None, tuple(code.over.items()), is_plain)


def _clocked(native: Callable[..., int], clock: NativeClock | None) -> Callable[..., int]:
    """`native`, whose last argument is what it counts in."""
    return native if clock is None else lambda *arrays: native(*arrays, clock.start())


def _without_tokens(call: Callable[..., Any], code: StretchCode) -> Callable[..., Any]:
    """`call`, which takes and gives empty arrays in place of tokens, with tokens."""
    tokens = [result is None for result in code.results]

    def several(*inputs: Any) -> Any:
        results = call(*[_NO_ARRAY if array is None else array for array in inputs])
        if len(tokens) == 1:
            return None if tokens[0] else results
        return tuple(None if token else array for token, array in zip(tokens, results, strict=True))

    return several


def _call(native: Callable[..., int], code: StretchCode) -> Callable[..., Any]:
    """What allocates results, but for those that take over an input's array, and calls `native`."""
    arena, constants, places = code.arena, code.constants, code.over
    empty, uint8 = np.empty, np.dtype(np.uint8)
    result_types = [((0,), uint8) if result is None else result for result in code.results]
    ((shape, dtype),) = result_types if len(result_types) == 1 else (((), uint8),)

    def again(inputs: tuple[Any, ...], results: Sequence[Any]) -> None:
        """With other arrays for scalars, and for arrays in another order or at odd addresses."""
        dense = [np.require(array, requirements=("C", "A")).reshape(np.shape(array)) for array in inputs]
        refused = native(*dense, *results, empty(arena, uint8), *constants)
        assert not refused, "arrays in C order"

    def run(inputs: tuple[Any, ...], results: Sequence[Any]) -> None:
        if native(*inputs, *results, empty(arena, uint8) if arena else _NO_ARRAY, *constants):
            again(inputs, results)

    def one(*inputs: Any) -> Any:
        result = empty(shape, dtype)  # as `run` does, without another call
        if native(*inputs, result, empty(arena, uint8) if arena else _NO_ARRAY, *constants):
            again(inputs, (result,))
        return result

    def several(*inputs: Any) -> Any:
        results = tuple([empty(shape, dtype) for shape, dtype in result_types])
        run(inputs, results)
        return results

    def over(*inputs: Any) -> Any:
        pairs = enumerate(result_types)
        results = tuple([inputs[places[k]] if k in places else empty(shape, dtype) for k, (shape, dtype) in pairs])
        run(inputs, results)
        return results if len(results) > 1 else results[0]

    if places:
        return over
    return one if len(result_types) == 1 else several
