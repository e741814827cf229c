"""Ops that cannot be batched: a loop over the processes, each on its own rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, leaves, read_by, rebuilt, refuse, rule
from spmd.ir import Op, Region, Value, copy_op
from spmd.types import TOKEN, FutureType, TensorType, TokenType, TupleType, Type


@rule("otherwise")
def one_by_one(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Emit a loop that runs the op, which has no effects, for each process."""
    if any(isinstance(type, FutureType) for type in (*op.operand_types, *op.result_types)):
        raise refuse(op, "it takes or gives a future")
    stacker.serial[op] = None
    types = [type for result in op.result_types for type in _tensors(result)]
    count = stacker.index(stacker.size)
    init = [stacker.index(0), *(stacker.splat(0, stacker.tensor_of(type)) for type in types)]
    carried = [value.type for value in init]
    with stacker.block(carried) as condition:
        stacker.finish([stacker.compare(condition.arguments[0], count, "LT")])
    with stacker.block(carried) as body:
        row, *totals = body.arguments
        parts = [leaf.value for leaf in _of_one(stacker, op, row) if isinstance(leaf.value.type, TensorType)]
        new = [_put(stacker, total, part, row) for total, part in zip(totals, parts, strict=True)]
        stacker.finish([stacker.binary("add", row, stacker.index(1)), *new])
    loop = stacker.op("stablehlo.while", init, carried, regions=[Region([condition]), Region([body])])
    rows = iter(loop.results[1:])
    return [_gathered(stacker, type, rows) for type in op.result_types]


def _of_one(stacker: Stacker, op: Op, row: Value) -> list[StackedValue]:
    """Return the results of the op for the process in `row`, an i32 scalar."""
    values = {}
    for value in read_by(op):
        tree = stacker.trees[value]
        parts = iter([_part(stacker, leaf, row) for leaf in leaves(tree)])
        values[value] = stacker.packed(rebuilt(tree, parts))
    own = copy_op(op, values)
    stacker.ops.append(own)
    return [leaf for value in own.results for leaf in leaves(stacker.unpacked(value))]


def _part(stacker: Stacker, leaf: StackedValue, row: Value) -> StackedValue:
    if not leaf.stacked:
        return leaf
    one = stacker.dynamic_slice(leaf.value, 0, row, 1)
    return StackedValue(stacker.one("reshape", [one], stacker.type_of_one(leaf.value.tensor)))


def _put(stacker: Stacker, total: Value, part: Value, row: Value) -> Value:
    type = TensorType((1, *part.tensor.shape), total.tensor.element_type)
    return stacker.dynamic_update(total, stacker.one("reshape", [part], type), 0, row)


def _gathered(stacker: Stacker, type: Type, rows: Iterator[Value]) -> Tree:
    if isinstance(type, TupleType):
        return tuple([_gathered(stacker, part, rows) for part in type.types])
    if isinstance(type, TokenType):
        return StackedValue(stacker.one("create_token", (), TOKEN))
    return StackedValue(next(rows), True)


def _tensors(type: Type) -> list[TensorType]:
    """Return the tensor types within a type."""
    if isinstance(type, TupleType):
        return [inner for part in type.types for inner in _tensors(part)]
    return [type] if isinstance(type, TensorType) else []
