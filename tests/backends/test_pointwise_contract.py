"""What the compiler relies on of every pointwise kernel: `out=`, in-place results, scalars, broadcasting."""

import numpy as np
import pytest

from spmd.backends.kernels import Kernel, make_kernel
from spmd.backends.numpy import chlo, elementwise
from spmd.dialects.core import OPS
from spmd.ir import Op, Value
from spmd.types import ELEMENT_TYPES, I1, ElementType, TensorType
from tests.backends.programs import values_of

ELEMENTS = [element for element in ELEMENT_TYPES.values() if element.numpy is not None and not element.is_index]
SHAPES = [(), (3,), (0, 2), (2, 1, 4)]


def built(name: str, operands: list[np.ndarray], result: ElementType, **attributes: object) -> Kernel:
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    types = {element.numpy: element for element in ELEMENTS}
    values = [Value(TensorType(operand.shape, types[operand.dtype])) for operand in operands]
    op = Op(name, values, [TensorType(shape, result)], dict(attributes), definition=OPS[name])
    return make_kernel(op, None)  # type: ignore[arg-type]


def same(got: np.ndarray, want: np.ndarray) -> bool:
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype == np.bool_ or got.dtype.kind in "iu":
        return bool(np.array_equal(got, want))
    wide = [array.astype(np.complex128) for array in (got, want)]
    return bool(np.array_equal(*wide, equal_nan=True))


def check_contract(kernel: Kernel, operands: list[np.ndarray], result: ElementType) -> None:
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    before = [operand.copy() for operand in operands]
    fresh = np.asarray(kernel.call(*operands))
    assert fresh.dtype == result.dtype and fresh.shape == shape
    assert all(same(now, then) for now, then in zip(operands, before, strict=True)), "an operand was written"
    assert kernel.pointwise and kernel.accepts_out
    target = np.empty(shape, result.dtype)
    assert kernel.call(*operands, out=target) is target
    assert same(target, fresh)
    for position in kernel.reuses:
        copies = [operand.copy() for operand in operands]
        kernel.call(*copies, out=copies[position])
        assert same(copies[position], fresh), f"in place of operand {position}"
    if not shape:
        assert same(kernel.call(*[operand[()] for operand in operands]), fresh), "NumPy scalars"
    elif kernel.reuses:
        stretched = [operand[None] if number else operand for number, operand in enumerate(operands)]
        whole = np.asarray(kernel.call(*stretched))
        assert same(whole.reshape(shape), fresh), "shapes other than those it was made for"


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", [*elementwise.UNARY, *chlo.UNARY])
def test_unary(name: str) -> None:
    function = {**elementwise.UNARY, **chlo.UNARY}[name]
    for element in ELEMENTS:
        if function.call(element, 1) is None and not (element.is_complex and name == "stablehlo.abs"):
            continue
        result = element.real if name == "stablehlo.abs" else element
        for shape in SHAPES:
            operand = values_of(element, np.random.default_rng(7), shape)
            with np.errstate(all="ignore"):
                check_contract(built(name, [operand], result), [operand], result)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [*elementwise.BINARY, *chlo.BINARY, "chlo.next_after", "chlo.mulhi"])
def test_binary(name: str) -> None:
    functions = {**elementwise.BINARY, **chlo.BINARY}
    for element in ELEMENTS:
        if (name == "chlo.next_after" and not element.is_float) or (name == "chlo.mulhi" and not element.is_integer):
            continue
        if name in functions and functions[name].call(element, 2) is None:
            continue
        for shape in SHAPES:
            rng = np.random.default_rng(8)
            operands = [values_of(element, rng, shape) for _ in range(2)]
            with np.errstate(all="ignore"):
                check_contract(built(name, operands, element), operands, element)


@pytest.mark.parametrize("name", ["shift_left", "shift_right_arithmetic", "shift_right_logical"])
def test_shifts(name: str) -> None:
    for element in ELEMENTS:
        if element.is_integer:
            rng = np.random.default_rng(9)
            operands = [values_of(element, rng, (5,)) for _ in range(2)]
            check_contract(built("stablehlo." + name, operands, element), operands, element)


@pytest.mark.parametrize("name", ["popcnt", "count_leading_zeros"])
def test_bit_counts(name: str) -> None:
    for element in ELEMENTS:
        if element.is_integer:
            operand = values_of(element, np.random.default_rng(10), (5,))
            check_contract(built("stablehlo." + name, [operand], element), [operand], element)


def test_convert_between_all_types() -> None:
    for source in ELEMENTS:
        for target in ELEMENTS:
            for shape in ((), (5,), (0, 2)):
                operand = values_of(source, np.random.default_rng(11), shape)
                with np.errstate(all="ignore"):
                    check_contract(built("stablehlo.convert", [operand], target), [operand], target)


@pytest.mark.parametrize("direction", elementwise.COMPARISONS)
def test_compare(direction: str) -> None:
    for element in ELEMENTS:
        for kind in ("FLOAT", "TOTALORDER") if element.is_float else (None,):
            rng = np.random.default_rng(12)
            operands = [values_of(element, rng, (6,)) for _ in range(2)]
            kernel = built("stablehlo.compare", operands, I1, comparison_direction=direction, compare_type=kind)
            check_contract(kernel, operands, I1)


@pytest.mark.parametrize("size", [4, 5000])
def test_select(size: int) -> None:
    for element in ELEMENTS:
        rng = np.random.default_rng(13)
        chosen = rng.integers(0, 2, size).astype(np.bool_)
        operands = [chosen, *(values_of(element, rng, (size,)) for _ in range(2))]
        kernel = built("stablehlo.select", operands, element)
        check_contract(kernel, operands, element)
        assert same(kernel.call(*operands), np.where(*operands))


def test_clamp() -> None:
    for element in ELEMENTS:
        if not element.is_complex:
            rng = np.random.default_rng(14)
            operands = [values_of(element, rng, shape) for shape in ((), (6,), ())]
            with np.errstate(all="ignore"):
                check_contract(built("stablehlo.clamp", operands, element), operands, element)


@pytest.mark.parametrize("name", ["real", "imag", "is_finite", "reduce_precision"])
def test_other(name: str) -> None:
    for element in ELEMENTS:
        if element.is_float or (element.is_complex and name in ("real", "imag")):
            operand = values_of(element, np.random.default_rng(15), (4,))
            result = I1 if name == "is_finite" else element.real
            attributes = {"exponent_bits": 4, "mantissa_bits": 3} if name == "reduce_precision" else {}
            check_contract(built("stablehlo." + name, [operand], result, **attributes), [operand], result)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("stablehlo.tanh", "bf16"),
        ("stablehlo.exponential", "f8E5M2"),
        ("stablehlo.log", "complex<f32>"),
        ("chlo.digamma", "f32"),
        ("chlo.erf_inv", "f64"),
        ("stablehlo.maximum", "bf16"),
        ("stablehlo.add", "f8E4M3FN"),
        ("chlo.zeta", "f32"),
    ],
)
def test_large_arrays_are_taken_in_blocks(name: str, element: str) -> None:
    """The result is that of the pieces, into `out` and in place, also of arrays in another memory order."""
    type = ELEMENT_TYPES[element]
    rng = np.random.default_rng(16)
    arity = 1 if name in elementwise.UNARY or name in chlo.UNARY else 2
    operands = [np.resize(values_of(type, rng, (1000,)), (300, 400)) for _ in range(arity)]
    with np.errstate(all="ignore"):
        kernel = built(name, operands, type)
        want = np.concatenate(
            [np.asarray(kernel.call(*(x[row : row + 10] for x in operands))) for row in range(0, 300, 10)]
        )
        check_contract(kernel, operands, type)
        assert same(kernel.call(*operands), want)
        turned = [np.asfortranarray(x) for x in operands]
        assert same(kernel.call(*turned), want)
        assert same(kernel.call(*turned, out=np.empty((300, 400), type.dtype)), want)
