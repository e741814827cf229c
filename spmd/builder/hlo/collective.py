"""Collectives in HLO text: read and written, each under the opcode that its `Operation` has."""

from __future__ import annotations

import functools
from collections.abc import Callable

from collectives.operations import AllGather, AllToAll, Operation, ReduceScatter, ReducingOperation
from spmd.builder import ops
from spmd.builder.hlo.groups import Groups, parse_groups
from spmd.builder.hlo.mixed import as_text, of_one_type, reducer
from spmd.builder.hlo.parser import INSTRUCTIONS, Call, instruction
from spmd.builder.hlo.printer import CONVERTERS, Body, integers
from spmd.builder.hlo.reader import split
from spmd.builder.shape import Shape
from spmd.builder.xla_op import OPERATIONS, XlaOp
from spmd.dialects import OPS
from spmd.dialects.mesh_groups import given_groups
from spmd.ir import Op, Value
from spmd.support.arrays import Array

# --- read ------------------------------------------------------------------------------------------------------------


def _read(operation: type[Operation], call: Call) -> XlaOp:
    """Return a collective, described by its operands, reducer, groups and channel."""
    make = OPERATIONS[operation.builder_name]
    if issubclass(operation, ReducingOperation):
        operands, flag = _folded(call), call.flag("use_global_device_ids")
        fold = reducer(call.computation("to_apply"), operands[:1])
        return as_text(call, make(_tupled(call, operands), fold, _groups(call), call.channel(), flag))
    by_pairs = "source_target_pairs" in OPS[f"stablehlo.{operation.name}"].attribute_table
    members = read_pairs(call.attribute("source_target_pairs")) if by_pairs else _groups(call)
    channel = call.channel()
    return _each(call, lambda operand, _: make(operand, members, channel))


def _all_gather(call: Call) -> XlaOp:
    number, groups, channel = call.dimension("dimensions"), _groups(call), call.channel()
    flag = call.flag("use_global_device_ids")

    def gathered(operand: XlaOp, shape: Shape) -> XlaOp:
        size = operand.shape.sizes[number]
        count = shape.sizes[number] // size if size else call.group_size(groups)
        return ops.AllGather(operand, number, count, groups, channel, flag)

    return _each(call, gathered)


def _reduce_scatter(call: Call) -> XlaOp:
    operands, number = _folded(call), call.dimension("dimensions")
    whole, part = operands[0].shape.sizes[number], call.shape.leaves()[0].sizes[number]
    flag, groups = call.flag("use_global_device_ids"), _groups(call)
    count = whole // part if part else call.group_size(groups)
    fold = reducer(call.computation("to_apply"), operands[:1])
    operand = _tupled(call, operands)
    return as_text(call, ops.ReduceScatter(operand, fold, number, count, groups, call.channel(), flag))


def _all_to_all(call: Call) -> XlaOp:
    operands, groups, channel = call.operands(), _groups(call), call.channel()
    if call.has("dimensions"):
        number = call.dimension("dimensions")
        count = call.group_size(groups)
        return ops.AllToAll(operands[0], number, number, count, groups, channel)
    shape = operands[0].shape.sizes  # operand i goes to process i of the group
    stacked = ops.Concatenate([ops.Reshape(one, (1, *shape)) for one in operands], 0)
    moved = ops.AllToAll(stacked, 0, 0, len(operands), groups, channel)
    return call.builder.Tuple([moved[i] for i in range(len(operands))])


#: What reads a collective whose number of processes, or dimension, is among the arguments of its operation.
_READERS = {AllGather: _all_gather, ReduceScatter: _reduce_scatter, AllToAll: _all_to_all}


@instruction("replica-id")
def _replica_id(call: Call) -> XlaOp:
    return call.builder.ReplicaId()


@instruction("partition-id")
def _partition_id(call: Call) -> XlaOp:
    return call.builder.PartitionId()


def _groups(call: Call) -> Groups:
    return parse_groups(call.attribute("replica_groups", "{}"))


def _folded(call: Call) -> list[XlaOp]:
    """Return the operands of a collective that folds, floats at least as wide as the results of the text."""
    pairs = zip(call.operands(), call.shape.leaves(), strict=True)
    return [of_one_type([operand], *[leaf.primitive_type] * leaf.primitive_type.is_float)[0] for operand, leaf in pairs]


def _tupled(call: Call, operands: list[XlaOp]) -> XlaOp:
    return operands[0] if len(operands) == 1 else call.builder.Tuple(operands)


def _each(call: Call, make: Callable[[XlaOp, Shape], XlaOp]) -> XlaOp:
    """Return a collective on several operands is one on each of them; their results are a tuple."""
    operands, shapes = call.operands(), call.shape.leaves()
    if len(operands) != len(shapes):
        raise call.fail(f"{len(operands)} operands give {len(operands)} results, there are {len(shapes)}")
    calls = [make(operand, shape) for operand, shape in zip(operands, shapes, strict=True)]
    return call.builder.Tuple(calls) if call.shape.is_tuple() else calls[0]


#: How HLO text tells who sends to whom, among the frontend's attributes of a send.
TRANSFER_PAIRS = "_xla_send_recv_source_target_pairs"


def read_pairs(text: str) -> list[tuple[int, int]]:
    """Read `{{0,1},{1,2}}`, pairs of source and target."""
    rows = [split(row) for row in split(text)]
    return [(int(source), int(target)) for source, target in rows]


# --- written ---------------------------------------------------------------------------------------------------------


def _write(opcode: str, body: Body, op: Op) -> None:
    body.instruction(op, opcode, op.operands, _attributes(body, op))


def _attributes(body: Body, op: Op) -> list[str]:
    """Return the attributes of a collective in HLO text, of those that the op is declared to have."""
    assert op.definition is not None
    declared = op.definition.attribute_table
    if "has_dynamic_root" in declared and op["has_dynamic_root"]:
        raise ValueError("a root that is told while running cannot be written")
    channel = op["channel_handle"]
    attributes = [] if channel is None else [f"channel_id={channel.handle}"]
    if "replica_groups" in declared:
        attributes.append("replica_groups=" + _groups_text(given_groups(op, body.printer.module)))
    if "source_target_pairs" in declared:
        attributes.append("source_target_pairs=" + pairs_text(op))
    if "use_global_device_ids" in declared and op["use_global_device_ids"]:
        attributes.append("use_global_device_ids=true")
    attributes += [f"dimensions={integers([op[name]])}" for name in _DIMENSIONS if name in declared]
    attributes += ["to_apply=" + body.applied(region) for region in op.regions]
    return attributes


def _groups_text(groups: Array) -> str:
    return "{" + ",".join(integers(n for n in row if n >= 0) for row in groups.tolist()) + "}"


#: The attributes, one a collective, that are `dimensions` in HLO.
_DIMENSIONS = ("all_gather_dim", "scatter_dimension", "split_dimension")


def pairs_text(op: Op) -> str:
    """Return `{{0,1},{1,2}}`, pairs of source and target."""
    return "{" + ",".join(integers(pair) for pair in op["source_target_pairs"].tolist()) + "}"


def _write_all_to_all(opcode: str, body: Body, op: Op) -> None:
    """Write an exchange of blocks in place, as HLO has it, and move the blocks to where they are joined."""
    attributes = _attributes(body, op)
    for value, result in zip(op.operands, op.results, strict=True):
        exchanged = body.add(opcode, value.type, [body.name_of(value)], attributes)
        body.name_value(result, _joined(body, op, value, result, exchanged))


def _joined(body: Body, op: Op, value: Value, result: Value, exchanged: str) -> str:
    """Return the name of `exchanged`, whose blocks lie along split_dimension, with them along concat_dimension."""
    split_at, concat, count = op["split_dimension"], op["concat_dimension"], op["split_count"]
    if split_at == concat:
        return exchanged
    operand = value.tensor
    sizes = list(operand.static_shape)
    cut = [*sizes[:split_at], count, sizes[split_at] // count, *sizes[split_at + 1 :]]
    rest = [d for d in range(len(cut)) if d != split_at]
    order = [*rest[:concat], split_at, *rest[concat:]]
    blocks = body.add("reshape", operand.with_shape(tuple(cut)), [exchanged])
    kind = operand.with_shape(tuple(cut[d] for d in order))
    moved = body.add("transpose", kind, [blocks], ["dimensions=" + integers(order)])
    return body.add("reshape", result.type, [moved])


_WRITERS: dict[type[Operation], Callable[[str, Body, Op], None]] = {AllToAll: _write_all_to_all}

for _operation in Operation.kinds():
    if _operation.hlo_opcode:
        INSTRUCTIONS[_operation.hlo_opcode] = _READERS.get(_operation) or functools.partial(_read, _operation)
        CONVERTERS[f"stablehlo.{_operation.name}"] = functools.partial(
            _WRITERS.get(_operation, _write), _operation.hlo_opcode
        )
