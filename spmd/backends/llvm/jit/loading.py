"""Native functions of stretches as they are kept, and loaded into this process.

Whoever finds a program in the cache loads this alone: nothing here writes native code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from spmd.backends.c_targets import C_TARGETS
from spmd.backends.llvm.emit.math_library import link
from spmd.backends.llvm.emit.writer import Callee
from spmd.backends.llvm.jit.clocks import NativeClock
from spmd.backends.llvm.jit.entry import ArrayType, python_function
from spmd.backends.llvm.jit.interrupts import poll_symbols
from spmd.backends.llvm.jit.jit import ObjectCode, load_object
from spmd.backends.llvm.matmul.blas import routine
from spmd.backends.llvm.ops.callbacks import Callbacks
from spmd.backends.llvm.parallel import workers
from spmd.backends.native import CompiledRegion, LoadedRegion, NativeFunction
from spmd.errors import ExecutionError
from spmd.support.arrays import Array, Results
from spmd.support.processor import Processor

_NUMBERS = itertools.count()
_NO_ARRAY = np.empty(0, np.uint8)
#: Makes the memory that native code is given for results, and to work in: (shape, dtype) -> array.
allocate: Callable[..., Array] = np.empty
#: What stands for a token.
_TOKEN: ArrayType = ((0,), _NO_ARRAY.dtype)


@dataclass(frozen=True, slots=True)
class StretchCode:
    """A native function as it is kept: its code, and what it is to be given when it is loaded and called.

    `callees` and `routines` are the functions out of line and the names of BLAS's routines that it calls, `c_targets`
    the targets of custom calls, by name, with the symbol that each is called by; `inputs` and
    `results` have shape and dtype of each array that it reads and writes, None for a token, and `over` by its place the
    input that a result is written over. After inputs and results the function takes `arena` bytes of memory, then
    `constants`; with what it counts in, where it does, these are so many `arguments`.
    """

    code: ObjectCode
    processor: Processor
    callees: tuple[Callee, ...]
    routines: tuple[str, ...]
    c_targets: Mapping[str, str]
    constants: tuple[Array, ...]
    arguments: int
    arena: int
    inputs: tuple[ArrayType | None, ...]
    results: tuple[ArrayType | None, ...]
    over: Mapping[int, int]
    may_raise: bool
    uses_workers: bool


def load_region(compiled: CompiledRegion) -> LoadedRegion:
    """Return the native function in this process."""
    code = cast(StretchCode, compiled.code)
    linked = link(code.callees, code.processor)
    symbols = {**{name: routine(name).address for name in code.routines}, **linked.symbols}
    functions = {symbol: C_TARGETS[name] for name, symbol in code.c_targets.items()}
    symbols |= {symbol: function.address for symbol, function in functions.items()}
    if code.uses_workers:
        symbols |= workers.symbols()
    if code.may_raise:
        symbols |= poll_symbols()
    callbacks = Callbacks(compiled.callbacks) if compiled.callbacks else None
    if callbacks is not None:
        symbols |= callbacks.symbols()
    library = load_object(code.code, symbols, uses=linked.libraries)
    keep = (library, code.constants, callbacks, functions)
    inputs = [_usual(each) for each in code.inputs]
    native = python_function(library.address("stretch"), code.arguments, f"stretch{next(_NUMBERS)}", keep, inputs)
    call = _call(_clocked(native, cast(NativeClock | None, compiled.clock)), code, inputs)
    has_tokens = None in code.inputs or None in code.results
    if has_tokens:
        call = _without_tokens(call, code)
    if callbacks is not None:
        call = callbacks.running(call)
    is_plain = callbacks is None and not has_tokens
    function = None
    if is_plain and compiled.clock is None:
        address = library.address("stretch")
        function = NativeFunction(address, code.over, code.arena, code.constants, code.may_raise, keep)
    return LoadedRegion(call, callbacks is not None, tuple(code.over.items()), is_plain, function)


def _clocked(native: Callable[..., int], clock: NativeClock | None) -> Callable[..., int]:
    """`native`, whose last argument is what it counts in."""
    return native if clock is None else lambda *arrays: native(*arrays, clock.start())


def _without_tokens(call: Callable[..., Any], code: StretchCode) -> Callable[..., Results]:
    """`call`, which takes and gives empty arrays in place of tokens, with tokens."""
    tokens = [result is None for result in code.results]

    def several(*inputs: Array | None) -> Results:
        results = call(*[_NO_ARRAY if array is None else array for array in inputs])
        if len(tokens) == 1:
            return None if tokens[0] else results
        return tuple(None if token else array for token, array in zip(tokens, results, strict=True))

    return several


def _usual(type: ArrayType | None) -> ArrayType:
    """Return the type of an array, or of what stands for a token, with the dtype object that arrays mostly have."""
    if type is None:
        return _TOKEN
    shape, dtype = type
    return shape, np.dtype(dtype.type)


def _dense(array: Array, type: ArrayType) -> Array:
    """`array` as native code reads it; ExecutionError for one of another type than the code was compiled for."""
    shape, dtype = type
    if np.shape(array) != shape or np.asarray(array).dtype != dtype:
        here = np.asarray(array)
        raise ExecutionError(f"native code reads {dtype} of shape {shape}, got {here.dtype} of shape {here.shape}")
    return np.require(array, requirements=("C", "A")).reshape(shape).view(dtype, np.ndarray)


def _call(native: Callable[..., int], code: StretchCode, types: Sequence[ArrayType]) -> Callable[..., Results]:
    """What allocates results, but for those that take over an input's array, and calls `native`."""
    arena, constants, places = code.arena, code.constants, code.over
    empty, uint8 = allocate, np.dtype(np.uint8)
    result_types = [_usual(each) for each in code.results]
    ((shape, dtype),) = result_types if len(result_types) == 1 else (((), uint8),)

    def again(inputs: tuple[Array, ...], results: Sequence[Array]) -> None:
        """With other arrays for scalars, and for arrays in another order or at odd addresses."""
        dense = list(map(_dense, inputs, types))
        refused = native(*dense, *results, empty(arena, uint8), *constants)
        assert not refused, "arrays in C order"

    def run(inputs: tuple[Array, ...], results: Sequence[Array]) -> None:
        if native(*inputs, *results, empty(arena, uint8) if arena else _NO_ARRAY, *constants):
            again(inputs, results)

    def one(*inputs: Array) -> Array:
        result = empty(shape, dtype)  # as `run` does, without another call
        if native(*inputs, result, empty(arena, uint8) if arena else _NO_ARRAY, *constants):
            again(inputs, (result,))
        return result

    def several(*inputs: Array) -> tuple[Array, ...]:
        results = tuple([empty(shape, dtype) for shape, dtype in result_types])
        run(inputs, results)
        return results

    def over(*inputs: Array) -> Results:
        pairs = enumerate(result_types)
        results = tuple([inputs[places[k]] if k in places else empty(shape, dtype) for k, (shape, dtype) in pairs])
        run(inputs, results)
        return results if len(results) > 1 else results[0]

    if places:
        return over
    return one if len(result_types) == 1 else several
