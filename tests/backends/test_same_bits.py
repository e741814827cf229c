"""An element's bits follow from its operands' values alone: not from the array's size or layout, or its place in it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from spmd.backends.kernels import Kernel, make_kernel
from spmd.backends.numpy import chlo, elementwise
from spmd.dialects.core import OPS
from spmd.ir import Op, Value
from spmd.types import ELEMENT_TYPES, ElementType, TensorType

#: Around what vectors and NumPy's own blocks hold, and more than either.
SIZES = [*range(1, 71), 1023, 1024, 1025]
TOTAL = 3 * 1025 + 40
FLOATS = [element for element in ELEMENT_TYPES.values() if element.is_float and element.numpy is not None]
WIDE = [ELEMENT_TYPES[name] for name in ("bf16", "f16", "f32", "f64", "complex<f32>", "complex<f64>")]
UNARY = {**elementwise.UNARY, **chlo.UNARY}
BINARY = {**elementwise.BINARY, **chlo.BINARY}
#: Those that are worked out by many functions in turn.
SLOW = ("chlo.polygamma", "chlo.zeta")
#: Those on NumPy's own loops; the others are looked up in tables, or computed as these are.
NARROW = [element for element in FLOATS if element not in WIDE]


def kernel_of(name: str, element: ElementType, shape: tuple[int, ...], arity: int) -> Kernel:
    result = element.real if element.is_complex and name == "stablehlo.abs" else element
    values = [Value(TensorType(shape, element)) for _ in range(arity)]
    return make_kernel(Op(name, values, [TensorType(shape, result)], definition=OPS[name]), None)  # type: ignore


def numbers(element: ElementType, seed: int) -> np.ndarray:
    """Numbers of all magnitudes, most of them near one, with exponents and the special values that people write."""
    if element.is_complex:
        array = np.empty(TOTAL, element.dtype)
        array.real, array.imag = numbers(element.real, seed), numbers(element.real, seed + 10)
        return array
    rng = np.random.default_rng(seed)
    near = rng.normal(size=TOTAL) * np.exp(rng.uniform(-4, 4, TOTAL))
    far = rng.normal(size=TOTAL) * np.exp(rng.uniform(-80, 80, TOTAL))
    special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0], size=TOTAL)
    picked = rng.random(TOTAL)
    with np.errstate(all="ignore"):
        return np.where(picked < 0.1, special, np.where(picked < 0.2, far, near)).astype(element.dtype)


def bits(array: Any) -> np.ndarray:
    """The bits of the elements, of a NaN those of the usual one."""
    array = np.ascontiguousarray(array)
    parts = np.stack([array.real, array.imag]) if array.dtype.kind == "c" else array
    with np.errstate(all="ignore"):
        nan = np.isnan(parts)
    return np.where(nan, 1, parts.view(f"u{parts.dtype.itemsize}")) + nan


def in_pieces(kernel: Kernel, operands: list[np.ndarray], sizes: list[int]) -> Iterator[tuple[str, slice, Any]]:
    for size in sizes:
        start = size * 7 % (TOTAL - size)
        where = slice(start, start + size)
        yield f"{size} elements from {start} on", where, kernel.call(*[x[where] for x in operands])
    for step in (2, 3, 7, -1, -2):
        where = slice(None, None, step)
        yield f"every {step}th", where, kernel.call(*[x[where] for x in operands])
    everything = slice(None)
    table = [x[: 31 * 100].reshape(31, 100) for x in operands]
    first = slice(0, 3100)
    yield "transposed", first, kernel.call(*[np.asfortranarray(x) for x in table]).reshape(-1)
    yield "backwards", first, kernel.call(*[x[::-1, ::-1] for x in table])[::-1, ::-1].reshape(-1)
    apart = [np.repeat(x, 2)[::2] for x in operands]
    yield "apart", everything, kernel.call(*apart)
    out = np.empty(2 * TOTAL, kernel.call(*operands).dtype)[::-2]
    yield "into a strided array", everything, kernel.call(*operands, out=out)
    if out.dtype == operands[0].dtype:
        own = [x.copy() for x in operands]
        yield "in place", everything, kernel.call(*own, out=own[0])


def check(name: str, element: ElementType, arity: int) -> None:
    operands = [numbers(element, seed) for seed in range(arity)]
    if name in SLOW:
        operands = [np.abs(operand) for operand in operands]  # the left side is SciPy's, one element after another
    with np.errstate(all="ignore"):
        whole = bits(kernel_of(name, element, (TOTAL,), arity).call(*operands))
        sizes = SIZES[::12] if name in SLOW else SIZES
        for shape, few in (((TOTAL,), sizes), ((7,), sizes[-3:])):
            kernel = kernel_of(name, element, shape, arity)
            for how, where, got in in_pieces(kernel, operands, few):
                assert_same(bits(got), whole[..., where], f"{name} of {element}: {how}")
        scalar, places = kernel_of(name, element, (), arity), range(0, TOTAL, 31)
        for one in (lambda number: number, np.array):
            each = [np.asarray(scalar.call(*(one(x[place]) for x in operands))) for place in places]
            assert all(not got.ndim for got in each)
            assert_same(bits(np.array(each)), whole[..., ::31], f"{name} of {element} at rank 0")
        if arity == 2:
            check_broadcast(kernel_of(name, element, (TOTAL,), arity), operands, f"{name} of {element}")


def assert_same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """As NumPy's own assertion, which takes several times as long to find nothing."""
    if not np.array_equal(got, want):
        np.testing.assert_array_equal(got, want, what)


def check_broadcast(kernel: Kernel, operands: list[np.ndarray], what: str) -> None:
    """One number against an array is that number in every place of another array."""
    for number in [*operands[1][:4], *np.array([2, -1, 0.5], operands[1].dtype)]:
        for position in (0, 1):
            pair = [operands[0], np.asarray(number)]
            full = [operands[0], np.full(TOTAL, number)]
            if position:
                pair.reverse(), full.reverse()
            want = bits(kernel.call(*full))
            assert_same(bits(kernel.call(*pair)), want, what)
            stretched = [np.broadcast_to(x, (TOTAL,)) for x in pair]
            assert_same(bits(kernel.call(*stretched)), want, what)


@pytest.mark.sampled(62)
@pytest.mark.parametrize("element", WIDE, ids=str)
@pytest.mark.parametrize(("name", "arity"), [*((name, 1) for name in UNARY), *((name, 2) for name in BINARY)])
def test_each_function(name: str, arity: int, element: ElementType) -> None:
    if (UNARY if arity == 1 else BINARY)[name].call(element, arity) is None:
        pytest.skip("not defined")
    check(name, element, arity)


@pytest.mark.parametrize("name", ["stablehlo.exponential", "stablehlo.tanh", "stablehlo.add", "stablehlo.power"])
def test_narrow_types(name: str) -> None:
    for element in NARROW:
        check(name, element, 1 if name in elementwise.UNARY else 2)
