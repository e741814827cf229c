"""Programs of collectives with what the specification says they give: for threads and for MPI ranks.

All run on 4 processes. Operands are integers times the rank, so that every expected value is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import spmd
from spmd.support.arrays import Array


@dataclass(frozen=True)
class CollectiveProgram:
    """`inputs(rank)` are a process's arguments, `expected(rank)` its results."""

    text: str
    grid: spmd.ProcessGrid
    inputs: Callable[[int], tuple[Array, ...]]
    expected: Callable[[int], tuple[Array, ...]]


ADD = """({
    ^bb0(%a: tensor<E>, %b: tensor<E>):
      %s = stablehlo.add %a, %b : tensor<E>
      stablehlo.return %s : tensor<E>
  })"""


def main(signature: str, body: str, element: str = "f32") -> str:
    return f"func.func @main{signature} {{\n{body.replace('ADD', ADD).replace('tensor<E>', f'tensor<{element}>')}\n}}"


def vector(rank: int, dtype: Any = np.float32) -> Array:
    return (np.arange(4) + 10 * rank).astype(dtype)


def total(ranks: list[int], dtype: Any = np.float32) -> Array:
    return np.sum([vector(r, np.float64) for r in ranks], axis=0).astype(dtype)


def one(rank: int) -> tuple[Array, ...]:
    return (vector(rank),)


REPLICAS, PARTITIONS, SQUARE = spmd.ProcessGrid(4, 1), spmd.ProcessGrid(1, 4), spmd.ProcessGrid(2, 2)


def all_reduce(attributes: str) -> str:
    return main(
        "(%x: tensor<4xf32>) -> tensor<4xf32>",
        f'%0 = "stablehlo.all_reduce"(%x) ADD {{{attributes}}} : (tensor<4xf32>) -> tensor<4xf32>\n'
        "return %0 : tensor<4xf32>",
    )


CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"

PROGRAMS: dict[str, CollectiveProgram] = {
    # Strategies: (r, p) is rank 2r + p on the square grid.
    "cross_replica": CollectiveProgram(
        all_reduce("replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"), SQUARE, one,
        lambda r: (total([r % 2, r % 2 + 2]),),
    ),
    "cross_replica_and_partition": CollectiveProgram(
        all_reduce(f"replica_groups = dense<[[0], [1]]> : tensor<2x1xi64>, {CHANNEL}"), SQUARE, one,
        lambda r: (total([r // 2 * 2, r // 2 * 2 + 1]),),
    ),
    "flattened_ids": CollectiveProgram(
        all_reduce(f"replica_groups = dense<[[0, 3], [1, 2]]> : tensor<2x2xi64>, {CHANNEL}, use_global_device_ids"),
        SQUARE, one, lambda r: (total([0, 3] if r in (0, 3) else [1, 2]),),
    ),
    "no groups: all replicas": CollectiveProgram(
        all_reduce("replica_groups = dense<> : tensor<0x0xi64>"), REPLICAS, one, lambda r: (total([0, 1, 2, 3]),),
    ),
    "ragged groups": CollectiveProgram(
        all_reduce("replica_groups = dense<[[0, 2, 3], [1, -1, -1]]> : tensor<2x3xi64>"), REPLICAS, one,
        lambda r: (total([1]) if r == 1 else total([0, 2, 3]),),
    ),
    "mesh axes": CollectiveProgram(
        all_reduce(
            'replica_groups = #stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = ['
            '#stablehlo.mesh_axis<name = "x", size = 2>, #stablehlo.mesh_axis<name = "y", size = 2>]>, '
            f'axes = [#stablehlo.axis_ref<name = "x">]>, {CHANNEL}, use_global_device_ids'
        ),
        PARTITIONS, one, lambda r: (total([r % 2, r % 2 + 2]),),
    ),
    "sub-axes": CollectiveProgram(
        all_reduce(
            'replica_groups = #stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = ['
            '#stablehlo.mesh_axis<name = "x", size = 4>]>, axes = [#stablehlo.axis_ref<name = "x", '
            f"sub_axis_info = (1)2>]>, {CHANNEL}, use_global_device_ids"
        ),
        PARTITIONS, one, lambda r: (total([r % 2, r % 2 + 2]),),
    ),
    # all_reduce
    "promoted to the region's type": CollectiveProgram(
        main("(%x: tensor<4xbf16>) -> tensor<4xf32>",
             '%0 = "stablehlo.all_reduce"(%x) ADD {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}'
             " : (tensor<4xbf16>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"),
        REPLICAS, lambda r: (vector(r, ml_dtypes.bfloat16),), lambda r: (total([0, 1, 2, 3]),),
    ),
    "variadic": CollectiveProgram(
        main("(%x: tensor<4xf32>, %y: tensor<f32>) -> (tensor<4xf32>, tensor<f32>)",
             '%0:2 = "stablehlo.all_reduce"(%x, %y) ADD {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}'
             " : (tensor<4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<f32>)\n"
             "return %0#0, %0#1 : tensor<4xf32>, tensor<f32>"),
        REPLICAS, lambda r: (vector(r), np.float32(r)), lambda r: (total([0, 1, 2, 3]), np.array(6, np.float32)),
    ),
    "a region that is no monoid, in group order": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> tensor<4xf32>", """
  %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %a : tensor<f32>
      %t = stablehlo.add %s, %b : tensor<f32>
      stablehlo.return %t : tensor<f32>
  }) {replica_groups = dense<[[2, 0, 1, 3]]> : tensor<1x4xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>"""),
        REPLICAS, one, lambda r: (8 * vector(2) + 4 * vector(0) + 2 * vector(1) + vector(3),),
    ),
    "maximum with NaN": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> tensor<4xf32>", """
  %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>"""),
        REPLICAS, lambda r: (np.where(np.arange(4) == r, np.nan, r).astype(np.float32),),
        lambda r: (np.full(4, np.nan, np.float32),),
    ),
    "cross-replica-sum": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> tensor<4xf32>",
             '%0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}'
             " : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"),
        REPLICAS, one, lambda r: (total([0, 1] if r < 2 else [2, 3]),),
    ),
    # What moves data
    "all_gather": CollectiveProgram(
        main("(%x: tensor<2x2xf32>) -> tensor<2x8xf32>",
             '%0 = "stablehlo.all_gather"(%x) {all_gather_dim = 1 : i64, '
             "replica_groups = dense<[[3, 1, 0, 2]]> : tensor<1x4xi64>} : (tensor<2x2xf32>) -> tensor<2x8xf32>\n"
             "return %0 : tensor<2x8xf32>"),
        REPLICAS, lambda r: (vector(r).reshape(2, 2),),
        lambda r: (np.concatenate([vector(s).reshape(2, 2) for s in (3, 1, 0, 2)], 1),),
    ),
    "reduce_scatter": CollectiveProgram(
        main("(%x: tensor<2x4xf32>) -> tensor<2x1xf32>",
             '%0 = "stablehlo.reduce_scatter"(%x) ADD {scatter_dimension = 1 : i64, '
             "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<2x4xf32>) -> tensor<2x1xf32>\n"
             "return %0 : tensor<2x1xf32>"),
        REPLICAS, lambda r: (np.stack([vector(r), vector(r)]),),
        lambda r: (np.stack([total([0, 1, 2, 3])] * 2)[:, r : r + 1],),
    ),
    "all_to_all across partitions": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> tensor<4xf32>",
             '%0 = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64, '
             f"split_count = 4 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, {CHANNEL}}}"
             " : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"),
        PARTITIONS, one, lambda r: (np.array([vector(s)[r] for s in range(4)]),),
    ),
    "collective_permute: a ring, a self send, zeros": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)",
             '%0 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]>'
             f" : tensor<4x2xi64>, {CHANNEL}}} : (tensor<4xf32>) -> tensor<4xf32>\n"
             '%1 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [2, 2]]>'
             f" : tensor<2x2xi64>, {CHANNEL}}} : (tensor<4xf32>) -> tensor<4xf32>\n"
             "return %0, %1 : tensor<4xf32>, tensor<4xf32>"),
        PARTITIONS, one,
        lambda r: (vector((r - 1) % 4), {1: vector(0), 2: vector(2)}.get(r, np.zeros(4, np.float32))),
    ),
    "collective_broadcast, and zeros outside of the groups": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> tensor<4xf32>",
             '%0 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[2, 1]]> : tensor<1x2xi64>}'
             " : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"),
        REPLICAS, one, lambda r: (vector(2) if r in (1, 2) else np.zeros(4, np.float32),),
    ),
    "collective_reduce": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> tensor<4xf32>",
             '%0 = "stablehlo.collective_reduce"(%x) ADD {replica_groups = dense<[[1, 0, 2]]> : tensor<1x3xi64>}'
             " : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"),
        REPLICAS, one, lambda r: (total([0, 1, 2]) if r == 1 else np.zeros(4, np.float32),),
    ),
    "collective_reduce to a root told while running": CollectiveProgram(
        main("(%x: tensor<4xf32>, %r: tensor<1xi32>) -> tensor<4xf32>",
             '%0 = "stablehlo.collective_reduce"(%x, %r) ADD {replica_groups = dense<[[0, 1, 2, 3]]>'
             " : tensor<1x4xi64>, has_dynamic_root} : (tensor<4xf32>, tensor<1xi32>) -> tensor<4xf32>\n"
             "return %0 : tensor<4xf32>"),
        REPLICAS, lambda r: (vector(r), np.array([3], np.int32)),
        lambda r: (total([0, 1, 2, 3]) if r == 3 else np.zeros(4, np.float32),),
    ),
    # Who am I
    "replica_id and partition_id": CollectiveProgram(
        main("() -> (tensor<ui32>, tensor<ui32>)",
             "%0 = stablehlo.replica_id : tensor<ui32>\n%1 = stablehlo.partition_id : tensor<ui32>\n"
             "return %0, %1 : tensor<ui32>, tensor<ui32>"),
        SQUARE, lambda r: (), lambda r: (np.array(r // 2, np.uint32), np.array(r % 2, np.uint32)),
    ),
    # Asynchronously
    "async_start and async_done around other work": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> (tensor<8x2xf32>, tensor<4xf32>)", """
  %m = stablehlo.reshape %x : (tensor<4xf32>) -> tensor<2x2xf32>
  %f = "stablehlo.async_start"(%m) ({
    ^bb0(%a: tensor<2x2xf32>):
      %1 = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<2x2xf32>) -> tensor<8x2xf32>
      stablehlo.return %1 : tensor<8x2xf32>
  }) : (tensor<2x2xf32>) -> !stablehlo.future<tensor<8x2xf32>>
  %y = stablehlo.add %x, %x : tensor<4xf32>
  %z = "stablehlo.all_reduce"(%y) ADD {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
    : (tensor<4xf32>) -> tensor<4xf32>
  %d = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<8x2xf32>>) -> tensor<8x2xf32>
  return %d, %z : tensor<8x2xf32>, tensor<4xf32>"""),
        REPLICAS, one,
        lambda r: (np.concatenate([vector(s).reshape(2, 2) for s in range(4)]), 2 * total([0, 1, 2, 3])),
    ),
    # Channels
    "send and recv with pairs, two in flight": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)", """
  %t = stablehlo.after_all : !stablehlo.token
  %y = stablehlo.add %x, %x : tensor<4xf32>
  %1 = "stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>,
    source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : tensor<4x2xi64>}
    : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
  %2 = "stablehlo.send"(%y, %1) {channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>,
    source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : tensor<4x2xi64>}
    : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
  %3:2 = "stablehlo.recv"(%2) {channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>,
    source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : tensor<4x2xi64>}
    : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
  %4:2 = "stablehlo.recv"(%3#1) {channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>,
    source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : tensor<4x2xi64>}
    : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
  return %3#0, %4#0 : tensor<4xf32>, tensor<4xf32>"""),
        PARTITIONS, one, lambda r: (vector((r - 1) % 4), 2 * vector((r - 1) % 4)),
    ),
    "a collective in a loop": CollectiveProgram(
        main("(%x: tensor<4xf32>) -> tensor<4xf32>", """
  %i = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%k = %i, %v = %x) : tensor<i32>, tensor<4xf32>
    cond { %n = stablehlo.constant dense<3> : tensor<i32>
      %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1> } do {
      %o = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %k, %o : tensor<i32>
      %w = "stablehlo.all_reduce"(%v) ADD {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
        : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
    }
  return %r#1 : tensor<4xf32>"""),
        REPLICAS, one, lambda r: (16 * total([0, 1, 2, 3]),),
    ),
}  # fmt: skip


def _transposed() -> CollectiveProgram:
    """An operand that lies in memory in another order than its elements, and dies in the collective."""
    text = main("(%x: tensor<4x2xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>)", """
  %y = stablehlo.add %x, %x : tensor<4x2xf32>
  %t = stablehlo.transpose %y, dims = [1, 0] : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %p = stablehlo.negate %t : tensor<2x4xf32>
  %0 = "stablehlo.all_to_all"(%p) {split_dimension = 1 : i64, concat_dimension = 1 : i64, split_count = 4 : i64,
    replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %q = stablehlo.abs %t : tensor<2x4xf32>
  %1 = "stablehlo.collective_permute"(%q) {source_target_pairs = dense<[[0, 1], [1, 0], [2, 3], [3, 2]]>
    : tensor<4x2xi64>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %c = stablehlo.exponential %t : tensor<2x4xf32>
  %d = stablehlo.subtract %c, %c : tensor<2x4xf32>
  %e = stablehlo.add %d, %t : tensor<2x4xf32>
  %2 = "stablehlo.all_reduce"(%e) ADD {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
    : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0, %1, %2 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>""")  # fmt: skip

    def operand(rank: int) -> Array:
        return (np.arange(8).reshape(4, 2) + 10 * rank).astype(np.float32) / 8

    def expected(rank: int) -> tuple[Array, ...]:
        turned = [2 * operand(r).T for r in range(4)]
        exchanged = np.stack([-turned[r][:, rank] for r in range(4)], 1)
        return exchanged, np.abs(turned[rank ^ 1]), np.sum(turned, axis=0)

    return CollectiveProgram(text, REPLICAS, lambda rank: (operand(rank),), expected)


PROGRAMS["operands in another memory order"] = _transposed()
