"""Every reduction of every element type, at many sizes, with values at both ends of the type: by the definition.

``python -m tests.collectives.every_reduction`` compares the ranks of an MPI job with it, in groups of several sizes;
with ``whole`` as a word, every form at every size, and the group of two at every number of elements up to 100.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
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
#: Also what MPI cuts into pieces.
SIZES = [1, 2, 31, 64, 70001]
_PERIOD = 251  # values repeat, so that the definition need not be worked out for many elements


@dataclass(frozen=True)
class Extent:
    """Which numbers of elements are tried of one reduction of one type.

    ``of_two`` are those of an all_reduce in a group of two that need not be reproducible, from one vector register to
    several, with what is left over. Others take ``turns_of_all`` of `SIZES`, a collective_reduce and a reduce_scatter
    ``turns`` of them, others at each reduction: what an operation does with a buffer has nothing to do with the number
    of ranks.
    """

    of_two: Sequence[int]
    turns: int
    turns_of_all: int = len(SIZES)

    def of_all(self, n: int, reproducible: bool, turn: int) -> Sequence[int]:
        """The numbers of elements of an all_reduce between n processes."""
        return self.of_two if n == 2 and not reproducible else _turns(turn, self.turns_of_all)

    def of_parts(self, turn: int) -> list[int]:
        """Those of the other operations."""
        return _turns(turn, self.turns)


def _turns(turn: int, count: int) -> list[int]:
    return [SIZES[(turn + 2 * k) % len(SIZES)] for k in range(count)]


ORDINARY = Extent(range(1, 101, 7), 2)
#: Over MPI the same operations compute: of each type and reduction, one whose message is short, or in pieces.
OVER_MPI = Extent(SIZES[:-1], 1, 2)
WHOLE = Extent(range(1, 101), len(SIZES))


def is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu" or "int" in dtype.name


def reductions(dtype: np.dtype[Any]) -> list[str]:
    names = ["add", "multiply", "minimum", "maximum"]
    return names + ["and", "or", "xor"] * (dtype == np.bool_ or is_integer(dtype))


# --- values ----------------------------------------------------------------------------------------------------------


@cache
def values_of(dtype: np.dtype[Any]) -> Array:
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
        parts = values_of(np.dtype(f"f{dtype.itemsize // 2}"))
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
    pool = values_of(dtype)
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
        values = int(ml_dtypes.iinfo(dtype).max) - low + 1
        exact = (_INTEGER[name](_integers(a), _integers(b)) - low) % values + low
        return exact.astype(np.int64 if low < 0 else np.uint64).astype(dtype)
    if name in ("minimum", "maximum"):
        pick = _complex_extremum if dtype.kind == "c" else _extremum
        wide = a.astype(np.complex128 if dtype.kind == "c" else np.float64)
        return pick(name, wide, b.astype(wide.dtype)).astype(dtype)
    if dtype.kind == "c" and name == "multiply":
        result = np.empty_like(a)
        result.real, result.imag = a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real
        return result
    return np.asarray(np.add(a, b) if name == "add" else np.multiply(a, b))


_INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda x, y: x + y, "multiply": lambda x, y: x * y,
    "minimum": lambda x, y: np.where(x < y, x, y), "maximum": lambda x, y: np.where(x > y, x, y),
    "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
}  # fmt: skip


def _integers(array: Array) -> Array:
    """The elements as integers of Python, which have no end."""
    return array.astype(np.uint64 if array.dtype == np.uint64 else np.int64).astype(object)


def _extremum(name: str, x: Array, y: Array) -> Array:
    """Of f64: NaN where there is one, and of zeros the positive one for the maximum, the negative one for the other."""
    largest = name == "maximum"
    of_equal = np.where(np.signbit(x) == largest, y, x)
    of_different = np.where((x > y) == largest, x, y)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x == y, of_equal, of_different))


def _complex_extremum(name: str, x: Array, y: Array) -> Array:
    """Of c128, by real part, then by imaginary part; of equal ones the first."""
    if name == "maximum":
        first = (x.real > y.real) | ((x.real == y.real) & (x.imag >= y.imag))
    else:
        first = (x.real < y.real) | ((x.real == y.real) & (x.imag <= y.imag))
    return np.where(first, x, y)


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


def faults(communicator: Communicator, extent: Extent = ORDINARY) -> Iterator[str]:
    """What is wrong with the reductions of the group, as this process sees it."""
    n, position, turns = communicator.size, communicator.rank, count()
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
                turn = next(turns)
                of_all = extent.of_all(n, reproducible, turn)
                started = _operations(name, dtype, n, reproducible, of_all, extent.of_parts(turn))
                forms = [*_forms(communicator, started, operands[position], expected, signs)]
                wrong = [form for form, right in forms if not right]
                if wrong:
                    text = f"process {position} of {n}: {name} of {dtype}, {wrong[0]} and {len(wrong) - 1} more"
                    yield text + ", reproducible" * reproducible


def _operations(
    name: str, dtype: np.dtype[Any], n: int, reproducible: bool, of_all: Sequence[int], of_parts: Sequence[int]
) -> list[tuple[c.Operation, int]]:
    """The operations that are tried, each with its number of elements."""
    reduction, root = c.MONOIDS[name], n - 1
    operations: list[tuple[c.Operation, int]] = [
        (c.AllReduce((size,), dtype, reduction, reproducible), size) for size in of_all
    ]
    for size in of_parts:
        operations.append((c.CollectiveReduce((size,), dtype, reduction, root, reproducible), size))
        operations.append((c.ReduceScatter((n, size), dtype, reduction, 0, reproducible), size))
    return operations


def _forms(
    communicator: Communicator, operations: list[tuple[c.Operation, int]], own: Array, expected: Array, signs: bool
) -> Iterator[tuple[str, bool]]:
    """What each way to carry the operations out is called, and whether it gives what is expected."""
    n, rank = communicator.size, communicator.rank
    longest = max(math.prod(operation.shape) for operation, _ in operations)
    own, expected = np.resize(own, longest), np.resize(expected, longest)
    # All under way at once: where there are fewer cores than ranks, waiting is what takes time.
    requests = [communicator.bind_start(each)(_shaped(own, each)) for each, _ in operations]
    for request, (operation, size) in zip(requests, operations, strict=True):
        yield f"{operation.name} of {size}, started", _right(operation, request.wait(), expected, rank, signs)
    for operation, size in operations:
        if size == 31 or n == 2:
            call, array = communicator.bind(operation), _shaped(own, operation)
            yield f"{operation.name} of {size}", _right(operation, call(array), expected, rank, signs)
            if isinstance(operation, c.AllReduce) and size in SIZES:
                array = array.copy()
                result = call(array, array)
                yield f"{operation.name} of {size} in place", _right(operation, result, expected, rank, signs)


def _shaped(values: Array, operation: c.Operation) -> Array:
    """The operand of an operation, the first of the values."""
    return values[: math.prod(operation.shape)].reshape(operation.shape)


def _right(operation: c.Operation, result: Array, expected: Array, rank: int, signs: bool) -> bool:
    if isinstance(operation, c.CollectiveReduce) and rank != operation.root:
        return True
    shaped = _shaped(expected, operation)
    if isinstance(operation, c.ReduceScatter):
        shaped = shaped[rank : rank + 1]
    return not differs(result, shaped, signs)


def main() -> int:
    """Groups of two, of three, and of all ranks."""
    from mpi4py import MPI

    from collectives.mpi import MpiCommunicator

    world = MpiCommunicator.world()
    extent = WHOLE if sys.argv[1:] == ["whole"] else OVER_MPI
    small = (0, 1) if world.rank < 2 else tuple(range(2, world.size))
    all_faults = [*faults(world.group(small), extent)]
    arrived = MPI.COMM_WORLD.Ibarrier()
    while not arrived.Test():  # without taking a core from those that still compute
        time.sleep(0.005)
    all_faults += faults(world, extent)
    everyone = [text for texts in world.allgather_object(all_faults) for text in texts]
    if world.rank == 0:
        print("\n".join(everyone) or f"{len(DTYPES)} element types agree")
    return int(bool(everyone))


if __name__ == "__main__":
    sys.exit(main())
