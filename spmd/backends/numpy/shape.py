"""Shapes as values, and tensor elements: MLIR's shape and tensor dialects, as dynamic programs use them.

A shape is a one-dimensional int64 array, a size an int64 scalar, a witness the boolean True.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

import numpy as np

from spmd.backends.kernels import Call, Context, Kernel, kernel
from spmd.backends.numpy.dynamism import sizes_of
from spmd.errors import Diagnostic, ExecutionError
from spmd.ir import Op, captured_values
from spmd.runtime.process import Process
from spmd.support.arrays import Array, Results


def _extents(sizes: Iterable[int]) -> Array:
    return np.asarray(tuple(sizes), np.int64)


def _failure(op: Op, message: str) -> ExecutionError:
    return ExecutionError(Diagnostic(op.location, message, op.name))


def _listed(shapes: tuple[Array, ...]) -> str:
    return ", ".join(str(sizes_of(shape)) for shape in shapes)


# --- shapes ----------------------------------------------------------------------------------------------------------


@kernel("shape.shape_of")
def shape_of(op: Op, context: Context) -> Kernel:
    return Kernel(lambda operand: _extents(np.shape(operand)))


@kernel("shape.const_shape")
def const_shape(op: Op, context: Context) -> Kernel:
    shape = np.asarray(op["shape"], np.int64).reshape(-1)
    return Kernel(lambda: shape, owned=False)


@kernel("shape.const_size")
def const_size(op: Op, context: Context) -> Kernel:
    size = np.int64(op["value"])
    return Kernel(lambda: size, owned=False)


def broadcast_sizes(shapes: tuple[Array, ...]) -> tuple[int, ...] | None:
    """Return the shape that all broadcast to; None if they do not broadcast."""
    try:
        return np.broadcast_shapes(*map(sizes_of, shapes))
    except ValueError:
        return None


@kernel("shape.broadcast")
def broadcast(op: Op, context: Context) -> Kernel:
    def call(*shapes: Array) -> Array:
        sizes = broadcast_sizes(shapes)
        if sizes is None:
            raise _failure(op, f"shapes do not broadcast together: {_listed(shapes)}")
        return _extents(sizes)

    return Kernel(call)


@kernel("shape.is_broadcastable")
def is_broadcastable(op: Op, context: Context) -> Kernel:
    return Kernel(lambda *shapes: np.bool_(broadcast_sizes(shapes) is not None))


@kernel("shape.shape_eq")
def shape_eq(op: Op, context: Context) -> Kernel:
    return Kernel(lambda *shapes: np.bool_(len(set(map(sizes_of, shapes))) <= 1))


@kernel("shape.concat")
def concat(op: Op, context: Context) -> Kernel:
    return Kernel(lambda x, y: _extents((*sizes_of(x), *sizes_of(y))))


@kernel("shape.from_extents")
def from_extents(op: Op, context: Context) -> Kernel:
    return Kernel(lambda *extents: _extents(int(extent) for extent in extents))


@kernel("shape.from_extent_tensor", "shape.to_extent_tensor")
def of_extent_tensor(op: Op, context: Context) -> Kernel:
    return Kernel(lambda shape: _extents(sizes_of(shape)))


# --- sizes -----------------------------------------------------------------------------------------------------------


@kernel("shape.num_elements")
def num_elements(op: Op, context: Context) -> Kernel:
    return Kernel(lambda shape: np.prod(sizes_of(shape), dtype=np.int64))


@kernel("shape.rank")
def rank(op: Op, context: Context) -> Kernel:
    return Kernel(lambda shape: np.int64(len(sizes_of(shape))))


@kernel("shape.dim", "tensor.dim")
def dim(op: Op, context: Context) -> Kernel:
    return Kernel(lambda operand, index: np.int64(_at(op, np.shape(operand), int(index))))


@kernel("shape.get_extent")
def get_extent(op: Op, context: Context) -> Kernel:
    return Kernel(lambda shape, index: np.int64(_at(op, sizes_of(shape), int(index))))


def _at(op: Op, sizes: tuple[int, ...], index: int) -> int:
    if not 0 <= index < len(sizes):
        raise _failure(op, f"no dimension {index} in shape {sizes}")
    return sizes[index]


_SIZES: dict[str, Call] = {
    "shape.add": np.add,
    "shape.mul": np.multiply,
    "shape.div": np.floor_divide,
}


@kernel(*_SIZES)
def size_arithmetic(op: Op, context: Context) -> Kernel:
    function, divides = _SIZES[op.name], op.name == "shape.div"

    def call(x: Array, y: Array) -> Array:
        if divides and int(y) == 0:
            raise _failure(op, "division by zero")
        return function(x, y)

    return Kernel(call)


@kernel("shape.index_to_size", "shape.size_to_index", "tensor.cast", "builtin.unrealized_conversion_cast")
def same(op: Op, context: Context) -> Kernel:
    return Kernel(lambda value: value, aliases=(0,))


# --- witnesses -------------------------------------------------------------------------------------------------------


@kernel("shape.const_witness")
def const_witness(op: Op, context: Context) -> Kernel:
    return _witness(op, lambda: op["passing"], lambda *_: "the witness does not pass")


@kernel("shape.cstr_require")
def cstr_require(op: Op, context: Context) -> Kernel:
    return _witness(op, bool, lambda *_: op["msg"])


@kernel("shape.cstr_broadcastable")
def cstr_broadcastable(op: Op, context: Context) -> Kernel:
    return _witness(
        op,
        lambda *shapes: broadcast_sizes(shapes) is not None,
        lambda *shapes: f"shapes do not broadcast together: {_listed(shapes)}",
    )


@kernel("shape.cstr_eq")
def cstr_eq(op: Op, context: Context) -> Kernel:
    return _witness(
        op,
        lambda *shapes: len(set(map(sizes_of, shapes))) <= 1,
        lambda *shapes: f"shapes are not equal: {_listed(shapes)}",
    )


@kernel("stablehlo.cstr_reshapable")
def cstr_reshapable(op: Op, context: Context) -> Kernel:
    return _witness(
        op,
        lambda count, shape: _reshaped(int(count), sizes_of(shape)) is not None,
        lambda count, shape: f"{int(count)} elements have no shape {list(sizes_of(shape))}",
    )


@kernel("stablehlo.compute_reshape_shape")
def compute_reshape_shape(op: Op, context: Context) -> Kernel:
    """Return the shape with its -1, if there is one, inferred from the number of elements."""

    def call(count: Array, shape: Array) -> Array:
        sizes = _reshaped(int(count), sizes_of(shape))
        if sizes is None:
            raise _failure(op, f"{int(count)} elements have no shape {list(sizes_of(shape))}")
        return np.array(sizes, shape.dtype)

    return Kernel(call)


def _reshaped(count: int, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return `sizes` of `count` elements, with a single -1 inferred; None if they do not match."""
    known = prod(size for size in sizes if size != -1)
    if min(sizes, default=0) < -1 or sizes.count(-1) > 1:
        return None
    if -1 not in sizes:
        return sizes if known == count else None
    if not known or count % known:
        return None
    return tuple(count // known if size == -1 else size for size in sizes)


@kernel("shape.assuming_all")
def assuming_all(op: Op, context: Context) -> Kernel:
    return Kernel(lambda *witnesses: np.bool_(True))


@kernel("shape.assuming")
def assuming(op: Op, context: Context) -> Kernel:
    body, single = context.region(op, 0), len(op.results) == 1

    def call(process: Process, witness: Array, *captured: Array) -> Results:
        results = body(process, *captured)
        return results[0] if single else results

    return Kernel(call, needs_process=True, aliases=tuple(range(1 + len(captured_values(op)))))


def _witness(op: Op, holds: Callable[..., object], message: Callable[..., str]) -> Kernel:
    def call(*values: Array) -> np.bool_:
        if not holds(*values):
            raise _failure(op, message(*values))
        return np.bool_(True)

    return Kernel(call)


# --- elements of tensors ---------------------------------------------------------------------------------------------


@kernel("tensor.rank")
def tensor_rank(op: Op, context: Context) -> Kernel:
    return Kernel(lambda operand: np.int64(np.ndim(operand)))


@kernel("tensor.extract")
def extract(op: Op, context: Context) -> Kernel:
    def call(operand: Array, *indices: Array) -> Array:
        place = tuple(int(index) for index in indices)
        if any(not 0 <= index < size for index, size in zip(place, operand.shape, strict=True)):
            raise _failure(op, f"no element {list(place)} in a tensor of shape {operand.shape}")
        element: Array = operand[place]
        return element

    return Kernel(call, aliases=(0,))


@kernel("tensor.from_elements")
def from_elements(op: Op, context: Context) -> Kernel:
    dtype, shape = op.result.tensor.dtype, op.result.tensor.static_shape
    return Kernel(lambda *elements: np.asarray([np.asarray(element)[()] for element in elements], dtype).reshape(shape))
