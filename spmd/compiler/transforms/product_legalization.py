"""Products and convolutions in the forms that native code has.

Narrow floats are multiplied and summed in f32, and rounded once; narrow integers are multiplied and summed in 32 bits,
and convolved in floats that hold all sums exactly. Operands of products become matrices of neighbours. A convolution's
padding, dilation and reversed or oddly ordered operands become ops of their own, which loop nests take in; what is left
has neither, its kernel's output features lie side by side, and so do those of its result. Grouped convolutions that are
no products stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from spmd.analysis.index_maps import is_outer_product
from spmd.analysis.matrices import free_dimensions, matrix_of
from spmd.analysis.process_rows import UNSEEN
from spmd.compiler.schedule.gemv import is_matrix_vector, summed_in
from spmd.compiler.schedule.sliding import CONVOLUTION, accumulator_of, is_grouped_sum
from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import ConvDimensionNumbersAttr, DotAlgorithmAttr, DotDimensionNumbersAttr
from spmd.ir import AttributeValue, Block, Op, Value
from spmd.ir.attributes import UNIT
from spmd.types import F32, F64, I1, I32, I64, ElementType, TensorType, storage_range

DOTS = ("stablehlo.dot_general", "stablehlo.dot")
#: Dimensions of operands of floats that become matrices by a copy: activations have more, and live long.
_MOST_DIMENSIONS = 3


def legalize_products(block: Block, *, in_fixed_order: bool = False) -> None:
    """Rewrites the products and convolutions of `block` and of the regions inside it; in place.

    `in_fixed_order`: native code multiplies all floats itself, of right operands whose rows lie side by side.
    """

    def rule(op: Op, builder: OpBuilder) -> list[Value] | None:
        result = _legal(op, builder, of_rows=in_fixed_order)
        return None if result is None else [result]

    rewrite(block, (CONVOLUTION, *DOTS), lambda block: rule)


def _legal(op: Op, builder: OpBuilder, *, of_rows: bool) -> Value | None:
    """What takes the place of `op`; None where it stays. `of_rows`: see `_product_of_matrices`."""
    values = (*op.operands, op.result)
    if not all(isinstance(value.type, TensorType) and value.tensor.is_static for value in values):
        return None
    if op.name in DOTS:
        forms = (_wide_product, _integer_product, _complex_product, _product_of_matrices)
        written = (form(op, builder, of_rows=of_rows) for form in forms)
        return next((value for value in written if value is not None), None)
    return _plain_convolution(op, builder)


def _converted(builder: OpBuilder, value: Value, element: ElementType) -> Value:
    return builder.convert(value, TensorType(value.tensor.shape, element))


def _wide_product(op: Op, builder: OpBuilder, *, of_rows: bool) -> Value | None:
    algorithm = op["algorithm"] if op.name != "stablehlo.dot" else None
    narrow = any(value.tensor.element_type is not F32 for value in (*op.operands, op.result))
    if accumulator_of(op) is not F32 or not (narrow or algorithm is not None):
        return None
    if algorithm is not None and not _is_in_f32(op, algorithm):
        return None
    operands = [_converted(builder, value, F32) for value in op.operands]
    type = TensorType(op.result.tensor.shape, F32)
    attributes = {name: value for name, value in op.attributes.items() if name != "algorithm"}
    product = _multiplied(builder, op.name, operands, type, attributes, of_rows=of_rows)
    return builder.convert(product, op.result.tensor)


def _multiplied(
    builder: OpBuilder,
    name: str,
    operands: Sequence[Value],
    type: TensorType,
    attributes: dict[str, AttributeValue],
    *,
    of_rows: bool,
) -> Value:
    """A product, of matrices of neighbours."""
    product = builder.op(name, operands, [type], attributes)
    matrices = _product_of_matrices(product, builder, of_rows=of_rows)
    if matrices is None:
        return product.result
    builder.ops.remove(product)
    return matrices


def _integer_product(op: Op, builder: OpBuilder, *, of_rows: bool) -> Value | None:
    """A product of integers in the type that it is summed in, of at least 32 bits; None where it is, or has none.

    What is more than fits a narrow result wraps at the end as it would at each step. Native code has products of 8-bit
    numbers with sums of 32 bits as they are, and products of vectors of one type.
    """
    elements = [value.tensor.element_type for value in (*op.operands, op.result)]
    numbers = [e for e in elements if isinstance(e, ElementType) and e.is_integer and not e.is_boolean]
    if op.name == "stablehlo.dot" or op["algorithm"] is not None or len(numbers) < 3:
        return None
    left, right, result = numbers
    wide = result if result.bits >= 32 else I32
    if left is right is result and (result is wide or is_matrix_vector(op) or is_outer_product(op)):
        return None
    if result.bits == 32 and left.bits == right.bits == 8:
        return None
    operands = [_converted(builder, value, wide) for value in op.operands]
    type = TensorType(op.result.tensor.shape, wide)
    product = _multiplied(builder, op.name, operands, type, dict(op.attributes), of_rows=of_rows)
    return builder.convert(product, op.result.tensor)


def _complex_product(op: Op, builder: OpBuilder, *, of_rows: bool) -> Value | None:
    """A product of complex numbers as four of their parts, where BLAS is to have none of it (`of_rows`)."""
    element = op.result.tensor.element_type
    if not of_rows or not isinstance(element, ElementType) or not element.is_complex:
        return None
    if any(operand.tensor.element_type is not element for operand in op.operands):
        return None

    def part(way: str, value: Value) -> Value:
        return builder.one(way, [value], TensorType(value.tensor.shape, element.real))

    (a, b), (c, d) = ((part("real", value), part("imag", value)) for value in op.operands)
    type, attributes = TensorType(op.result.tensor.shape, element.real), dict(op.attributes)

    def product(left: Value, right: Value) -> Value:
        return _multiplied(builder, op.name, [left, right], type, attributes, of_rows=of_rows)

    real = builder.one("subtract", [product(a, c), product(b, d)], type)
    imaginary = builder.one("add", [product(a, d), product(b, c)], type)
    return builder.one("complex", [real, imaginary], op.result.tensor)


def _product_of_matrices(op: Op, builder: OpBuilder, *, of_rows: bool) -> Value | None:
    """`op` with its operands transposed to matrices of neighbours, where they are none; None where they are.

    `of_rows`: rows of the right operand lie side by side, as those of integers always do.
    Dimensions that are summed over, or those that are not, lie apart in operands of such sums as bi,oij->boj.
    """
    if op.name == "stablehlo.dot" or op["algorithm"] is not None or summed_in(op) is None:
        return None
    if is_matrix_vector(op) or is_outer_product(op):
        return None
    numbers: DotDimensionNumbersAttr = op["dot_dimension_numbers"]
    left = _as_matrix(builder, op.operands[0], numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    right = _as_matrix(
        builder,
        op.operands[1],
        numbers.rhs_batching_dimensions,
        numbers.rhs_contracting_dimensions,
        of_rows=of_rows or summed_in(op) not in (F32, F64),
    )
    operands = [left[0], right[0]]
    if operands == list(op.operands):
        return None
    matrices = DotDimensionNumbersAttr(left[1], right[1], left[2], right[2])
    attributes = {**op.attributes, "dot_dimension_numbers": matrices}
    return builder.op(op.name, operands, op.result_types, attributes).results[0]


def _as_matrix(
    builder: OpBuilder,
    value: Value,
    batching: tuple[int, ...],
    contracting: tuple[int, ...],
    *,
    of_rows: bool = False,
) -> tuple[Value, tuple[int, ...], tuple[int, ...]]:
    """`value`, transposed if need be, and the dimensions that are batched and contracted there.

    `of_rows`: what is not contracted has to lie side by side.
    """
    rank = value.tensor.rank
    free = free_dimensions(rank, batching, contracting)
    matrix = matrix_of(value, batching, free, contracting)
    if matrix is not None and (matrix.row_stride == 1 or not of_rows):
        return value, batching, contracting
    if rank > _MOST_DIMENSIONS and not of_rows:
        return value, batching, contracting
    # What lies side by side stays so.
    last = (contracting, free) if rank - 1 in free or of_rows else (free, contracting)
    order = (*batching, *last[0], *last[1])
    batch = len(batching)
    start = batch if last[0] is contracting else batch + len(free)
    turned = _transposed(builder, value, order)
    if turned.defining_op is not None and turned is not value:
        turned.defining_op.discardable = {**turned.defining_op.discardable, UNSEEN: UNIT}
    return turned, tuple(range(batch)), tuple(range(start, start + len(contracting)))


def _is_in_f32(op: Op, algorithm: DotAlgorithmAttr) -> bool:
    """Whether `algorithm` asks for products of the operands as they are, summed in f32."""
    precisions = (algorithm.lhs_precision_type, algorithm.rhs_precision_type)
    as_they_are = precisions == tuple(operand.tensor.element_type for operand in op.operands)
    once = algorithm.lhs_component_count == algorithm.rhs_component_count == algorithm.num_primitive_operations == 1
    return as_they_are and once and algorithm.accumulation_type is F32


def _exact_floats(op: Op) -> ElementType | None:
    """The floats that hold every sum of a convolution of narrow integers; None of wide ones, and of what is none."""
    elements = [value.tensor.element_type for value in (*op.operands, op.result)]
    ranges = [storage_range(e) for e in elements if isinstance(e, ElementType) and e.is_integer and not e.is_boolean]
    if len(ranges) < len(elements):
        return None
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    kernel = op.operands[1].tensor.static_shape
    summed = prod(size for d, size in enumerate(kernel) if d != numbers.kernel_output_feature_dimension)
    largest = prod(max(-low, high) for low, high in ranges[:2]) * summed
    return F32 if largest <= 1 << 24 else F64 if largest <= 1 << 53 else None


def _plain_convolution(op: Op, builder: OpBuilder) -> Value | None:
    exact = _exact_floats(op)
    wide = exact or accumulator_of(op)
    shapes = [value.tensor.static_shape for value in (*op.operands, op.result)]
    if wide is None or is_grouped_sum(op) or not all(map(all, shapes)):
        return None
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    spatial = len(numbers.input_spatial_dimensions)
    ones = (1,) * spatial
    padding = np.zeros((spatial, 2), np.int64) if op["padding"] is None else np.asarray(op["padding"])
    lhs, rhs = (_converted(builder, value, wide) for value in op.operands)
    reversal = op["window_reversal"] or (False,) * spatial
    turned = tuple(axis for axis, flag in zip(numbers.kernel_spatial_dimensions, reversal, strict=True) if flag)
    if turned:
        rhs = builder.one("reverse", [rhs], rhs.tensor, dimensions=turned)
    kernel = (
        *numbers.kernel_spatial_dimensions,
        numbers.kernel_input_feature_dimension,
        numbers.kernel_output_feature_dimension,
    )
    windows = [
        _Window(*window)
        for window in zip(
            (op.result.tensor.static_shape[axis] for axis in numbers.output_spatial_dimensions),
            op["window_strides"] or ones,
            (int(size) for size in padding.reshape(-1, 2)[:, 0]),
            op["lhs_dilation"] or ones,
            op["rhs_dilation"] or ones,
            strict=True,
        )
    ]
    convolved = _Windows(builder, op).convolved(lhs, _transposed(builder, rhs, kernel), windows)
    order = (numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension)
    convolved = _transposed(builder, convolved, tuple(order.index(axis) for axis in range(spatial + 2)))
    if exact is not None:
        convolved = _converted(builder, convolved, I32 if exact is F32 else I64)  # which then wraps
    return builder.convert(convolved, op.result.tensor)


@dataclass(frozen=True)
class _Window:
    """A spatial dimension: places of the result, strides, padding before the image, dilation of image and window.

    What lies behind the image follows from the number of places.
    """

    places: int
    stride: int
    low: int
    spread: int
    reach: int

    @property
    def is_split(self) -> bool:
        """Whether most of what windows meet are zeros between the image's elements, at places that repeat."""
        return self.spread > 1 and self.stride == self.reach == 1

    def phase(self, number: int, kernel: int) -> tuple[_Window, int, int]:
        """Every `spread`-th place from `number` on: a window of the image as it is, with some of the `kernel` places.

        Also the first of these, and how many there are: others meet zeros alone.
        """
        first = (self.low - number) % self.spread
        count = max(0, -(-(kernel - first) // self.spread))
        low = -((number + first - self.low) // self.spread)
        return _Window(-(-self.places // self.spread), 1, low, 1, 1), first, count


class _Windows:
    """Writes the convolutions of the image of `op`, in its groups; kernels are [spatial, i, o] and results
    [b, spatial, f]."""

    def __init__(self, builder: OpBuilder, op: Op) -> None:
        self.builder = builder
        self.numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
        self.groups = {name: op[name] for name in ("feature_group_count", "batch_group_count")}
        self.precision = {"precision_config": op["precision_config"]} if op["precision_config"] else {}
        self.has_infinities = accumulator_of(op) is not None
        self.batch = op.result.tensor.static_shape[self.numbers.output_batch_dimension]

    def convolved(self, lhs: Value, rhs: Value, windows: Sequence[_Window]) -> Value:
        split = next((place for place, window in enumerate(windows) if window.is_split), None)
        if split is not None:
            return self._in_phases(lhs, rhs, windows, split)
        lhs = self._padded(lhs, rhs, windows)
        shape = (self.batch, *(window.places for window in windows), rhs.tensor.static_shape[-1])
        result = TensorType(shape, lhs.tensor.element_type)
        strides = tuple(window.stride for window in windows)
        if self._is_product(rhs, strides):
            return self._product(lhs, rhs, result)
        spatial = len(windows)
        plain = ConvDimensionNumbersAttr(
            self.numbers.input_batch_dimension,
            self.numbers.input_feature_dimension,
            self.numbers.input_spatial_dimensions,
            spatial,
            spatial + 1,
            tuple(range(spatial)),
            0,
            spatial + 1,
            tuple(range(1, spatial + 1)),
        )
        attributes: dict[str, AttributeValue] = {
            "window_strides": strides,
            "rhs_dilation": tuple(window.reach for window in windows),
            "dimension_numbers": plain,
            **self.groups,
            **self.precision,
        }
        return self.builder.op(CONVOLUTION, [lhs, rhs], [result], attributes).results[0]

    def _in_phases(self, lhs: Value, rhs: Value, windows: Sequence[_Window], split: int) -> Value:
        """Convolutions of the image as it is, whose places take turns along dimension `split`.

        The kernel's places that meet zeros alone are not multiplied, so that what they add is added here: nothing,
        or NaN where the kernel is infinite or NaN.
        """
        builder, window = self.builder, windows[split]
        axis = split + 1
        parts, chosen = [], []
        for number in range(window.spread):
            phase, first, count = window.phase(number, rhs.tensor.static_shape[split])
            chosen.append((first, count))
            others = [*windows[:split], phase, *windows[split + 1 :]]
            if count:
                part = self.convolved(lhs, self._every(rhs, split, first, window.spread, count), others)
            else:
                shape = (self.batch, *(other.places for other in others), rhs.tensor.static_shape[-1])
                part = builder.splat(0, TensorType(shape, lhs.tensor.element_type))
            shape = part.tensor.static_shape
            parts.append(
                builder.one("reshape", [part], part.tensor.with_shape((*shape[: axis + 1], 1, *shape[axis + 1 :])))
            )
        stacked = (*shape[: axis + 1], window.spread, *shape[axis + 1 :])
        type = TensorType(stacked, lhs.tensor.element_type)
        value = builder.one("concatenate", parts, type, dimension=axis + 1)
        if self.has_infinities:
            zeros = self._zeros(rhs, split, chosen)
            zeros = builder.one("broadcast_in_dim", [zeros], type, broadcast_dimensions=(axis + 1, type.rank - 1))
            value = builder.one("add", [value, zeros], type)
        merged = (*shape[:axis], shape[axis] * window.spread, *shape[axis + 1 :])
        value = builder.one("reshape", [value], type.with_shape(merged))
        limits = (*shape[:axis], window.places, *shape[axis + 1 :])
        if limits == merged:
            return value
        ones = (1,) * len(shape)
        starts = (0,) * len(shape)
        return builder.one(
            "slice", [value], type.with_shape(limits), start_indices=starts, limit_indices=limits, strides=ones
        )

    def _zeros(self, rhs: Value, split: int, chosen: Sequence[tuple[int, int]]) -> Value:
        """Sums of the products with zero of those kernel places that a phase leaves out, [phases, o].

        `chosen` are the first of the places of each phase along `split`, and their count.
        """
        kernel, phases = rhs.tensor, len(chosen)
        left_out = np.ones((phases, kernel.static_shape[split]), np.bool_)
        for number, (first, count) in enumerate(chosen):
            left_out[number, first : first + count * phases : phases] = False
        builder, last = self.builder, kernel.rank - 1
        nothing = builder.splat(0, kernel.with_shape(()))
        products = builder.one("multiply", [rhs, builder.splat(0, kernel)], kernel)
        sums = builder.reduce("stablehlo.add", products, nothing, [axis for axis in range(last) if axis != split])
        type = kernel.with_shape((phases, *sums.tensor.static_shape))
        mask = builder.one(
            "broadcast_in_dim", [builder.constant(left_out)], type.with_element_type(I1), broadcast_dimensions=(0, 1)
        )
        spread = builder.one("broadcast_in_dim", [sums], type, broadcast_dimensions=(1, 2))
        return builder.reduce("stablehlo.add", builder.select(mask, spread, builder.splat(0, type)), nothing, (1,))

    def _every(self, rhs: Value, axis: int, first: int, step: int, count: int) -> Value:
        """The kernel's `count` places `step` apart along `axis`."""
        shape = rhs.tensor.static_shape
        starts = tuple(first if d == axis else 0 for d in range(len(shape)))
        limits = tuple(first + (count - 1) * step + 1 if d == axis else size for d, size in enumerate(shape))
        strides = tuple(step if d == axis else 1 for d in range(len(shape)))
        type = rhs.tensor.with_shape(tuple(count if d == axis else size for d, size in enumerate(shape)))
        return self.builder.one("slice", [rhs], type, start_indices=starts, limit_indices=limits, strides=strides)

    def _is_product(self, rhs: Value, strides: Sequence[int]) -> bool:
        """Whether windows are single elements, all of them and in one group, with the features last."""
        if any(count > 1 for count in self.groups.values()):
            return False
        numbers, spatial = self.numbers, len(strides)
        order = (numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension)
        window = rhs.tensor.static_shape[:spatial]
        return all(size == 1 for size in (*window, *strides)) and order == tuple(range(spatial + 2))

    def _product(self, lhs: Value, rhs: Value, result: TensorType) -> Value:
        last = result.rank - 1
        matrix = self.builder.one("reshape", [rhs], result.with_shape(rhs.tensor.static_shape[-2:]))
        attributes = {"dot_dimension_numbers": DotDimensionNumbersAttr((), (), (last,), (0,)), **self.precision}
        return self.builder.op("stablehlo.dot_general", [lhs, matrix], [result], attributes).results[0]

    def _padded(self, lhs: Value, rhs: Value, windows: Sequence[_Window]) -> Value:
        """The image with zeros around and between its elements: all that windows meet, and no more."""
        rank = lhs.tensor.rank
        low, high, interior = [0] * rank, [0] * rank, [0] * rank
        for place, (axis, window) in enumerate(zip(self.numbers.input_spatial_dimensions, windows, strict=True)):
            size = (lhs.tensor.static_shape[axis] - 1) * window.spread + 1
            met = (window.places - 1) * window.stride + (rhs.tensor.static_shape[place] - 1) * window.reach + 1
            low[axis], interior[axis] = window.low, window.spread - 1
            high[axis] = met - size - window.low
        if not any((*low, *high, *interior)):
            return lhs
        zero = self.builder.splat(0, TensorType((), lhs.tensor.element_type))
        attributes = {
            "edge_padding_low": tuple(low),
            "edge_padding_high": tuple(high),
            "interior_padding": tuple(interior),
        }
        return self.builder.op("stablehlo.pad", [lhs, zero], None, attributes).results[0]


def _transposed(builder: OpBuilder, value: Value, permutation: tuple[int, ...]) -> Value:
    if permutation == tuple(range(len(permutation))):
        return value
    shape = value.tensor.static_shape
    type = TensorType(tuple(shape[axis] for axis in permutation), value.tensor.element_type)
    return builder.one("transpose", [value], type, permutation=permutation)
