"""What ranks do in ``test_waiting.py``: `collectives` alone unless a case needs more."""

import sys
import threading
import time

import numpy as np
from mpi4py import MPI

from collectives import ADD, AllReduce
from collectives.mpi import MpiCommunicator
from collectives.mpi.watch import Watcher
from tests.clocks import WATCHDOG_SECONDS

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
LONG = 600.0
#: More than a rank that waits for others takes to find that they have ended.
PATIENCE = 4.0
X = np.ones(8, np.float32)


def say(line: str) -> None:
    """Prints a line in one piece: those of several ranks do not run into each other."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def total() -> list[float]:
    result: list[float] = MpiCommunicator.world().all_reduce(8, np.float32, where="train.py:7")(X).tolist()
    return result


def one_of_three_is_missing() -> None:
    if RANK != 1:
        total()
    time.sleep(LONG)


def ends_before_the_first_call() -> None:
    if RANK == 1:
        sys.exit(0)
    total()


def ends_amid_the_loop() -> None:
    for step in range(5):
        if step == 3 and RANK == 1:
            sys.exit(0)
        total()


def finalizes_amid_the_loop() -> None:
    """A rank that ends MPI by itself is one that has ended, whatever it does then."""
    for step in range(5):
        if step == 3 and RANK == 1:
            MPI.Finalize()
            time.sleep(LONG)
        total()


def wait_in_a_circle() -> None:
    """Each waits for the next one in the sum of another pair."""
    world = MpiCommunicator.world()
    for pair in ((0, 1), (1, 2), (0, 2)):
        if RANK in pair:
            world.group(pair).barrier()
    first, second = sorted((RANK, (RANK + 1) % 3))
    world.group((first, second)).all_reduce(8, np.float32, where="train.py:11")(X)


def fails_amid_the_loop() -> None:
    world = MpiCommunicator.world()
    for step in range(5):
        if step == 3 and RANK == 1:
            raise ValueError("out of cheese")
        world.barrier()


def fails_in_a_thread() -> None:
    total()

    def work() -> None:
        raise ValueError("out of cheese")

    if RANK == 1:
        threading.Thread(target=work).start()
        time.sleep(LONG)
    total()


def ends_while_others_have_much_to_do() -> None:
    """A rank that took part in all that there was may end long before the others."""
    world = MpiCommunicator.world()
    total()
    request = world.bind_start(_sum(), "train.py:9")(X)
    if RANK:
        request.wait()
    if RANK == SIZE - 1:
        time.sleep(PATIENCE)  # ends are told by then: less could only hide a fault
        request.wait()


def ends_under_a_started_one() -> None:
    """What the others have started, a rank has not that has ended."""
    world = MpiCommunicator.world()
    start = world.bind_start(_sum(), "train.py:9")
    start(X).wait()
    if RANK == 1:
        sys.exit(0)
    start(X).wait()


def a_message_is_too_long() -> None:
    """Calls MPI at once, where `all_reduce` would compare the calls first."""
    MpiCommunicator.world().bind(_sum(3 + RANK), "train.py:7")(np.ones(3 + RANK, np.float32))


def another_shape_at_the_last_batch() -> None:
    import spmd  # late: other cases are about `collectives` alone

    def step(size: int) -> spmd.Executable:
        text = f"""func.func @main(%x: tensor<{size}xf32>) -> tensor<f32> {{
          %0 = stablehlo.constant dense<0.0> : tensor<f32>
          %1 = stablehlo.reduce(%x init: %0) applies stablehlo.add across dimensions = [0]
            : (tensor<{size}xf32>, tensor<f32>) -> tensor<f32>
          %2 = "stablehlo.all_reduce"(%1) ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %s = stablehlo.add %a, %b : tensor<f32>
              stablehlo.return %s : tensor<f32>
          }}) {{replica_groups = dense<[{list(range(SIZE))}]> : tensor<1x{SIZE}xi64>}} : (tensor<f32>) -> tensor<f32>
          return %2 : tensor<f32>
        }}"""
        return spmd.compile(spmd.parse(text, name="step.mlir"), spmd.ProcessGrid(SIZE, 1))

    whole = step(8)
    for _ in range(3):
        whole(X)
    if RANK == 0:
        step(7)(X[:7])
    else:
        whole(X)


def one_saves() -> None:
    from spmd import checkpoint  # late, as above

    if RANK == 0:
        checkpoint.save("/nowhere", 5, {"x": X})
    time.sleep(LONG)


def _sum(size: int = 8) -> AllReduce:
    return AllReduce((size,), np.dtype(np.float32), ADD)


if __name__ == "__main__":
    Watcher.answer_seconds = WATCHDOG_SECONDS  # all of them reply, however late
    MPI.COMM_WORLD.Barrier()  # the ranks are there; what is timed begins
    globals()[sys.argv[1]]()
    say(f"rank {RANK} is through")
