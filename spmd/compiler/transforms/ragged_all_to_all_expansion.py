"""Expansion of ragged_all_to_all into exchanges of fixed sizes.

It is a custom_call of target `ragged_all_to_all`, as JAX writes jax.lax.ragged_all_to_all, of an operand, an output and
four integer vectors. Process i sends `send_sizes[s]` rows of its operand, from row `input_offsets[s]` on, to rows
`output_offsets[s]` of the output of the process that segment s belongs to; each process of the group has an equal
number of consecutive segments. `recv_sizes` follow from the others' `send_sizes`. Source: XLA's operation semantics,
"RaggedAllToAll".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from collectives.grid import ProcessGrid
from spmd.compiler.transforms.rewrite import rewrite
from spmd.dialects.op_builder import OpBuilder
from spmd.dialects.structs import ChannelHandleAttr, GatherDimensionNumbersAttr
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Op, Value
from spmd.ir.attributes import DenseAttr, DictAttr, IntegerAttr
from spmd.support.arrays import Array
from spmd.types import I64, TensorType

TARGET = "ragged_all_to_all"
#: The source of rows that are not received.
_NOWHERE = -1


def expand_ragged_all_to_all(block: Block, grid: ProcessGrid) -> None:
    """Rewrite each ragged_all_to_all in `block` and its regions, for processes of `grid`; in place."""

    def rule(op: Op, builder: OpBuilder) -> list[Value] | None:
        if op["call_target_name"] != TARGET:
            return None
        return [_exchanged(op, builder, _exchange_of(op, grid))]

    rewrite(block, ("stablehlo.custom_call",), lambda block: rule)


@dataclass(frozen=True)
class _Exchange:
    """The replica groups, one per row, and the channel, or 0."""

    groups: Array
    channel: int

    @property
    def size(self) -> int:
        """Processes per group."""
        return int(self.groups.shape[1])

    def between(self, builder: OpBuilder, blocks: Value) -> Value:
        """Return the all_to_all of `blocks`: block i of each process goes to process i of its group."""
        attributes = {
            "split_dimension": 0,
            "concat_dimension": 0,
            "split_count": self.size,
            "replica_groups": self.groups,
        }
        if self.channel:
            attributes["channel_handle"] = ChannelHandleAttr(self.channel, 1)
        return builder.op("stablehlo.all_to_all", [blocks], [blocks.type], attributes).results[0]


def _exchange_of(op: Op, grid: ProcessGrid) -> _Exchange:
    """Return the groups and channel of `op`; CompileError for invalid operands or attributes."""
    config = op["backend_config"]
    entries = config.entries if isinstance(config, DictAttr) else {}
    groups, channel = entries.get("replica_groups"), entries.get("channel_id")
    if not isinstance(groups, DenseAttr) or groups.array.ndim != 2:
        raise _refused(op, "backend_config must have replica_groups, a matrix of processes")
    number = channel.value if isinstance(channel, IntegerAttr) else 0
    everyone = np.arange(grid.num_partitions if number else grid.num_replicas)[np.newaxis]
    exchange = _Exchange(groups.array if groups.array.size else everyone, number)
    types = [value.type for value in op.operands]
    tensors = [type for type in types if isinstance(type, TensorType) and type.is_static]
    if len(types) != 6 or len(tensors) != 6 or len(op.results) != 1 or op.result.type is not types[1]:
        raise _refused(
            op,
            "it must take an operand, an output and four vectors of static shapes, and return the output",
        )
    operand, output, *vectors = tensors
    if not operand.rank or operand.with_shape(()) != output.with_shape(()) or operand.shape[1:] != output.shape[1:]:
        raise _refused(op, f"rows of operand and output must have equal types, got {operand} and {output}")
    count = vectors[0].static_shape[0] if vectors[0].rank == 1 else -1
    if count < 1 or count % exchange.size or any(vector.shape != (count,) for vector in vectors):
        raise _refused(op, f"offsets and sizes must be vectors of a multiple of {exchange.size} integers")
    return exchange


def _refused(op: Op, text: str) -> CompileError:
    return CompileError(Diagnostic(op.location, f"{TARGET}: {text}", op.name))


def _exchanged(op: Op, builder: OpBuilder, exchange: _Exchange) -> Value:
    builder.index_type = I64  # the rows of all processes may exceed an i32
    operand, output, *vectors = op.operands
    rows, *inner = operand.tensor.static_shape
    # Every process receives all rows and selects its own, since their number is dynamic.
    shape = (exchange.size, rows, *inner)
    copies = builder.one(
        "broadcast_in_dim", [operand], operand.tensor.with_shape(shape), broadcast_dimensions=range(1, len(shape))
    )
    everything = exchange.between(builder, builder.reshape(copies, (exchange.size * rows, *inner)))
    vectors = [builder.convert(vector, TensorType(vector.tensor.shape, I64)) for vector in vectors[:3]]
    starts, sizes, places = (exchange.between(builder, vector) for vector in vectors)
    source = _sources(builder, starts, sizes, places, output.tensor.static_shape[0], exchange.size, rows)
    if not prod(everything.tensor.static_shape):
        return output
    numbers = GatherDimensionNumbersAttr(
        offset_dims=tuple(range(1, len(inner) + 1)), collapsed_slice_dims=(0,), start_index_map=(0,), index_vector_dim=1
    )
    picked = builder.one(
        "gather",
        [everything, source],
        output.type,
        dimension_numbers=numbers,
        slice_sizes=np.array((1, *inner), np.int64),
    )  # indices beyond are clamped
    is_sent = builder.compare(source, builder.splat(_NOWHERE, source.tensor), "GT")
    mask = builder.spread(is_sent, output.tensor.static_shape, 0)
    return builder.select(mask, picked, output)


def _sources(
    builder: OpBuilder, starts: Value, sizes: Value, places: Value, count: int, processes: int, rows: int
) -> Value:
    """Return for each of `count` output rows its row in the concatenation of all processes' rows, or -1."""
    segments = starts.tensor.static_shape[0]
    table = (count, segments)
    first = np.repeat(np.arange(processes, dtype=np.int64) * rows, segments // processes)
    begins, ends = (builder.spread(each, table, 1) for each in (places, builder.binary("add", places, sizes)))
    shift = builder.binary("subtract", builder.binary("add", starts, builder.constant(first)), places)
    row = builder.iota(table, 0)
    is_inside = builder.binary("and", builder.compare(row, begins, "GE"), builder.compare(row, ends, "LT"))
    moved = builder.binary("add", row, builder.spread(shift, table, 1))
    chosen = builder.select(is_inside, moved, builder.splat(_NOWHERE, moved.tensor))
    return builder.reduce("stablehlo.maximum", chosen, builder.index(_NOWHERE), (1,))
