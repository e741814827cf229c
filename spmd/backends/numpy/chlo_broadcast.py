"""CHLO ops with implicit broadcasting: the plain op's kernel on operands of equal rank."""

from __future__ import annotations

from collections.abc import Callable

from spmd.backends.kernels import Context, Kernel, kernel, make_kernel
from spmd.backends.numpy.pointwise import keep
from spmd.dialects.core import OPS
from spmd.ir import AttributeValue, Op
from spmd.support.arrays import Array

_PREFIX = "chlo.broadcast_"
#: Ops without a StableHLO counterpart.
_CHLO_ONLY = frozenset({"next_after", "polygamma", "zeta"})
_BINARY = (
    "add", "and", "atan2", "complex", "divide", "maximum", "minimum", "multiply", "next_after", "or", "polygamma",
    "power", "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical", "subtract", "xor", "zeta",
)  # fmt: skip


@kernel(*(_PREFIX + name for name in _BINARY))
def binary(op: Op, context: Context) -> Kernel:
    return _broadcasting(op, context, {})


@kernel(_PREFIX + "compare")
def compare(op: Op, context: Context) -> Kernel:
    type = op["compare_type"]
    attributes = {"comparison_direction": op["comparison_direction"]}
    return _broadcasting(op, context, attributes if type in (None, "NOTYPE") else {**attributes, "compare_type": type})


@kernel(_PREFIX + "select")
def select(op: Op, context: Context) -> Kernel:
    return _broadcasting(op, context, {})


def _broadcasting(op: Op, context: Context, attributes: dict[str, AttributeValue]) -> Kernel:
    name = op.name.removeprefix(_PREFIX)
    plain = ("chlo." if name in _CHLO_ONLY else "stablehlo.") + name
    inner = Op(plain, op.operands, op.result_types, attributes, definition=OPS.get(plain), location=op.location)
    plain_kernel = make_kernel(inner, context)
    rank = op.result.tensor.rank
    if all(value.tensor.rank == rank for value in op.operands):
        return plain_kernel
    lift = [_lifting(value.tensor.static_shape, rank, op) for value in op.operands]
    function, takes_out = plain_kernel.call, plain_kernel.accepts_out

    def call(*operands: Array, out: Array | None = None) -> Array:
        lifted = [raise_rank(operand) for raise_rank, operand in zip(lift, operands, strict=True)]
        if out is not None and takes_out:
            written: Array = function(*lifted, out=out)
            return written
        return keep(function(*lifted), out)

    return Kernel(call, accepts_out=True)


def _lifting(shape: tuple[int, ...], rank: int, op: Op) -> Callable[[Array], Array]:
    """Return a function that views an operand with dimensions of size 1 added, for NumPy's broadcasting.

    Its dimensions are the result's `broadcast_dimensions`, by default the last ones.
    """
    if len(shape) in (0, rank):
        return lambda operand: operand
    dimensions_attribute = op["broadcast_dimensions"] if "broadcast_dimensions" in op.attributes else None
    dimensions = tuple(range(rank - len(shape), rank)) if dimensions_attribute is None else tuple(dimensions_attribute)
    order = sorted(range(len(shape)), key=dimensions.__getitem__)
    lifted = [1] * rank
    for dimension, size in zip(dimensions, shape, strict=True):
        lifted[dimension] = size
    return lambda operand: operand.transpose(order).reshape(lifted)
