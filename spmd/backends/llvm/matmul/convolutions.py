"""Convolutions without padding or base dilation as tiled products, one per feature group.

Rows of a product are neighbours of the result along one dimension, columns are features; window offsets and input
features are contracted. The left operand is read in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import row_major
from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.backends.llvm.emit.native_ops import PlanTarget, native
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.loops.loops import Range
from spmd.backends.llvm.loops.nests import NestEmitter
from spmd.backends.llvm.matmul.tiles import Depth, Outer, Tiled, pack, write_tiled
from spmd.backends.llvm.parallel.tasks import call_by_iterations
from spmd.compiler.schedule.conv_input_fusion import FEW_ROWS
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.rates import nanoseconds
from spmd.compiler.schedule.sliding import groups_of
from spmd.compiler.schedule.steps import LibraryCall
from spmd.compiler.schedule.target import LibraryPlan
from spmd.compiler.schedule.tasks import tasks_of_time
from spmd.dialects.structs import ConvDimensionNumbersAttr
from spmd.ir import Op
from spmd.support.processor import Processor

_TYPES = {"f32": "float", "f64": "double"}


def _is_plain_convolution(op: Op) -> bool:
    values = (*op.operands, op.result)
    types = {str(value.tensor.element_type) for value in values}
    if len(types) != 1 or not types <= set(_TYPES) or not all(is_plain(value.type) for value in values):
        return False
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    rank = op.result.tensor.rank
    kernel = (
        *numbers.kernel_spatial_dimensions,
        numbers.kernel_input_feature_dimension,
        numbers.kernel_output_feature_dimension,
    )
    result = (numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension)
    padded = op["padding"] is not None or op["lhs_dilation"] is not None or op["window_reversal"] is not None
    return kernel == result == tuple(range(rank)) and not padded and all(op.result.tensor.static_shape)


@dataclass(frozen=True)
class ConvolutionForm:
    """A convolution as tiled products: one iteration of the loops `outer`, of which `split` is split into tasks.

    `is_packed`: the kernel is packed into column panels.
    """

    product: Tiled
    outer: tuple[Outer, ...]
    split: Outer | None
    is_packed: bool

    def __str__(self) -> str:
        return f"{self.product}{', kernel packed' if self.is_packed else ''}"


def _plan(op: Op, machine: PlanTarget, image_bytes: int | None) -> LibraryPlan:
    product, outer = _as_product(op, machine.processor)
    work = product.rows * product.columns * product.depth_rows * prod(each.size for each in outer)
    tasks = tasks_of_time(nanoseconds("convolution", work), machine.threads)
    is_packed = product.columns > product.width
    scratch = [product.packed_elements * product.bits // 8] if is_packed else []
    split = outer[0] if image_bytes is not None else max(outer, key=lambda each: each.size, default=Outer(1, 0, 0))
    tasks = min(tasks, split.size)
    if image_bytes is not None:
        scratch.append(tasks * image_bytes)
    is_split = tasks > 1 or image_bytes is not None
    form = ConvolutionForm(product, tuple(outer), split if is_split else None, is_packed)
    return LibraryPlan(tasks, tuple(scratch), form)


@native("stablehlo.convolution", _is_plain_convolution, _plan)
def _(writer: FunctionEmitter, step: LibraryCall) -> None:
    op, form = step.op, step.plan.form
    assert isinstance(form, ConvolutionForm)
    right, result = writer.pointer(op.operands[1]), writer.pointer(op.result)
    if step.images is not None:
        _write_products(writer, step, form, (writer.address(step.scratch[-1]), right, result))
        return
    left, text = writer.pointer(op.operands[0]), writer.text
    groups = groups_of(op)
    if groups == 1:
        _write_products(writer, step, form, (left, right, result))
        return
    iteration, _ = text.open_loop()
    strides = [stride * form.product.bits // 8 for stride in _group_strides(op, form.product)]
    moved = [_moved(text, at, iteration, stride) for at, stride in zip((left, right, result), strides, strict=True)]
    _write_products(writer, step, form, (moved[0], moved[1], moved[2]))
    text.close_loop(groups)


def _group_strides(op: Op, product: Tiled) -> tuple[int, int, int]:
    """Return the group strides of image, kernel and result, in elements."""
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    image, kernel = (operand.tensor.static_shape for operand in op.operands)
    strides = row_major(image)
    if op["feature_group_count"] > 1:
        step = kernel[-2] * strides[numbers.input_feature_dimension]
    else:
        step = op.result.tensor.static_shape[0] * strides[numbers.input_batch_dimension]
    return step, product.columns, product.columns


def _write_products(
    writer: FunctionEmitter, step: LibraryCall, form: ConvolutionForm, pointers: tuple[str, str, str]
) -> None:
    """Emit the products of one feature group; `pointers` are those of image, kernel and result.

    If the producer of the images is fused, the first is memory for one image per task.
    """
    left, right, result = pointers
    product, images, split = form.product, step.images, form.split
    packed = writer.address(step.scratch[0]) if form.is_packed else None
    if packed is not None:
        pack(writer.text, product, right, packed)
    if split is None:
        write_tiled(writer.text, product, left, right, result, form.outer, packed)
        return
    rest = [each for each in form.outer if each is not split]

    def write(text: FunctionText, pointer: Callable[[str], str], iteration: str) -> None:
        image = pointer(left)
        if images is None:
            image = _moved(text, image, iteration, split.left * product.bits // 8)
        else:
            one = Range(images.nest.outer[0], iteration, None, "true")
            own = {images.value: image}
            NestEmitter(images.nest, text, lambda v: own.get(v) or pointer(writer.pointer(v)), one).write()
        target = _moved(text, pointer(result), iteration, split.result * product.bits // 8)
        write_tiled(text, product, image, pointer(right), target, rest, None if packed is None else pointer(packed))

    memory = None if images is None else (left, images.nbytes)
    call_by_iterations(writer, split.size, step.plan.tasks, write, memory=memory)


def _moved(text: FunctionText, pointer: str, iteration: str, stride: int) -> str:
    return text.value(f"getelementptr i8, ptr {pointer}, i64 {text.value(f'mul i64 {iteration}, {stride}')}")


def _as_product(op: Op, processor: Processor) -> tuple[Tiled, list[Outer]]:
    """Return the product of one iteration, and the loops around it."""
    numbers: ConvDimensionNumbersAttr = op["dimension_numbers"]
    lhs, rhs = (operand.tensor.static_shape for operand in op.operands)
    shape = op.result.tensor.static_shape
    left, right, result = row_major(lhs), row_major(rhs), row_major(shape)
    spatial = numbers.input_spatial_dimensions
    strides = op["window_strides"] or (1,) * len(spatial)
    reach = op["rhs_dilation"] or (1,) * len(spatial)
    depth = [Depth(rhs[place], left[axis] * reach[place], right[place]) for place, axis in enumerate(spatial)]
    depth.append(Depth(rhs[-2], left[numbers.input_feature_dimension], right[-2]))
    around = [Outer(shape[0], left[numbers.input_batch_dimension], result[0])]
    around += [
        Outer(shape[place + 1], left[axis] * strides[place], result[place + 1]) for place, axis in enumerate(spatial)
    ]
    rows = around[-1]
    if rows.size < FEW_ROWS:
        rows = max(reversed(around), key=lambda each: each.size)
    outer = [each for each in around if each is not rows and each.size > 1]
    name = str(op.result.tensor.element_type)
    bits = op.result.tensor.dtype.itemsize * 8
    merged = _merged(depth)
    columns = shape[-1] // groups_of(op)
    return Tiled(rows.size, columns, merged, _TYPES[name], bits, rows.left, rows.result, processor), outer


def _merged(depth: list[Depth]) -> tuple[Depth, ...]:
    """Return `depth` with dimensions merged where strides allow; at least one remains."""
    depths: list[Depth] = []
    for each in depth:
        if each.size == 1:
            continue
        before = depths[-1] if depths else None
        if before is not None and before.left == each.left * each.size and before.right == each.right * each.size:
            depths[-1] = Depth(before.size * each.size, each.left, each.right)
        else:
            depths.append(each)
    return tuple(depths) or (depth[-1],)
