"""XlaBuilder operation semantics: the worked examples of operations between replicas, streams and channels."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from collectives.grid import ProcessGrid
from spmd.builder import ChannelHandle, RandomAlgorithm, ReplicaGroup, Shape, XlaBuilder, XlaOp, ops
from tests.builder.support import build, equal, evaluate, f32, run_replicas, scalars, sound

ADD = scalars("add", ["f32", "f32"], ops.Add)


def test_all_gather() -> None:
    x, y = f32([1.0, 2.5]), f32([3.0, 5.25])
    built = build(lambda _, x: ops.AllGather(x, 0, 2), x)
    for got in run_replicas(built, [x], [y]):
        equal(got, [1.0, 2.5, 3.0, 5.25])


def test_all_gather_in_groups() -> None:
    """replica_groups {0, 2}, {1, 3}: 0 with 2, 1 with 3, in that order."""
    built = build(lambda _, x: ops.AllGather(x, 0, 2, [[0, 2], [1, 3]]), f32([0]))
    got = run_replicas(built, *([f32([n])] for n in range(4)))
    equal(np.stack(got), [[0, 2], [1, 3], [0, 2], [1, 3]])
    backwards = build(lambda _, x: ops.AllGather(x, 0, 2, [[2, 0], [3, 1]]), f32([0]))
    got = run_replicas(backwards, *([f32([n])] for n in range(4)))
    equal(np.stack(got), [[2, 0], [3, 1], [2, 0], [3, 1]])


def test_all_reduce() -> None:
    x, y = f32([1.0, 2.5]), f32([3.0, 5.25])
    for got in run_replicas(build(lambda _, x: ops.AllReduce(x, ADD), x), [x], [y]):
        equal(got, [4.0, 7.75])
    for got in run_replicas(build(lambda _, x: ops.CrossReplicaSum(x), x), [x], [y]):
        equal(got, [4.0, 7.75])


def test_all_reduce_of_a_tuple() -> None:
    x, y = f32([1.0, 2.5]), f32([[7.0]])
    built = build(lambda _, x, y: ops.AllReduce(ops.Tuple([x, y]), ADD), x, y)
    for got in run_replicas(built, [x, y], [f32([3.0, 5.25]), f32([[1.0]])]):
        equal(got, [f32([4.0, 7.75]), f32([[8.0]])])


def test_all_reduce_in_groups() -> None:
    built = build(lambda _, x: ops.AllReduce(x, ADD, [ReplicaGroup([0, 2]), ReplicaGroup([1, 3])]), f32(0))
    equal(run_replicas(built, *([f32(10**n)] for n in range(4))), [101, 1010, 101, 1010])


def test_all_to_all() -> None:
    """The program of the document: f32[4,16] split along 1 and joined along 0 gives f32[16,4] on each of 4 cores."""
    b = XlaBuilder("alltoall")
    x = b.Parameter(0, Shape("f32[4,16]"), "x")
    ops.AllToAll(x, split_dimension=1, concat_dimension=0, split_count=4)
    built = b.Build()
    assert built.program_shape().result_shape == Shape("f32[16,4]")
    inputs = [np.arange(64, dtype=np.float32).reshape(4, 16) + 100 * n for n in range(4)]
    for replica, got in enumerate(run_replicas(built, *([value] for value in inputs))):
        equal(got, np.concatenate([value[:, 4 * replica : 4 * replica + 4] for value in inputs]))


def test_all_to_all_in_the_order_of_the_groups() -> None:
    """replica_groups {1,2,3}, {4,5,0}: blocks are joined in the order 1, 2, 3, and 4, 5, 0."""
    groups = [[1, 2, 3], [4, 5, 0]]
    built = build(lambda _, x: ops.AllToAll(x, 0, 0, 3, groups), f32([0, 0, 0]))
    inputs = [f32([10 * n, 10 * n + 1, 10 * n + 2]) for n in range(6)]
    got = run_replicas(built, *([value] for value in inputs))
    for group in groups:
        for place, replica in enumerate(group):
            equal(got[replica], [10 * other + place for other in group])


def test_collective_permute() -> None:
    built = build(lambda _, x: ops.CollectivePermute(x, [(0, 1), (1, 2)]), f32([0, 0]))
    got = run_replicas(built, *([f32([n, n + 0.5])] for n in (1, 2, 3)))
    equal(np.stack(got), [[0, 0], [1, 1.5], [2, 2.5]])


def test_reduce_scatter() -> None:
    x, y = f32([1.0, 2.25]), f32([3.0, 5.25])
    got = run_replicas(build(lambda _, x: ops.ReduceScatter(x, ADD, 0, 2), x), [x], [y])
    equal(np.stack(got), [[4.0], [7.5]])


def test_reduce_scatter_of_a_tuple_in_groups() -> None:
    def body(_: XlaBuilder, x: XlaOp) -> XlaOp:
        return ops.ReduceScatter(ops.Tuple([x, x * 2]), ADD, 0, 2, [[0, 2], [1, 3]])

    built = build(body, f32([0, 0]))
    got = run_replicas(built, *([f32([n, 10 * n])] for n in range(4)))
    equal(np.array(got)[:, 0, 0], [2, 4, 20, 40])
    equal(np.array(got)[:, 1, 0], [4, 8, 40, 80])


def test_replica_id() -> None:
    got = run_replicas(build(lambda b: b.ReplicaId()), *([()] * 3))
    assert got[0].dtype == np.uint32
    equal(got, [0, 1, 2])


def test_partition_id() -> None:
    module = sound(build(lambda b: b.PartitionId()))
    got = spmd.run_parallel(module, ProcessGrid(num_partitions=2))
    equal([int(result[0]) for result in got], [0, 1])


def test_after_all_joins_tokens() -> None:
    built = build(lambda b, x: ops.Tuple([x, ops.AfterAll([b.CreateToken(), b.CreateToken()])]), f32(1))
    assert str(built.program_shape().result_shape) == "(f32[], token[])"
    sound(built)


def test_infeeds_have_a_total_order() -> None:
    """The two loops of the document: the second begins where the first ended, and so do their infeeds."""
    state = Shape("(s32[], f32[])")
    condition = build(lambda _, t: ops.Lt(t[0], 2), state, name="condition")

    def step(b: XlaBuilder, t: XlaOp) -> XlaOp:
        return ops.Tuple([t[0] + 1, t[1] * 10.0 + b.Infeed(Shape("f32[]"))])

    body = build(step, state, name="body")

    def program(b: XlaBuilder) -> XlaOp:
        result1 = ops.While(condition, body, ops.Tuple([b.ConstantR0(0), b.ConstantR0(0.0)]))
        return ops.While(condition, body, ops.Tuple([b.ConstantR0(0), result1[1]]))[1]

    module = sound(build(program))
    grid = ProcessGrid()
    (got,) = spmd.run_parallel(module, grid, infeed=[[(f32(n),) for n in (1, 2, 3, 4)]])
    equal(got[0], 1234)


def test_an_infeed_of_an_empty_tuple_reads_nothing() -> None:
    equal(evaluate(lambda b, x: ops.Tuple([b.Infeed(Shape.tuple_shape([])), x])[1], f32(3)), 3)


def test_infeed_and_outfeed_of_tuples() -> None:
    shape = Shape("(f32[2], s32[])")

    def program(b: XlaBuilder) -> XlaOp:
        item = b.Infeed(shape)
        b.Outfeed(ops.Tuple([item[1], item[0]]))
        return item[0] * 2.0

    built, written = build(program), []
    for module in (sound(built), spmd.parse(built.as_hlo_text())):
        written.clear()
        item = f32([1, 2]), np.int32(7)
        (got,) = spmd.run_parallel(module, ProcessGrid(), infeed=[[item]], outfeed=[written])
        equal(got[0], [2, 4])
        equal(written[0], [np.int32(7), f32([1, 2])])


@pytest.mark.parametrize("handle", [ChannelHandle(1), 1], ids=["synchronous", "with contexts"])
def test_send_and_recv(handle: ChannelHandle | int) -> None:
    def sender(b: XlaBuilder, x: XlaOp) -> XlaOp:
        context = ops.Send(x, handle, [(0, 1)])
        if isinstance(handle, int):
            assert context.shape.brief == "(f32[3], u32[])"
            ops.SendDone(context)
        return x

    def receiver(b: XlaBuilder, x: XlaOp) -> XlaOp:
        got = b.Recv(Shape("f32[3]"), handle, [(0, 1)])
        if isinstance(handle, int):
            assert got.shape.brief == "(f32[3], u32[])"
            got = ops.RecvDone(got)
        return got + x

    x, y = f32([1, 2, 3]), f32([10, 20, 30])
    programs = [build(sender, x), build(receiver, x)]
    for modules in ([sound(p) for p in programs], [spmd.parse(p.as_hlo_text()) for p in programs]):
        got = spmd.run_parallel([[module] for module in modules], ProcessGrid(num_replicas=2), [[x], [y]])
        equal(got[1][0], [11, 22, 33])


def test_random_bits_follow_from_the_state() -> None:
    for name, size in (("RNG_DEFAULT", 2), ("RNG_THREE_FRY", 2), ("RNG_PHILOX", 3)):
        state = np.arange(1, size + 1, dtype=np.uint64)

        def generate(_: XlaBuilder, s: XlaOp, name: str = name) -> XlaOp:
            return ops.RngBitGenerator(RandomAlgorithm[name], s, Shape("u32[1000]"))

        after, bits = evaluate(generate, state)
        again = evaluate(generate, state)
        equal((after, bits), list(again))
        assert after.shape == state.shape
        assert (after != state).any()
        assert abs(np.unpackbits(bits.view(np.uint8)).mean() - 0.5) < 0.02


@pytest.mark.usefixtures("seeded")
def test_random_numbers_have_their_distribution() -> None:
    shape = Shape("f32[20000]")
    uniform = evaluate(lambda b: b.RngUniform(b.ConstantR0(2.0), b.ConstantR0(5.0), shape), hlo=False)
    assert uniform.min() >= 2
    assert uniform.max() < 5
    assert abs(uniform.mean() - 3.5) < 0.05
    normal = evaluate(lambda b: b.RngNormal(b.ConstantR0(1.0), b.ConstantR0(3.0), shape), hlo=False)
    assert abs(normal.mean() - 1) < 0.1
    assert abs(normal.std() - 3) < 0.1
    coins = evaluate(lambda b: b.RngBernoulli(b.ConstantR0(0.25), Shape("u32[20000]")), hlo=False)
    assert coins.dtype == np.uint32
    assert set(coins.tolist()) == {0, 1}
    assert abs(coins.mean() - 0.25) < 0.02


def test_groups_of_replicas_with_a_channel_are_joined_over_partitions() -> None:
    """On 1x2 the group {0} is of two processes: as many shards, which only the grid tells."""
    x = f32([1.0, 2.0])
    gathered = build(lambda _, x: ops.AllGather(x, 0, 2, [[0]], channel_id=1), x)
    scattered = build(lambda _, x: ops.ReduceScatter(x, ADD, 0, 2, [[0]], channel_id=1), x)
    grid = ProcessGrid(1, 2)
    for built, want in ((gathered, [[1, 2, 3, 4]] * 2), (scattered, [[4], [6]])):
        got = spmd.run_parallel(sound(built), grid, [(x,), (f32([3.0, 4.0]),)])
        np.testing.assert_array_equal([result for (result,) in got], want)
