"""Transposes before what is folded go behind it: memory is then read as it lies.

A product reads either order of a matrix, and a reduction folds any dimension. Elementwise ops between a transpose and
those are done on what was transposed.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.analysis.constants import constant_array
from spmd.analysis.order import IN_ORDER
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.transforms.rewrite import Rule, rewrite
from spmd.compiler.transforms.transpose_folding import DOT, TRANSPOSE
from spmd.dialects.core import OPS, Trait, has_trait
from spmd.dialects.op_builder import OpBuilder
from spmd.ir import Block, Op, Value
from spmd.ir.attributes import is_splat
from spmd.types import TensorType

BROADCAST = "stablehlo.broadcast_in_dim"
REDUCE = "stablehlo.reduce"


def sink_transposes(block: Block) -> None:
    """Sinks transposes that nothing but products and reductions of `block`, or of a region inside it, read; in place.

    They may read them by way of elementwise ops. None is taken into a loop.
    """
    elementwise = [name for name, definition in OPS.items() if Trait.ELEMENTWISE in definition.traits]
    rewrite(block, (TRANSPOSE, REDUCE, *elementwise), _rule_of)


def _rule_of(block: Block) -> Rule:
    return _Sinking(_folded_in(block)) if any(op.name == TRANSPOSE for op in block.ops) else _stays


def _stays(op: Op, builder: OpBuilder) -> None:
    return None


def _folded_in(block: Block) -> set[Value]:
    """The values that nothing but products, reductions and transposes of `block` read, be it by elementwise ops."""
    folded: set[Value] = set()
    others: set[Value] = set()
    for op in reversed(block.ops):
        folds = op.name in (DOT, TRANSPOSE) or _is_reduction(op)
        through = has_trait(op, Trait.ELEMENTWISE) and len(op.results) == 1 and op.result in folded
        through = through and op.result not in others
        for inner in op.walk():
            (folded if (folds or through) and inner is op else others).update(inner.operands)
    return folded - others


def _is_reduction(op: Op) -> bool:
    if op.name != REDUCE or len(op.results) != 1:
        return False
    return IN_ORDER not in op.discardable and is_plain(op.operands[0].type)


class _Sinking:
    """The rule of one block. `folded` are the values that may come in any order of their dimensions."""

    def __init__(self, folded: set[Value]) -> None:
        self._folded = folded
        self._sunk: set[Op] = set()

    def __call__(self, op: Op, builder: OpBuilder) -> Sequence[Value] | None:
        if op.name == TRANSPOSE:
            if op.result in self._folded and is_plain(op.result.type):
                self._sunk.add(op)
            return None
        if op.name == REDUCE:
            return self._reduced(op, builder) if _is_reduction(op) else None
        return self._computed(op, builder) if len(op.results) == 1 and op.result in self._folded else None

    def _permutation(self, value: Value) -> tuple[int, ...] | None:
        """How `value` is transposed, if by a transpose that sinks."""
        maker = value.defining_op
        return tuple(maker["permutation"]) if maker is not None and maker in self._sunk else None

    def _computed(self, op: Op, builder: OpBuilder) -> Sequence[Value] | None:
        """`op`, elementwise, on what was transposed."""
        permutations = {p for operand in op.operands if (p := self._permutation(operand)) is not None}
        if len(permutations) != 1 or not is_plain(op.result.type):
            return None
        (permutation,) = permutations
        before = OpBuilder()
        before.location = builder.location
        operands = [self._moved(operand, permutation, before) for operand in op.operands]
        if any(operand is None for operand in operands):
            return None
        builder.ops += before.ops
        type = _turned(op.result.tensor, permutation)
        computed = op.clone([operand for operand in operands if operand is not None], [type])
        builder.ops.append(computed)
        return [self._transposed(computed.result, permutation, op.result.tensor, builder)]

    def _moved(self, value: Value, permutation: tuple[int, ...], builder: OpBuilder) -> Value | None:
        """What `value` is when transposed back; None where that would take more than the op that makes it."""
        maker = value.defining_op
        if not value.tensor.rank:
            return value
        if self._permutation(value) == permutation and maker is not None:
            return maker.operands[0]
        type = _turned(value.tensor, permutation)
        array = constant_array(maker)
        if array is not None and is_splat(array):
            return builder.splat(array[(0,) * array.ndim], type)
        if maker is None or maker.name != BROADCAST:
            return None
        dimensions = tuple(permutation[dimension] for dimension in maker["broadcast_dimensions"])
        return builder.one("broadcast_in_dim", maker.operands, type, broadcast_dimensions=dimensions)

    def _reduced(self, op: Op, builder: OpBuilder) -> Sequence[Value] | None:
        """`op`, a reduction of one operand, of what was transposed."""
        permutation = self._permutation(op.operands[0])
        maker = op.operands[0].defining_op
        if permutation is None or maker is None:
            return None
        dimensions = tuple(sorted(permutation[dimension] for dimension in op["dimensions"]))
        kept = [place for dimension, place in enumerate(permutation) if dimension not in op["dimensions"]]
        order = tuple(sorted(kept).index(place) for place in kept)
        type = _turned(op.result.tensor, order)
        reduced = op.clone([maker.operands[0], op.operands[1]], [type], attributes={"dimensions": dimensions})
        builder.ops.append(reduced)
        if type is op.result.type and order == tuple(range(len(order))):
            return reduced.results
        return [self._transposed(reduced.result, order, op.result.tensor, builder)]

    def _transposed(self, value: Value, permutation: tuple[int, ...], type: TensorType, builder: OpBuilder) -> Value:
        transposed = builder.one("transpose", [value], type, permutation=permutation)
        assert transposed.defining_op is not None
        self._sunk.add(transposed.defining_op)
        return transposed


def _turned(type: TensorType, permutation: tuple[int, ...]) -> TensorType:
    """The type of what becomes of `type` when it is transposed."""
    shape = [0] * len(permutation)
    for place, size in zip(permutation, type.static_shape, strict=True):
        shape[place] = size
    return type.with_shape(tuple(shape))
