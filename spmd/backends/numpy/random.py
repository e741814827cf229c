"""Kernels of random numbers: rng_bit_generator, bit for bit what XLA gives, and rng.

Both generators hash a counter that runs over the output, so nothing is drawn one after another:

    THREE_FRY  Threefry-2x32, 20 rounds. State: ui64 key, ui64 counter.
    PHILOX     Philox-4x32, 10 rounds. State: ui64 key, ui64 low and high halves of the counter; without the high
               half the key stands in for it.
    DEFAULT    PHILOX, as in XLA's CPU backend.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); StableHLO specification,
"rng_bit_generator" and "rng"; XLA's CPU client for the order of the output.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from spmd import types as t
from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.pointwise import element_of
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op
from spmd.support.arrays import Array, DType, bits_dtype

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

#: A generator: (state words, shape, whether elements have 64 bits) -> (new state words, 32 or 64 bits per element).
Generator = Callable[[Array, tuple[int, ...], bool], tuple[Array, Array]]


@kernel("stablehlo.rng_bit_generator")
def rng_bit_generator(op: Op, context: Context) -> Kernel:
    state, output = op.operands[0].tensor, op.results[1].tensor
    algorithm = op["rng_algorithm"]
    words = state.size * state.dtype.itemsize / 8
    generate, sizes = (threefry, (2,)) if algorithm == "THREE_FRY" else (philox, (2, 3))
    if words not in sizes:
        expected = " or ".join(f"{64 * size}" for size in sizes)
        message = f"{algorithm} needs a state of {expected} bits, got {state}"
        raise CompileError(Diagnostic(op.location, message, op.name))
    shape, finish, wide = output.static_shape, _finisher(element_of(op.results[1])), output.dtype.itemsize == 8

    def call(initial: Array) -> tuple[Array, Array]:
        new, bits = generate(np.ascontiguousarray(initial).ravel().view(np.uint64), shape, wide)
        return new.view(initial.dtype).reshape(initial.shape), finish(bits)

    return Kernel(call)


def _finisher(element: t.ElementType) -> Callable[[Array], Array]:
    """Return a function from random bits, 32 or 64 per element, to elements of a type: their low bits."""
    dtype = element.dtype
    if element.is_boolean:
        return lambda bits: (bits & 1).astype(np.bool_)
    if element.bits < 8:
        mask = np.uint32(2**element.bits - 1)
        return lambda bits: (bits & mask).astype(np.uint8).view(dtype)
    unsigned = bits_dtype(dtype)
    return lambda bits: bits.astype(unsigned, copy=False).view(dtype)


# --- Threefry --------------------------------------------------------------------------------------------------------

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(key: tuple[np.uint32, np.uint32], x: Array, y: Array) -> tuple[Array, Array]:
    """Return Threefry-2x32 with 20 rounds of each pair (x, y), uint32 arrays that are overwritten."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    spare = np.empty_like(y)
    x += keys[0]
    y += keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x += y
            np.right_shift(y, np.uint32(32 - rotation), out=spare)
            y <<= np.uint32(rotation)
            y |= spare
            y ^= x
        x += keys[(group + 1) % 3]
        y += keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def threefry(state: Array, shape: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    """Return the output of THREE_FRY, with 64 bits per element if `wide`, else 32.

    A counter gives one wide element, or two of 32 bits, adjacent along the first dimension of even size (or the largest
    one).
    """
    split = _split_dimension(shape)
    half = shape if wide or not shape else (*shape[:split], -(-shape[split] // 2), *shape[split + 1 :])
    count = prod(half)
    counters = state[1] + np.arange(count, dtype=np.uint64)
    key = (np.uint32(state[0] & _LOW), np.uint32(state[0] >> _HALF))
    x, y = threefry2x32(key, (counters & _LOW).astype(np.uint32), (counters >> _HALF).astype(np.uint32))
    new = np.array([state[0], state[1] + np.uint64(count)], np.uint64)
    if wide:
        return new, (x | (y.astype(np.uint64) << _HALF)).reshape(shape)
    if not shape:
        return new, x.reshape(())
    both = np.stack([x.reshape(half), y.reshape(half)], axis=split + 1)
    both = both.reshape(*shape[:split], 2 * half[split], *shape[split + 1 :])
    return new, np.ascontiguousarray(both[(slice(None),) * split + (slice(shape[split]),)])


def _split_dimension(shape: tuple[int, ...]) -> int:
    for dimension, size in enumerate(shape):
        if size % 2 == 0:
            return dimension
    return shape.index(max(shape)) if shape else 0


# --- Philox ----------------------------------------------------------------------------------------------------------

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def philox4x32(key: tuple[int, int], words: list[Array]) -> list[Array]:
    """Return Philox-4x32 with 10 rounds of each counter, given and returned as four 32-bit words.

    The words are arrays of uint64, which are overwritten.
    """
    a, b, c, d = words
    first, second = key
    for _ in range(10):
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        b ^= right >> 32
        b ^= first
        d ^= left >> 32
        d ^= second
        right &= _WORD
        left &= _WORD
        a, b, c, d = b, right, d, left
        first, second = (first + _WEYL[0]) & _WORD, (second + _WEYL[1]) & _WORD
    return [a, b, c, d]


def philox(state: Array, shape: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    """Return the output of PHILOX in row-major order: a counter gives four elements of 32 bits, or two of 64."""
    size = prod(shape)
    count = -(-size // (2 if wide else 4))
    key, start, high = state[0], state[1], state[2] if state.size == 3 else state[0]
    halves = int(key) & _WORD, int(key) >> 32
    end = start + np.uint64(count)
    new = np.array([key, end, high + np.uint64(end < start)][: state.size], np.uint64)
    low = start + np.arange(count, dtype=np.uint64)
    highs = high + (low < start)
    a, b, c, d = philox4x32(halves, [low & _LOW, low >> _HALF, highs & _LOW, highs >> _HALF])
    if wide:
        bits = np.stack([a | (b << _HALF), c | (d << _HALF)], axis=-1)
    else:
        bits = np.stack([a, b, c, d], axis=-1, dtype=np.uint32, casting="unsafe")
    return new, bits.reshape(-1)[:size].reshape(shape)


# --- rng -------------------------------------------------------------------------------------------------------------


@kernel("stablehlo.rng")
def rng(op: Op, context: Context) -> Kernel:
    """Return fresh numbers at every run: UNIFORM in [a, b), NORMAL with mean a and standard deviation b.

    The specification leaves the generator open; this is NumPy's, seeded by the operating system.
    """
    element = element_of(op.results[0])
    generator = np.random.default_rng()
    draw = _drawing(generator, op["rng_distribution"], element)
    return Kernel(lambda a, b, shape: np.asarray(draw(a, b, tuple(int(size) for size in shape))))


def _drawing(
    generator: np.random.Generator, distribution: str, element: t.ElementType
) -> Callable[[Any, Any, tuple[int, ...]], Any]:
    dtype = element.dtype
    if element.is_boolean:
        return lambda a, b, shape: generator.integers(0, 2, shape).astype(np.bool_)
    if element.is_integer:
        return lambda a, b, shape: generator.integers(int(a), max(int(a) + 1, int(b)), shape, _holder(dtype)).astype(
            dtype
        )
    compute = np.float64 if dtype == np.float64 else np.float32
    if distribution == "NORMAL":
        return lambda a, b, shape: (
            generator.standard_normal(shape, compute) * b.astype(compute) + a.astype(compute)
        ).astype(dtype)

    def uniform(a: Array, b: Array, shape: tuple[int, ...]) -> Array:
        low: Array = a.astype(compute)
        high: Array = b.astype(compute)
        drawn = (low + (high - low) * generator.random(shape, compute)).astype(dtype)
        return np.where(drawn < b, drawn, a)  # rounding may have reached b

    return uniform


def _holder(dtype: DType) -> DType:
    """Return the dtype in which NumPy draws integers for `dtype`."""
    return dtype if dtype.kind in "iu" else np.dtype(np.int64)
