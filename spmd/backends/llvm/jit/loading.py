"""Loads cached native regions; importing it does not import the code generator."""

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
#: Allocates results and scratch memory: (shape, dtype) -> array.
allocate: Callable[..., Array] = np.empty
#: The array type that replaces a token.
_TOKEN: ArrayType = ((0,), _NO_ARRAY.dtype)


@dataclass(frozen=True, slots=True)
class RegionCode:
    """A native region as it is cached: object code, and its calling convention.

    `callees` and `routines` are the outlined functions and BLAS routines that it calls, `c_targets` maps custom-call
    targets to symbols. `inputs` and `results` are array types, None for tokens; `over` maps results to the inputs that
    they overwrite. After inputs and results the function takes `arena` bytes of memory, then `constants`, then counters
    if it is timed: `arguments` in total.
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
    """Return the native function, linked and loaded."""
    code = cast(RegionCode, compiled.code)
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
    inputs = [_canonical(each) for each in code.inputs]
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
    """Return `native` with counters appended to its arguments, if it has a clock."""
    return native if clock is None else lambda *arrays: native(*arrays, clock.start())


def _without_tokens(call: Callable[..., Any], code: RegionCode) -> Callable[..., Results]:
    """Return `call` with tokens instead of the empty arrays that it takes and returns for them."""
    tokens = [result is None for result in code.results]

    def several(*inputs: Array | None) -> Results:
        results = call(*[_NO_ARRAY if array is None else array for array in inputs])
        if len(tokens) == 1:
            return None if tokens[0] else results
        return tuple(None if token else array for token, array in zip(tokens, results, strict=True))

    return several


def _canonical(type: ArrayType | None) -> ArrayType:
    """Return the array type, or that of a token, with NumPy's canonical dtype object."""
    if type is None:
        return _TOKEN
    shape, dtype = type
    return shape, np.dtype(dtype.type)


def _dense(array: Array, type: ArrayType) -> Array:
    """Return `array` C-contiguous and aligned; ExecutionError if it is not of the compiled type."""
    shape, dtype = type
    if np.shape(array) != shape or np.asarray(array).dtype != dtype:
        here = np.asarray(array)
        raise ExecutionError(
            f"operand of native code must be {dtype} of shape {shape}, got {here.dtype} of shape {here.shape}"
        )
    return np.require(array, requirements=("C", "A")).reshape(shape).view(dtype, np.ndarray)


def _call(native: Callable[..., int], code: RegionCode, types: Sequence[ArrayType]) -> Callable[..., Results]:
    """Return a function that allocates results, except those that overwrite inputs, and calls `native`."""
    arena, constants, overwritten = code.arena, code.constants, code.over
    empty, uint8 = allocate, np.dtype(np.uint8)
    result_types = [_canonical(each) for each in code.results]
    ((shape, dtype),) = result_types if len(result_types) == 1 else (((), uint8),)

    def retry(inputs: tuple[Array, ...], results: Sequence[Array]) -> None:
        """Convert scalars, and arrays of other orders or alignments, and retry."""
        dense = list(map(_dense, inputs, types))
        refused = native(*dense, *results, empty(arena, uint8), *constants)
        assert not refused, "arrays in C order"

    def run(inputs: tuple[Array, ...], results: Sequence[Array]) -> None:
        if native(*inputs, *results, empty(arena, uint8) if arena else _NO_ARRAY, *constants):
            retry(inputs, results)

    def one(*inputs: Array) -> Array:
        result = empty(shape, dtype)  # like `run`, inlined
        if native(*inputs, result, empty(arena, uint8) if arena else _NO_ARRAY, *constants):
            retry(inputs, (result,))
        return result

    def several(*inputs: Array) -> tuple[Array, ...]:
        results = tuple([empty(shape, dtype) for shape, dtype in result_types])
        run(inputs, results)
        return results

    def over(*inputs: Array) -> Results:
        pairs = enumerate(result_types)
        results = tuple(
            [inputs[overwritten[k]] if k in overwritten else empty(shape, dtype) for k, (shape, dtype) in pairs]
        )
        run(inputs, results)
        return results if len(results) > 1 else results[0]

    if overwritten:
        return over
    return one if len(result_types) == 1 else several
