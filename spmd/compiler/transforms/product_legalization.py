"""Legalization of products and convolutions to the forms that native code supports.

Narrow floats are multiplied and accumulated in f32 and rounded once; narrow integers are accumulated in 32 bits, and
convolved in floats that represent all sums exactly. Operands of products become matrices with a unit stride. Padding,
dilation, reversal and layouts of convolutions become ops of their own, which are fused; what remains has none of these,
and output features are innermost in kernel and result. Grouped convolutions that are no products are left alone.
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
#: Highest rank of float operands that are copied to matrices: activations have more, and long live ranges.
_MOST_DIMENSIONS = 3


def legalize_products(block: Block, *, in_fixed_order: bool = False) -> None:
    """Rewrite products and convolutions in `block` and its regions; in place.

    `in_fixed_order`: native code computes all float products, with right operands of contiguous rows.
    """

    def rule(op: Op, builder: OpBuilder) -> list[Value] | None:
        result = _legalized(op, builder, contiguous_rows=in_fixed_order)
        return None if result is None else [result]

    rewrite(block, (CONVOLUTION, *DOTS), lambda block: rule)


def _legalized(op: Op, builder: OpBuilder, *, contiguous_rows: bool) -> Value | None:
    """Return the replacement of `op`; None if it is legal. `contiguous_rows`: see `_product_of_matrices`."""
    values = (*op.operands, op.result)
    if not all(isinstance(value.type, TensorType) and value.tensor.is_static for value in values):
        return None
    if op.name in DOTS:
        forms = (_wide_product, _integer_product, _complex_product, _product_of_matrices)
        written = (form(op, builder, contiguous_rows=contiguous_rows) for form in forms)
        return next((value for value in written if value is not None), None)
    return _plain_convolution(op, builder)


def _converted(builder: OpBuilder, value: Value, element: ElementType) -> Value:
    return builder.convert(value, TensorType(value.tensor.shape, element))


def _wide_product(op: Op, builder: OpBuilder, *, contiguous_rows: bool) -> Value | None:
    algorithm = op["algorithm"] if op.name != "stablehlo.dot" else None
    narrow = any(value.tensor.element_type is not F32 for value in (*op.operands, op.result))
    if accumulator_of(op) is not F32 or not (narrow or algorithm is not None):
        return None
    if algorithm is not None and not _is_in_f32(op, algorithm):
        return None
    operands = [_converted(builder, value, F32) for value in op.operands]
    type = TensorType(op.result.tensor.shape, F32)
    attributes = {name: value for name, value in op.attributes.items() if name != "algorithm"}
    product = _multiplied(builder, op.name, operands, type, attributes, contiguous_rows=contiguous_rows)
    return builder.convert(product, op.result.tensor)


def _multiplied(
    builder: OpBuilder,
    name: str,
    operands: Sequence[Value],
    type: TensorType,
    attributes: dict[str, AttributeValue],
    *,
    contiguous_rows: bool,
) -> Value:
    """Return a product with operands legalized to matrices."""
    product = builder.op(name, operands, [type], attributes)
    matrices = _product_of_matrices(product, builder, contiguous_rows=contiguous_rows)
    if matrices is None:
        return product.result
    builder.ops.remove(product)
    return matrices


def _integer_product(op: Op, builder: OpBuilder, *, contiguous_rows: bool) -> Value | None:
    """Return an integer product in its accumulator type, of at least 32 bits; None if it is legal or no integer
    product.

    Wrapping once at the end equals wrapping at each step. Native code supports 8-bit operands with 32-bit sums, and
    matrix-vector products of one type.
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
    product = _multiplied(builder, op.name, operands, type, dict(op.attributes), contiguous_rows=contiguous_rows)
    return builder.convert(product, op.result.tensor)


def _complex_product(op: Op, builder: OpBuilder, *, contiguous_rows: bool) -> Value | None:
    """Return a complex product as four real ones, if BLAS is ruled out (`contiguous_rows`)."""
    element = op.result.tensor.element_type
    if not contiguous_rows or not isinstance(element, ElementType) or not element.is_complex:
        return None
    if any(operand.tensor.element_type is not element for operand in op.operands):
        return None

    def part(way: str, value: Value) -> Value:
        return builder.one(way, [value], TensorType(value.tensor.shape, element.real))

    (a, b), (c, d) = ((part("real", value), part("imag", value)) for value in op.operands)
    type, attributes = TensorType(op.result.tensor.shape, element.real), dict(op.attributes)

    def product(left: Value, right: Value) -> Value:
        return _multiplied(builder, op.name, [left, right], type, attributes, contiguous_rows=contiguous_rows)

    real = builder.one("subtract", [product(a, c), product(b, d)], type)
    imaginary = builder.one("add", [product(a, d), product(b, c)], type)
    return builder.one("complex", [real, imaginary], op.result.tensor)


def _product_of_matrices(op: Op, builder: OpBuilder, *, contiguous_rows: bool) -> Value | None:
    """Return `op` with operands transposed to matrices; None if they are matrices.

    `contiguous_rows`: rows of the right operand must be contiguous, as always for integers. Contracted or free
    dimensions are not adjacent in sums such as bi,oij->boj.
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
        contiguous_rows=contiguous_rows or summed_in(op) not in (F32, F64),
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
    contiguous_rows: bool = False,
) -> tuple[Value, tuple[int, ...], tuple[int, ...]]:
    """Return `value`, transposed if necessary, with its batching and contracting dimensions.

    `contiguous_rows`: free dimensions must be contiguous.
    """
    rank = value.tensor.rank
    free = free_dimensions(rank, batching, contracting)
    matrix = matrix_of(value, batching, free, contracting)
    if matrix is not None and (matrix.row_stride == 1 or not contiguous_rows):
        return value, batching, contracting
    if rank > _MOST_DIMENSIONS and not contiguous_rows:
        return value, batching, contracting
    # The contiguous dimension stays contiguous.
    last = (contracting, free) if rank - 1 in free or contiguous_rows else (free, contracting)
    order = (*batching, *last[0], *last[1])
    batch = len(batching)
    start = batch if last[0] is contracting else batch + len(free)
    transposed = _transposed(builder, value, order)
    if transposed.defining_op is not None and transposed is not value:
        transposed.defining_op.discardable = {**transposed.defining_op.discardable, UNSEEN: UNIT}
    return transposed, tuple(range(batch)), tuple(range(start, start + len(contracting)))


def _is_in_f32(op: Op, algorithm: DotAlgorithmAttr) -> bool:
    """Return whether `algorithm` asks for products of the operand types, accumulated in f32."""
    precisions = (algorithm.lhs_precision_type, algorithm.rhs_precision_type)
    as_they_are = precisions == tuple(operand.tensor.element_type for operand in op.operands)
    once = algorithm.lhs_component_count == algorithm.rhs_component_count == algorithm.num_primitive_operations == 1
    return as_they_are and once and algorithm.accumulation_type is F32


def _exact_floats(op: Op) -> ElementType | None:
    """Return the float type that represents every sum of a convolution of narrow integers; None if there is none."""
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
    flipped = tuple(axis for axis, flag in zip(numbers.kernel_spatial_dimensions, reversal, strict=True) if flag)
    if flipped:
        rhs = builder.one("reverse", [rhs], rhs.tensor, dimensions=flipped)
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
        convolved = _converted(builder, convolved, I32 if exact is F32 else I64)  # may wrap
    return builder.convert(convolved, op.result.tensor)


@dataclass(frozen=True)
class _Window:
    """A spatial dimension: output size, stride, low padding, base and window dilation.

    The high padding follows from the output size.
    """

    size: int
    stride: int
    low: int
    base_dilation: int
    window_dilation: int

    @property
    def is_split(self) -> bool:
        """Whether most window elements hit zeros between base-dilated elements, in a periodic pattern."""
        return self.base_dilation > 1 and self.stride == self.window_dilation == 1

    def phase(self, number: int, kernel: int) -> tuple[_Window, int, int]:
        """Return the window of outputs `number`, `number` + `base_dilation`, ...: without base dilation, on a subset of
        the kernel.

        Also the first kernel index of the subset, and its size: the others hit zeros only.
        """
        first = (self.low - number) % self.base_dilation
        count = max(0, -(-(kernel - first) // self.base_dilation))
        low = -((number + first - self.low) // self.base_dilation)
        return _Window(-(-self.size // self.base_dilation), 1, low, 1, 1), first, count


class _Windows:
    """Builds the convolutions of the image of `op`; kernels are [spatial, i, o], results [b, spatial, f]."""

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
        shape = (self.batch, *(window.size for window in windows), rhs.tensor.static_shape[-1])
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
            "rhs_dilation": tuple(window.window_dilation for window in windows),
            "dimension_numbers": plain,
            **self.groups,
            **self.precision,
        }
        return self.builder.op(CONVOLUTION, [lhs, rhs], [result], attributes).results[0]

    def _in_phases(self, lhs: Value, rhs: Value, windows: Sequence[_Window], split: int) -> Value:
        """Return the convolution with base dilation along dimension `split` as interleaved convolutions of the
        undilated image.

        Kernel elements that hit zeros only are skipped, so their contribution is added: zero, or NaN if the kernel is
        infinite or NaN.
        """
        builder, window = self.builder, windows[split]
        axis = split + 1
        parts, chosen = [], []
        for number in range(window.base_dilation):
            phase, first, count = window.phase(number, rhs.tensor.static_shape[split])
            chosen.append((first, count))
            others = [*windows[:split], phase, *windows[split + 1 :]]
            if count:
                part = self.convolved(lhs, self._strided_slice(rhs, split, first, window.base_dilation, count), others)
            else:
                shape = (self.batch, *(other.size for other in others), rhs.tensor.static_shape[-1])
                part = builder.splat(0, TensorType(shape, lhs.tensor.element_type))
            shape = part.tensor.static_shape
            parts.append(
                builder.one("reshape", [part], part.tensor.with_shape((*shape[: axis + 1], 1, *shape[axis + 1 :])))
            )
        stacked = (*shape[: axis + 1], window.base_dilation, *shape[axis + 1 :])
        type = TensorType(stacked, lhs.tensor.element_type)
        value = builder.one("concatenate", parts, type, dimension=axis + 1)
        if self.has_infinities:
            zeros = self._zeros(rhs, split, chosen)
            zeros = builder.one("broadcast_in_dim", [zeros], type, broadcast_dimensions=(axis + 1, type.rank - 1))
            value = builder.one("add", [value, zeros], type)
        merged = (*shape[:axis], shape[axis] * window.base_dilation, *shape[axis + 1 :])
        value = builder.one("reshape", [value], type.with_shape(merged))
        limits = (*shape[:axis], window.size, *shape[axis + 1 :])
        if limits == merged:
            return value
        ones = (1,) * len(shape)
        starts = (0,) * len(shape)
        return builder.one(
            "slice", [value], type.with_shape(limits), start_indices=starts, limit_indices=limits, strides=ones
        )

    def _zeros(self, rhs: Value, split: int, chosen: Sequence[tuple[int, int]]) -> Value:
        """Return sums of 0 * kernel over the elements that each phase skips, [phases, o].

        `chosen` are the first kernel index of each phase along `split`, and the count.
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
        expanded = builder.one("broadcast_in_dim", [sums], type, broadcast_dimensions=(1, 2))
        return builder.reduce("stablehlo.add", builder.select(mask, expanded, builder.splat(0, type)), nothing, (1,))

    def _strided_slice(self, rhs: Value, axis: int, first: int, step: int, count: int) -> Value:
        """Return `count` kernel elements along `axis`, `step` apart."""
        shape = rhs.tensor.static_shape
        starts = tuple(first if d == axis else 0 for d in range(len(shape)))
        limits = tuple(first + (count - 1) * step + 1 if d == axis else size for d, size in enumerate(shape))
        strides = tuple(step if d == axis else 1 for d in range(len(shape)))
        type = rhs.tensor.with_shape(tuple(count if d == axis else size for d, size in enumerate(shape)))
        return self.builder.one("slice", [rhs], type, start_indices=starts, limit_indices=limits, strides=strides)

    def _is_product(self, rhs: Value, strides: Sequence[int]) -> bool:
        """Return whether the convolution is a matrix product: 1x1 windows, no groups, features last."""
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
        """Return the image padded and dilated to what the windows cover."""
        rank = lhs.tensor.rank
        low, high, interior = [0] * rank, [0] * rank, [0] * rank
        for place, (axis, window) in enumerate(zip(self.numbers.input_spatial_dimensions, windows, strict=True)):
            size = (lhs.tensor.static_shape[axis] - 1) * window.base_dilation + 1
            met = (window.size - 1) * window.stride + (rhs.tensor.static_shape[place] - 1) * window.window_dilation + 1
            low[axis], interior[axis] = window.low, window.base_dilation - 1
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
