"""Programs of the builder on MPI ranks: the client runs its computations as this rank of the grid."""

import numpy as np
import pytest

from collectives.grid import ProcessGrid
from spmd.builder import Client, ComputationBuilder, ReplicaGroup, Shape

pytestmark = pytest.mark.mpi


def test_the_client_runs_this_ranks_part_of_the_collectives() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    size, rank = world.size, world.rank
    client = Client(ProcessGrid(num_replicas=size))
    add = ComputationBuilder(client, "add")
    add.Add(*(add.Parameter(number, Shape("f32[]"), f"p{number}") for number in range(2)))
    total = add.Build()

    builder = ComputationBuilder(client, "collectives")
    x = builder.Parameter(0, Shape.array_shape("f32", [size]), "x")
    backwards = [ReplicaGroup(list(reversed(range(size))))]
    results = [
        builder.AllReduce(x, total),
        builder.AllGather(builder.Reshape(builder.ReplicaId(), [], [1]), 0, size, backwards),
        builder.AllToAll(x, 0, 0, size),
        builder.ReduceScatter(x, total, 0, size),
        builder.CollectivePermute(x, [(source, (source + 1) % size) for source in range(size)]),
    ]
    builder.Tuple(results)
    own_array = np.arange(size, dtype=np.float32) + 100 * rank
    got = client.ExecuteAndTransfer(builder.Build(), [client.TransferToServer(own_array)]).value()

    everyone = np.arange(size, dtype=np.float32) + 100 * np.arange(size, dtype=np.float32)[:, None]
    expected = [
        everyone.sum(0),
        np.arange(size, dtype=np.uint32)[::-1],
        everyone[:, rank],
        everyone.sum(0)[rank : rank + 1],
        everyone[(rank - 1) % size],
    ]
    for one, two in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, two, strict=True)
