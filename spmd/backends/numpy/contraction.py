"""Contractions: StableHLO specification, "dot_general", "dot", "einsum", "unary_einsum".

Every contraction is one matrix multiplication of views: batching dimensions stay in front, free and contracting ones
are grouped, and BLAS accepts any strides. Low-precision floats are computed in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from spmd.backends.kernels import Context, Kernel, kernel
from spmd.backends.numpy.elementwise_complex import join
from spmd.backends.numpy.pointwise import compute_dtype
from spmd.dialects.structs import DotAlgorithmAttr, DotDimensionNumbersAttr
from spmd.ir import Op
from spmd.support.arrays import Array, DType
from spmd.types import ElementType, TensorType

Convert = Callable[[Array], Array]

#: Complex multiply-adds below which BLAS is no faster than a plain sum.
_SMALL_COMPLEX_WORK = 1 << 12


@kernel("stablehlo.dot_general")
def dot_general(op: Op, context: Context) -> Kernel:
    return contraction(op, op["dot_dimension_numbers"], op["algorithm"])


@kernel("stablehlo.dot")
def dot(op: Op, context: Context) -> Kernel:
    last = op.operands[0].tensor.rank - 1
    return contraction(op, DotDimensionNumbersAttr((), (), (last,), (0,)), None)


def contraction(op: Op, numbers: DotDimensionNumbersAttr, algorithm: DotAlgorithmAttr | None) -> Kernel:
    """Return the kernel of a dot of the op's two operands; the result's dimensions are batching, lhs free, rhs free."""
    lhs, rhs, result = op.operands[0].tensor, op.operands[1].tensor, op.result.tensor
    left, lhs_free = _grouping(
        lhs.static_shape, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions, contract_last=True
    )
    right, rhs_free = _grouping(
        rhs.static_shape, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions, contract_last=False
    )
    batch = tuple(lhs.static_shape[axis] for axis in numbers.lhs_batching_dimensions)
    depth = prod(lhs.static_shape[axis] for axis in numbers.lhs_contracting_dimensions)
    final = (*batch, *lhs_free, *rhs_free)
    work = prod(final) * depth
    multiply, prepare_left, prepare_right, finish = arithmetic(lhs, rhs, result, algorithm, depth, work)
    if depth == 1:
        multiply = np.multiply if result.dtype.kind != "c" else _multiplied_by_parts
    left, right = _then(left, prepare_left), _then(right, prepare_right)
    if len(lhs_free) == len(rhs_free) == 1 and finish is None and isinstance(multiply, np.ufunc):
        return Kernel(_plain(multiply, left, right), accepts_out=True)

    def call(x: Array, y: Array) -> Array:
        product: Array = multiply(left(x), right(y))
        product = product.reshape(final)
        return product if finish is None else finish(product)

    return Kernel(call)


def _plain(multiply: np.ufunc, left: Convert, right: Convert) -> Callable[..., Array]:
    """Return the common case, in which the matrix product is the result."""

    def call(x: Array, y: Array, out: Array | None = None) -> Array:
        product: Array = multiply(left(x), right(y), out=out)
        return product

    return call


def _grouping(
    shape: tuple[int, ...], batching: Sequence[int], contracting: Sequence[int], *, contract_last: bool
) -> tuple[Convert, tuple[int, ...]]:
    """Return a function that views an operand as (*batching, free, contracting), or with the last two exchanged; and
    the free sizes.
    """
    free = [axis for axis in range(len(shape)) if axis not in batching and axis not in contracting]
    order = [*batching, *free, *contracting] if contract_last else [*batching, *contracting, *free]
    free_sizes = tuple(shape[axis] for axis in free)
    groups = [prod(free_sizes), prod(shape[axis] for axis in contracting)]
    grouped = (*(shape[axis] for axis in batching), *(groups if contract_last else groups[::-1]))
    identity = order == list(range(len(shape)))
    if identity and grouped == shape:
        return _same, free_sizes
    if identity:
        return lambda array: array.reshape(grouped), free_sizes
    if tuple(shape[axis] for axis in order) == grouped:
        return lambda array: array.transpose(order), free_sizes
    return lambda array: array.transpose(order).reshape(grouped), free_sizes


def _same(array: Array) -> Array:
    return array


def _then(first: Convert, second: Convert | None) -> Convert:
    if second is None:
        return first
    return second if first is _same else lambda array: second(first(array))


# --- the arithmetic --------------------------------------------------------------------------------------------------


def arithmetic(
    lhs: TensorType, rhs: TensorType, result: TensorType, algorithm: DotAlgorithmAttr | None, depth: int, work: int
) -> tuple[Callable[..., Array], Convert | None, Convert | None, Convert | None]:
    """Return (matrix product, preparation of lhs, of rhs, conversion of the product); None for no-ops."""
    types = [_element(tensor) for tensor in (lhs, rhs, result)]
    target = types[2].dtype
    if types[2].is_boolean:
        return np.matmul, None, None, None
    if all(type.is_integer for type in types):
        return _integer_arithmetic(types)
    computed = np.result_type(*(compute_dtype(type) for type in types))
    rounding: list[ElementType | None] = [None, None]
    if algorithm is not None and isinstance(algorithm.accumulation_type, ElementType):
        if algorithm.accumulation_type.is_float and algorithm.accumulation_type.numpy is not None:
            computed = np.result_type(computed, compute_dtype(algorithm.accumulation_type))
        rounding = [
            # Several component products keep all digits of an operand.
            precision
            if isinstance(precision, ElementType) and count * algorithm.num_primitive_operations == 1
            else None
            for precision, count in (
                (algorithm.lhs_precision_type, algorithm.lhs_component_count),
                (algorithm.rhs_precision_type, algorithm.rhs_component_count),
            )
        ]
    prepared = [_preparation(type, computed, precision) for type, precision in zip(types[:2], rounding, strict=True)]
    multiply = _plain_product if computed.kind == "c" and work <= _SMALL_COMPLEX_WORK else np.matmul
    return multiply, prepared[0], prepared[1], _conversion(computed, target)


def _plain_product(x: Array, y: Array) -> Array:
    """Return the matrix product summed term by term, each rounded, so that cancellation is exact."""
    product: Array = np.einsum("...ik,...kj->...ij", x, y)
    return product


def _multiplied_by_parts(x: Array, y: Array) -> Array:
    """Return the elementwise complex product with the zeros of `multiply`, not of a sum."""
    return join(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


def _element(tensor: TensorType) -> ElementType:
    """Return the element type; for a quantized one its storage type."""
    element = tensor.element_type
    storage = getattr(element, "storage", element)
    assert isinstance(storage, ElementType)
    return storage


def _conversion(source: DType, target: DType) -> Convert | None:
    if source == target:
        return None
    if source.kind == "c" and target.kind != "c":
        return lambda array: array.real.astype(target)
    return lambda array: array.astype(target)


def _preparation(type: ElementType, computed: DType, precision: ElementType | None) -> Convert | None:
    """Return a function that rounds an operand to the algorithm's precision if that is lower, then widens it."""
    widen = _conversion(type.dtype, computed)
    if precision is None or not type.is_float or precision.bits >= type.bits:
        return widen
    if precision.numpy is None:
        return _then(_round_to_tf32, _conversion(np.dtype(np.float32), computed))
    narrow, dtype = precision.numpy, computed
    return lambda array: array.astype(narrow).astype(dtype)


def _round_to_tf32(array: Array) -> Array:
    """Return f32 rounded to 10 mantissa bits, ties to even; infinities and NaNs are kept."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    kept: Array = np.where(special, bits, rounded).view(np.float32)
    return kept


def _integer_arithmetic(
    types: list[ElementType],
) -> tuple[Callable[..., Array], Convert | None, Convert | None, Convert | None]:
    """Return integer arithmetic, exact modulo the width of the result's type."""
    left, right, result = types
    wide = compute_dtype(result)
    if left.bits > 8 * wide.itemsize or right.bits > 8 * wide.itemsize:
        wide = np.dtype(f"int{max(left.bits, right.bits)}")
    return np.matmul, _conversion(left.dtype, wide), _conversion(right.dtype, wide), _conversion(wide, result.dtype)


# --- einsum ----------------------------------------------------------------------------------------------------------


@kernel("stablehlo.einsum", "stablehlo.unary_einsum")
def einsum(op: Op, context: Context) -> Kernel:
    """Return a deprecated einsum in Einstein notation; `...` are broadcast dimensions."""
    equation = op["einsum_config"].replace(" ", "")
    if op.name == "stablehlo.unary_einsum":
        equation = equation.removeprefix(",")
    types = [_element(value.tensor) for value in (*op.operands, op.result)]
    computed = np.result_type(*(compute_dtype(type) for type in types))
    target = types[-1].dtype

    def call(*operands: Array) -> Array:
        wide = [operand.astype(computed, copy=False) for operand in operands]
        return np.asarray(np.einsum(equation, *wide, optimize=True)).astype(target, copy=False)

    return Kernel(call, aliases=(0,) if len(op.operands) == 1 else ())
