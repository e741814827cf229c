"""The exchange of rows whose numbers the program computes: HLO's ragged-all-to-all, by exchanges of fixed sizes.

Process i sends `send_sizes[s]` rows of its operand, from row `input_offsets[s]` on, to each process of its group, which
puts them at row `output_offsets[s]` of its output; each process is sent the segments whose numbers s are its own place
in the group times their number a process. Source: XLA's "RaggedAllToAll".
"""

from __future__ import annotations

from spmd.builder import ops
from spmd.builder.hlo.groups import parse_groups
from spmd.builder.hlo.parser import Call, instruction
from spmd.builder.shape import Shape
from spmd.builder.xla_op import XlaOp


@instruction("ragged-all-to-all")
def _ragged_all_to_all(call: Call) -> XlaOp:
    operand, output, *told = call.operands(6)
    groups, channel = parse_groups(call.attribute("replica_groups", "{}")), call.channel()
    processes = call.group_size(groups)
    segments = told[0].shape.sizes
    if len(segments) != 1 or segments[0] % processes or any(one.shape != told[0].shape for one in told):
        raise ValueError(f"offsets and sizes are vectors of a multiple of {processes} integers")
    if operand.shape.sizes[1:] != output.shape.sizes[1:]:
        raise ValueError(f"rows of shape {output.shape.sizes[1:]} are needed, got {operand.shape.sizes[1:]}")

    def exchanged(blocks: XlaOp) -> XlaOp:
        return ops.AllToAll(blocks, 0, 0, processes, groups, channel)

    # Each process is given all rows, of which it takes its own: how many they are is not known before.
    rows, *inner = operand.shape.sizes
    everything = exchanged(ops.Reshape(ops.Broadcast(operand, [processes]), [processes * rows, *inner]))
    starts, sizes, places = (exchanged(one) for one in told[:3])
    kind = Shape.array_shape(starts.shape.xla_element_type(), output.shape.sizes[:1])
    row = ops.Iota(kind, 0, builder=call.builder)  # type: ignore[call-arg]
    none = call.builder.ConstantR0(-1, kind.xla_element_type())
    source = ops.Broadcast(none, kind.sizes)
    for segment in range(segments[0]):
        place = _entry(places, segment)
        taken = ops.And(ops.Ge(row, place), ops.Lt(row, ops.Add(place, _entry(sizes, segment))))
        first = segment // (segments[0] // processes) * rows
        shift = ops.Add(_entry(starts, segment), call.builder.ConstantR0(first, kind.xla_element_type()))
        source = ops.Select(taken, ops.Add(ops.Sub(row, place), shift), source)
    picked = ops.Gather(
        everything, source, range(1, len(inner) + 1), [0], [1, *inner], [0], index_vector_dim=1
    )  # clamps what is none
    sent = ops.BroadcastInDim(ops.Gt(source, none), output.shape.sizes, [0])
    return ops.Select(sent, picked, output)


def _entry(vector: XlaOp, index: int) -> XlaOp:
    return ops.Reshape(ops.SliceInDim(vector, index, index + 1, 1, 0), [])
