"""Every reduction of every element type, at many sizes, with values at both ends of the type: by the definition.

``python -m tests.collectives.every_reduction`` holds the ranks of an MPI job against it, in groups of several sizes;
with ``dense`` as a word, the group of two at every number of elements up to 100.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import collectives as c
from collectives.arrays import Array
from collectives.communicator import Communicator

_ODD = (
    "int2 uint2 int4 uint4 bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz "
    "float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn"
)
_PLAIN = "bool i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16"
DTYPES = [*map(np.dtype, _PLAIN.split()), *(np.dtype(getattr(ml_dtypes, name)) for name in _ODD.split())]
#: From one vector register to several, with what is left over.
DENSE_SIZES = range(1, 101)
#: Of them, for larger groups: what an operation does with a buffer has nothing to do with the number of ranks.
SPARSE_SIZES = DENSE_SIZES[::7]
#: Also what MPI cuts into pieces.
SIZES = [1, 2, 31, 64, 70001]
_PERIOD = 251  # values repeat, so that the definition need not be worked out for many elements


def is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" or "int" in dtype.name


def reductions(dtype: np.dtype[Any]) -> list[str]:
    names = ["add", "multiply", "minimum", "maximum"]
    return names + ["and", "or", "xor"] * (dtype == np.bool_ or is_integer(dtype))


# --- values ----------------------------------------------------------------------------------------------------------


@cache
def _pool(dtype: np.dtype[Any]) -> Array:
    """Both ends of the type, what is next to them and to zero, zeros of both signs, infinities, NaN."""
    if dtype == np.bool_:
        return np.array([False, True])
    if is_integer(dtype):
        info: Any = ml_dtypes.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        values = {low, low + 1, low // 2, -1, 0, 1, 2, 3, high // 2, high // 2 + 1, high - 1, high}
        fitting = [v for v in sorted(values) if low <= v <= high]
        return np.array(fitting, object).astype(np.int64 if low < 0 else np.uint64).astype(dtype)
    if dtype.kind == "c":
        parts = _pool(np.dtype(f"f{dtype.itemsize // 2}"))
        parts = parts[np.isfinite(parts)]
        return (parts[:, None] + np.zeros_like(parts)).astype(dtype).ravel() + 1j * np.tile(parts, len(parts))
    if dtype.itemsize == 1:
        codes = np.arange(256, dtype=np.uint8)[: 1 << ml_dtypes.finfo(dtype).bits]
        return codes.view(dtype)
    limits: Any = ml_dtypes.finfo(dtype)
    ends = [limits.max, limits.smallest_normal, limits.smallest_subnormal, limits.eps, 1, 1.5, 3, 0, np.inf]
    wide = [float(v) * sign for v in ends for sign in (1, -1)] + [math.nan]
    with np.errstate(over="ignore"):
        return np.array(wide).astype(dtype)


def operand(name: str, dtype: np.dtype[Any], position: int, processes: int, tame: bool) -> Array:
    """``_PERIOD`` values of one process. Tame ones make the association of a sum or a product immaterial."""
    pool = _pool(dtype)
    rounds = not is_integer(dtype) and dtype != np.bool_ and name in ("add", "multiply")
    if tame and rounds and 0 < position < processes - 1:
        neutral = [0.0, -0.0] if name == "add" else [1.0]
        pool = np.array(neutral).astype(dtype)
    rng = np.random.default_rng([position, DTYPES.index(dtype)])
    return pool[rng.integers(0, len(pool), _PERIOD)]


# --- the definition --------------------------------------------------------------------------------------------------


def definition(name: str, operands: Sequence[Array]) -> Array:
    """The left fold of ``operands``, each step read from the specification's op of that name.

    Narrow floats are added and multiplied in f32 and rounded once.
    """
    dtype = operands[0].dtype
    narrow = dtype.itemsize <= 2 and dtype != np.bool_ and not is_integer(dtype) and name in ("add", "multiply")
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float32) for x in operands] if narrow else list(operands)
        total = wide[0]
        for other in wide[1:]:
            total = _step(name, total, other)
        return total.astype(dtype)


def _step(name: str, a: Array, b: Array) -> Array:
    dtype = a.dtype
    if dtype == np.bool_:
        if name == "xor":
            return a ^ b
        return a | b if name in ("add", "or", "maximum") else a & b
    if is_integer(dtype):
        low = int(ml_dtypes.iinfo(dtype).min)
        count = int(ml_dtypes.iinfo(dtype).max) - low + 1
        exact = [(_INTEGER[name](x, y) - low) % count + low for x, y in zip(_integers(a), _integers(b), strict=True)]
        return np.array(exact, object).astype(np.int64 if low < 0 else np.uint64).astype(dtype)
    if name in ("minimum", "maximum"):
        pick = _complex_extremum if dtype.kind == "c" else _extremum
        wide = a.astype(np.complex128 if dtype.kind == "c" else np.float64)
        chosen = [pick(name, x, y) for x, y in zip(wide.tolist(), b.astype(wide.dtype).tolist(), strict=True)]
        return np.array(chosen, wide.dtype).astype(dtype)
    if dtype.kind == "c" and name == "multiply":
        result = np.empty_like(a)
        result.real, result.imag = a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
        return result
    return np.asarray(np.add(a, b) if name == "add" else np.multiply(a, b))


_INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y, "multiply": lambda x, y: x * y, "minimum": min, "maximum": max,
    "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
}  # fmt: skip


def _integers(array: Array) -> list[int]:
    numbers: list[int] = array.astype(np.uint64 if array.dtype == np.uint64 else np.int64).tolist()
    return numbers


def _extremum(name: str, x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return math.nan
    if x == y:
        has_sign = math.copysign(1, x) < 0
        return (y if has_sign else x) if name == "maximum" else (x if has_sign else y)
    return max(x, y) if name == "maximum" else min(x, y)


def _complex_extremum(name: str, x: complex, y: complex) -> complex:
    first, second = (x.real, x.imag), (y.real, y.imag)
    if name == "maximum":
        return x if first >= second else y
    return x if first <= second else y


# --- the comparison --------------------------------------------------------------------------------------------------


def differs(actual: Array, expected: Array, signs: bool = True) -> bool:
    """Whether types, shapes or bits differ; one NaN is as good as another, ``signs`` of zeros count."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return True
    if actual.tobytes() == expected.tobytes():
        return False
    if actual.dtype == np.bool_:
        return bool((actual != expected).any())
    if is_integer(actual.dtype):
        wide_integer = np.uint64 if actual.dtype == np.uint64 else np.int64
        return not np.array_equal(actual.astype(wide_integer), expected.astype(wide_integer))
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    one, two = (x.astype(wide).view(np.float64) for x in (actual.reshape(-1), expected.reshape(-1)))
    if not np.array_equal(one, two, equal_nan=True):
        return True
    numbers = ~np.isnan(one)
    return signs and bool((np.signbit(one) != np.signbit(two))[numbers].any())


def faults(communicator: Communicator, sizes: Sequence[int] = SPARSE_SIZES) -> Iterator[str]:
    """What is wrong with the reductions of the group, as this process sees it; `sizes` are those of a group of two."""
    n, position = communicator.size, communicator.rank
    for dtype in DTYPES:
        for name in reductions(dtype):
            for reproducible in (False, True):
                if not reproducible and name == "add" and dtype.name == "float8_e8m0fnu" and n > 2:
                    continue  # it has no zero, so that the association always shows
                operands = [operand(name, dtype, i, n, not reproducible) for i in range(n)]
                if dtype.kind == "c" and name == "multiply" and not reproducible:
                    small = [np.maximum(abs(x.real), abs(x.imag)) < 4 for x in operands]
                    operands = [np.where(keep, x, 1).astype(dtype) for keep, x in zip(small, operands, strict=True)]
                expected = definition(name, operands)
                signs = reproducible or dtype.kind != "c"
                forms = [*_forms(communicator, name, operands[position], expected, reproducible, signs, sizes)]
                wrong = [form for form, right in forms if not right]
                if wrong:
                    text = f"process {position} of {n}: {name} of {dtype}, {wrong[0]} and {len(wrong) - 1} more"
                    yield text + ", reproducible" * reproducible


def _forms(
    communicator: Communicator,
    name: str,
    own: Array,
    expected: Array,
    reproducible: bool,
    signs: bool,
    sizes: Sequence[int],
) -> Iterator[tuple[str, bool]]:
    reduction, dtype, n = c.MONOIDS[name], own.dtype, communicator.size
    root = n - 1
    # All under way at once: where there are fewer cores than ranks, waiting is what takes time.
    started: list[tuple[str, c.Operation, int]] = [
        ("all_reduce", c.AllReduce((size,), dtype, reduction, reproducible), size)
        for size in (SIZES if reproducible else sizes if n == 2 else SPARSE_SIZES)
    ]
    for size in SIZES:
        started.append(("collective_reduce", c.CollectiveReduce((size,), dtype, reduction, root, reproducible), size))
        started.append(("reduce_scatter", c.ReduceScatter((n, size), dtype, reduction, 0, reproducible), size))
    requests = [communicator.bind_start(operation)(np.resize(own, operation.shape)) for _, operation, _ in started]
    for request, (form, operation, size) in zip(requests, started, strict=True):
        yield f"{form} of {size}, started", _right(operation, request.wait(), expected, communicator.rank, signs)
    blocking = [entry for entry in started if entry[2] == 31 or (n == 2 and entry[2] in (*SPARSE_SIZES, *SIZES))]
    for form, operation, size in blocking:
        array = np.resize(own, operation.shape)
        result = communicator.bind(operation)(array)
        yield f"{form} of {size}", _right(operation, result, expected, communicator.rank, signs)
        if isinstance(operation, c.AllReduce) and size in SIZES:
            result = communicator.bind(operation)(array, array)
            yield f"{form} of {size} in place", _right(operation, result, expected, communicator.rank, signs)


def _right(operation: c.Operation, result: Array, expected: Array, rank: int, signs: bool) -> bool:
    if isinstance(operation, c.CollectiveReduce) and rank != operation.root:
        return True
    shaped = np.resize(expected, operation.shape)
    if isinstance(operation, c.ReduceScatter):
        shaped = shaped[rank : rank + 1]
    return not differs(result, shaped, signs)


def main() -> int:
    """Groups of two, of three, and of all ranks."""
    from collectives.mpi import MpiCommunicator

    world = MpiCommunicator.world()
    small = (0, 1) if world.rank < 2 else tuple(range(2, world.size))
    sizes = DENSE_SIZES if sys.argv[1:] == ["dense"] else SPARSE_SIZES
    all_faults = [*faults(world.group(small), sizes), *faults(world)]
    everyone = [text for texts in world.allgather_object(all_faults) for text in texts]
    if world.rank == 0:
        print("\n".join(everyone) or f"{len(DTYPES)} element types agree")
    return int(bool(everyone))


if __name__ == "__main__":
    sys.exit(main())
