"""Constant folding, common subexpression elimination, dead code elimination, and static branches.

Works in place on a function without calls. Only pure ops take part (an op with regions if all ops inside are pure).
Folding is limited to `_FOLD_LIMIT` bytes, so that iotas do not become stored arrays; splats, which store one element,
are folded at any size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass

import numpy as np

from spmd.analysis.constants import CONSTANT, MOVES, constant_array
from spmd.dialects.core import Trait, has_trait, is_pure
from spmd.dialects.make import make_op
from spmd.ir import Block, Op, Value, captured_values
from spmd.ir.attributes import DenseAttr, DictAttr, is_splat
from spmd.support.arrays import Array
from spmd.types import TensorType

_FOLD_LIMIT = 1 << 16
#: Ops with small operands and large results. Regions keep copies of their own, since outside they would be stored to
#: memory.
_SPREADING = ("stablehlo.broadcast_in_dim", "stablehlo.broadcast", "stablehlo.iota")

#: Evaluates one op on constant arrays: (op, arrays) -> results, or None if it cannot be evaluated.
Evaluate = Callable[[Op, Sequence[Array | None]], "tuple[Array, ...] | None"]


def simplify(block: Block, evaluate: Evaluate) -> None:
    """Fold constants, merge equal ops and remove dead ones in `block` and its regions; in place."""
    _Simplifier(evaluate).block(block)
    remove_dead(block)


def remove_dead(block: Block) -> None:
    """Remove dead pure ops in `block` and its regions, from end to start."""
    used: set[Value] = set()
    kept: list[Op] = []
    for op in reversed(block.ops):
        terminator = op.definition is not None and op.definition.is_terminator
        if not terminator and is_pure(op) and not any(result in used for result in op.results):
            continue
        for region in op.regions:
            for inner in region.blocks:
                remove_dead(inner)
        used.update(op.operands)
        used.update(captured_values(op) if op.regions else ())
        kept.append(op)
    block.ops = kept[::-1]


class _Simplifier:
    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        #: Available pure ops by key: those of all blocks around, and the spreading ones of the current block alone.
        self._seen: dict[Hashable, Op] = {}
        self._spreading: dict[Hashable, Op] = {}
        self._replaced: dict[Value, Value] = {}

    def block(self, block: Block) -> None:
        """Simplify `block`, whose ops are not available outside."""
        before, outer, self._spreading = len(self._seen), self._spreading, {}
        kept: list[Op] = []
        self._ops(block.ops, kept)
        block.ops = kept
        self._spreading = outer
        while len(self._seen) > before:
            self._seen.popitem()

    def _ops(self, ops: list[Op], kept: list[Op]) -> None:
        """Append the simplified `ops` to `kept`."""
        for op in ops:
            op.replace_operands(self._replaced)
            branch = _static_branch(op)
            if branch is not None:
                self._ops(branch.ops[:-1], kept)
                branch.terminator.replace_operands(self._replaced)
                self._replaced.update(zip(op.results, branch.terminator.operands, strict=True))
                continue
            for region in op.regions:
                for inner in region.blocks:
                    self.block(inner)
            folded = fold(op, self._evaluate)
            key = _key(folded)
            if key is not None:
                earlier = (self._spreading if folded.name in _SPREADING else self._seen).setdefault(key, folded)
                if earlier is not folded:
                    self._replaced.update(zip(op.results, earlier.results, strict=True))
                    continue
            if folded is not op:
                self._replaced.update(zip(op.results, folded.results, strict=True))
            kept.append(folded)


def fold(op: Op, evaluate: Evaluate) -> Op:
    """Return the constant that `op` evaluates to, or `op` itself."""
    constants = _constants(op.operands)
    if constants is None or op.regions or len(op.results) != 1 or not is_pure(op):
        return op
    type = op.results[0].type
    if not isinstance(type, TensorType) or not type.is_static or type.is_quantized:
        return op
    if op.name in MOVES and is_splat(constants[0]):
        array = np.broadcast_to(constants[0][(0,) * constants[0].ndim], type.static_shape)
        return make_op(CONSTANT, (), [type], {"value": DenseAttr(array, type)}, location=op.location)
    if type.nbytes > _FOLD_LIMIT:
        return op
    results = evaluate(op, constants)
    if results is None:
        return op
    array = np.asarray(results[0])
    if array.shape != type.static_shape or array.dtype != type.dtype:
        return op
    array = array.view()
    array.flags.writeable = False
    return make_op(CONSTANT, (), [type], {"value": DenseAttr(array, type)}, location=op.location)


def _constants(operands: Sequence[Value]) -> list[Array] | None:
    """Return the arrays of `operands` if all are constant; None if one is not, or there are none."""
    arrays = []
    for operand in operands:
        array = constant_array(operand.defining_op)
        if array is None:
            return None
        arrays.append(array)
    return arrays or None


def _static_branch(op: Op) -> Block | None:
    """Return the branch that an `if` or `case` with a constant predicate takes; None if it is not constant.

    Programs for several platforms have such branches, and those of other platforms need not compile here. An index out
    of range selects the last branch (StableHLO's specification, case).
    """
    if not has_trait(op, Trait.BRANCH):
        return None
    chosen = constant_array(op.operands[0].defining_op)
    if chosen is None:
        return None
    if op.name == "stablehlo.if":
        return op.regions[0 if chosen else 1].block
    index, count = int(chosen), len(op.regions)
    return op.regions[index if 0 <= index < count else count - 1].block


def _key(op: Op) -> Hashable | None:
    """Return a key of ops that can be merged; None if `op` cannot."""
    if not is_pure(op) or op.definition is None or op.definition.is_terminator:
        return None
    return _structure(op, {})


def _structure(op: Op, inside: dict[Value, int], *, nested: bool = False) -> Hashable:
    """Return the structure of `op` as a key. `inside` numbers the values defined within the regions entered so far."""
    operands = tuple(inside.get(operand, operand) for operand in op.operands)
    regions = tuple(_block_structure(block, inside) for region in op.regions for block in region.blocks)
    # Large constants inside regions are compared by identity, to hash their elements once only.
    is_large = nested and op.name == CONSTANT and _nbytes(op) > _FOLD_LIMIT
    attributes = id(op) if is_large else hashable(op.attributes) if op.attributes else ()
    return (op.name, operands, tuple(op.result_types), attributes, regions)


def _nbytes(constant: Op) -> int:
    type = constant.results[0].type
    return type.nbytes if isinstance(type, TensorType) else 0


def _block_structure(block: Block, inside: dict[Value, int]) -> Hashable:
    for argument in block.arguments:
        inside[argument] = len(inside)
    ops = []
    for op in block.ops:
        ops.append(_structure(op, inside, nested=True))
        for result in op.results:
            inside[result] = len(inside)
    return (tuple(argument.type for argument in block.arguments), tuple(ops))


def hashable(value: object) -> Hashable:
    """Return a hashable key of an attribute's value: equal exactly when the values are."""
    if isinstance(value, DenseAttr):
        return ("dense", value.type, hashable(value.array))
    if isinstance(value, np.ndarray):
        one = value.ndim and value.size and not any(value.strides)
        return (value.shape, value.dtype, value.flat[:1].tobytes() if one else value.tobytes())
    if isinstance(value, DictAttr):
        return hashable(dict(value.entries))
    if isinstance(value, Mapping):
        return tuple(sorted((name, hashable(entry)) for name, entry in value.items()))
    if isinstance(value, (tuple, list)):
        return tuple(hashable(entry) for entry in value)
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), *(hashable(getattr(value, entry.name)) for entry in fields(value)))
    return (type(value), value)
