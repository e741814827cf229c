"""Several Python threads of one rank: programs that communicate run in one at a time."""

import threading

import numpy as np
import pytest

import spmd
from collectives.one_thread import OneThread
from spmd.runtime import world
from tests.clocks import until

pytestmark = pytest.mark.mpi

SUM = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
ALONE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


def executable(text: str) -> spmd.Executable:
    from mpi4py import MPI

    return spmd.compile(spmd.parse(text), spmd.ProcessGrid(MPI.COMM_WORLD.size, 1))


def test_one_after_the_other_is_fine() -> None:
    exe, results = executable(SUM), []
    for _ in range(3):
        thread = threading.Thread(target=lambda: results.append(exe(np.ones(4, np.float32))[0]))
        thread.start()
        thread.join()
        results.append(exe(np.ones(4, np.float32))[0])
    assert all((result == exe.grid.size).all() for result in results)


def test_programs_that_do_not_communicate_run_side_by_side() -> None:
    exe, results = executable(ALONE), []

    def run() -> None:
        results.extend([exe(np.ones(4, np.float32))[0] for _ in range(200)])

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 600 and all((result == 2).all() for result in results)


def test_a_second_thread_at_the_same_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    exe, threads = executable(SUM), OneThread()
    monkeypatch.setattr(exe.process, "threads", threads)
    assert threads.enter(False), "as a thread does that runs a program"
    with pytest.raises(spmd.CollectiveError, match="two threads of this process are in one process group"):
        exe(np.ones(4, np.float32))
    monkeypatch.undo()
    assert (exe(np.ones(4, np.float32))[0] == exe.grid.size).all()


def test_programs_of_all_grids_share_their_ranks() -> None:
    exe = executable(SUM)
    other = spmd.compile(spmd.parse(SUM), spmd.ProcessGrid(1, exe.grid.size))
    assert exe.grid.size == 1 or exe.process.threads is other.process.threads


def test_threads_that_come_first_at_the_same_time_start_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, came, started, processes = world.ranks, [], [], []

    def when_all_came() -> object:
        started.append(threading.current_thread())
        until(lambda: len(came) == 3)
        return ranks()

    exe = executable(SUM)
    exe.process  # noqa: B018
    monkeypatch.setattr(world, "_processes", {})
    monkeypatch.setattr(world, "ranks", when_all_came)

    def ask() -> None:
        came.append(threading.current_thread())
        processes.append(world.process_of(exe.grid))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == 1 and len(processes) == 3 and all(process is processes[0] for process in processes)
