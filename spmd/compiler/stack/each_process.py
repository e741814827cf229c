"""Ops with effects: each active process runs them itself, in rank order.

Streams, probes, prints, checks and calls with side effects belong to a process. The stacked program calls a function
that contains the op as for one process, once for each active process.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spmd.compiler.stack.core import StackedValue, Stacker, Tree, leaves, read_by, rebuilt, refuse, rule
from spmd.dialects.make import make_function, make_op
from spmd.ir import Block, Op, Value, copy_op
from spmd.ir.attributes import Attribute, DenseAttr, DictAttr
from spmd.types import I1, I64, FutureType, TensorType, Type

#: The call that runs a function for each process, on its arguments and the mask of active processes.
EACH = "spmd.each_process"


@rule("effects")
def each_process(stacker: Stacker, op: Op) -> Sequence[Tree]:
    """Return results with the leading axis; zeros for inactive processes."""
    if any(isinstance(type, FutureType) for type in (*op.operand_types, *op.result_types)):
        raise refuse(op, "it takes or gives a future")
    stacker.serial[op] = None
    read = read_by(op)
    operands = stacker.all_leaves(read)
    body, results = _of_one(stacker, op, read, operands)
    symbol = stacker.new_symbol(op)
    stacker.functions.append(make_function(symbol, body, location=op.location))
    active = stacker.mask if stacker.mask is not None else stacker.splat(True, TensorType((stacker.size,), I1))
    types = [stacker.type_of(leaf.value.type) for result in results for leaf in leaves(result)]
    attributes = {
        "call_target_name": EACH,
        "called_computations": (symbol,),
        "has_side_effect": True,
        "backend_config": _processes(stacker, operands),
        "api_version": 4,
    }
    call = stacker.op("stablehlo.custom_call", [*(leaf.value for leaf in operands), active], types, attributes)
    rows = iter([StackedValue(value, isinstance(value.type, TensorType)) for value in call.results])
    return [rebuilt(result, rows) for result in results]


def _of_one(
    stacker: Stacker, op: Op, read: Sequence[Value], operands: Sequence[StackedValue]
) -> tuple[Block, list[Tree]]:
    """Return the body of a function with `op` for one process, and its results there."""
    with stacker.block([_type_of_one(stacker, leaf) for leaf in operands]) as body:
        arguments = iter([StackedValue(value) for value in body.arguments])
        values = {value: stacker.packed(rebuilt(stacker.trees[value], arguments)) for value in read}
        for value, own_value in values.items():
            own_value.name_hint = value.name_hint
        own = copy_op(op, values)
        stacker.ops.append(own)
        results = [stacker.unpacked(value) for value in own.results]
        returned = [leaf.value for result in results for leaf in leaves(result)]
        stacker.ops.append(make_op("func.return", returned, location=op.location))
    return body, results


def _type_of_one(stacker: Stacker, leaf: StackedValue) -> Type:
    return stacker.type_of_one(leaf.value.tensor) if leaf.stacked else leaf.value.type


def _processes(stacker: Stacker, operands: Sequence[StackedValue]) -> Attribute:
    """Return the grid, the ranks of the rows, and which operands are stacked."""
    entries = {
        "grid": (stacker.grid.num_replicas, stacker.grid.num_partitions),
        "ranks": stacker.row_ranks,
        "stacked": [leaf.stacked for leaf in operands],
    }
    arrays = {name: np.asarray(values, np.int64) for name, values in entries.items()}
    return DictAttr({name: DenseAttr(array, TensorType(array.shape, I64)) for name, array in arrays.items()})
