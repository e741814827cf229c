"""Programs that are queued on ranks, and what else communicates meanwhile; run as a script, with spmd as JAX's client.

On process 0 a program of the queue is under way until another thread is about to communicate, on the others it runs
at once: whatever does not wait for the queue meets another collective there.
"""

import sys
import tempfile
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from mpi4py import MPI

import spmd.jax
from spmd.runtime import world

FLAG = threading.Event()
THREADS = []


def begun() -> None:
    """The main thread is about to communicate."""
    if threading.current_thread() is threading.main_thread():
        FLAG.set()


world.add_queue(begun)  # before the client's own, which waits


def wait(value):
    assert FLAG.wait(60)
    THREADS.append(threading.current_thread())
    return value + 0 * value  # programs, which the one under way does not wait for


def sums(x):
    """The sum over all processes, once the flag is set."""
    return jax.lax.psum(jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x), "x")


@spmd.jax.jit
def product(x):
    return jax.lax.psum(x, "processes") * 10


def main(is_threaded):
    rank, count, local = jax.process_index(), jax.process_count(), len(jax.local_devices())
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    slow = jax.jit(jax.shard_map(sums, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=False))
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("x")), np.full(4 * local, rank + 1, np.float32))
    own = np.full(4, rank + 1, np.float32)
    folder = MPI.COMM_WORLD.bcast(tempfile.mkdtemp() if rank == 0 else None)
    total = count * (count + 1) / 2

    def call():
        return product(own)[0]

    def save():
        spmd.checkpoint.save(Path(folder) / "of_ranks", 1, {"w": own}, per_rank=True)
        return 10 * total

    def save_among():
        spmd.checkpoint.save(Path(folder) / "of_a_group", 1, {"w": own}, per_rank=True, communicator=MPI.COMM_WORLD)
        return 10 * total

    def meet():
        return 10 * world.ranks().allgather_object(total)[0]

    def own_call():
        """A collective on a communicator of the user's own needs to wait for nothing."""
        result = 10 * MPI.COMM_WORLD.allreduce(rank + 1)
        FLAG.set()
        return result

    acts = (call, save, save_among, meet, own_call)
    FLAG.set()
    slow(x).block_until_ready()
    [act() for act in (call, meet)]  # what is compiled meanwhile might wait for the queue
    for act in acts:
        THREADS.clear()
        if rank == 0 and is_threaded:
            FLAG.clear()
        y = slow(x)
        found = act()
        for place in range(local):
            np.testing.assert_array_equal(y.addressable_data(place), [local * total] * 4)
        assert found == 10 * total, (act, found)
        assert (THREADS[0] is not threading.main_thread()) == is_threaded
    print("in order", flush=True)


if __name__ == "__main__":
    jnp.ones(1).block_until_ready()  # starts the client
    main(sys.argv[1] == "threads")
