"""Compare each collective of the communicator with the bare mpi4py call on the same buffers, alternating.

``--ranks N`` (2) starts the ranks when the command was not started under mpirun. "bound" is the communicator's call
with ``out=``, as the executor makes it when an operand is dead; "new" allocates its result; "checked" has checking on.
Limits: at most 1.10 times the bare call from 64 KiB up, at most 3 us above it below.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import duration, print_table, write_json

LARGE = 1 << 16
MOST_RATIO = 1.10
MOST_ABOVE = 3e-6
ROUND_SECONDS = 2e-3
HEADER = ("collective", "bytes", "mpi4py", "bound", "ratio", "above", "new", "checked", "")

Call = Callable[[], object]


@dataclass(frozen=True)
class CollectiveResult:
    """One collective at one size: medians in seconds, and the median over rounds of bound / bare."""

    collective: str
    bytes: int
    bare: float
    bound: float
    ratio: float
    above: float
    new: float
    checked: float

    @property
    def within(self) -> bool:
        return self.ratio <= MOST_RATIO if self.bytes >= LARGE else self.above <= MOST_ABOVE

    def row(self) -> tuple[str, ...]:
        return (
            self.collective, _size(self.bytes), duration(self.bare), duration(self.bound), f"{self.ratio:.3f}",
            f"{self.above * 1e6:+.2f} us", f"{self.new / self.bare:.2f}", f"{self.checked / self.bare:.2f}",
            "" if self.within else "over",
        )  # fmt: skip


def run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks collectives", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="ranks to start if there are none (default: %(default)s)")
    parser.add_argument("--largest", type=int, default=64, help="largest operand in MiB (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=31, help="rounds of each size (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=Path("collectives.json"), help="results (default: %(default)s)")
    options = parser.parse_args(argv)
    from spmd.runtime.world import under_mpi

    if not under_mpi():
        command = [sys.executable, "-m", "benchmarks", "collectives", *argv]
        return subprocess.call([sys.executable, "-m", "launch", "launch", "-n", str(options.ranks), "--", *command])
    from collectives.mpi import MpiCommunicator

    world = MpiCommunicator.world()
    results = []
    size = 4
    while size <= options.largest << 20:
        results += [measure(world, name, size, options.rounds) for name in CONTESTANTS]
        size *= 4
    results.sort(key=lambda result: list(CONTESTANTS).index(result.collective))
    if world.rank == 0:
        print_table(HEADER, [result.row() for result in results])
        write_json(options.json, {"ranks": world.size, "collectives": results})
        over = sum(not result.within for result in results)
        print(f"{len(results) - over} of {len(results)} within the bars on {world.size} ranks")
    return 0


def measure(world: Any, name: str, size: int, rounds: int) -> CollectiveResult:
    """Time one collective whose larger buffer has about ``size`` bytes."""
    bare, bound, new, checked = CONTESTANTS[name](world, size)
    for call in (bare, bound, new, checked):
        call()
    repeats = np.array(max(1, min(1000, int(ROUND_SECONDS / _time(world, bare, 3)))))
    world.comm.Bcast(repeats)
    # Calls that allocate their results disturb the caches: they are measured separately.
    plain, ours = _in_turns(world, (bare, bound), int(repeats), rounds)
    fresh, careful = (_in_turns(world, (call,), int(repeats), rounds)[0] for call in (new, checked))
    ratio, above = float(np.median(ours / plain)), float(np.median(ours - plain))
    medians = [float(np.median(seconds)) for seconds in (plain, ours, fresh, careful)]
    return CollectiveResult(name, size, medians[0], medians[1], ratio, above, medians[2], medians[3])


def _in_turns(world: Any, calls: Sequence[Call], repeats: int, rounds: int) -> list[Any]:
    """Return the seconds of each call, an array over rounds; the order alternates between rounds."""
    seconds = np.empty((len(calls), max(rounds, 5)))
    for index in range(seconds.shape[1]):
        for which in range(len(calls))[:: 1 if index % 2 else -1]:
            seconds[which, index] = _time(world, calls[which], repeats)
    return list(seconds)


def _time(world: Any, call: Call, repeats: int) -> float:
    """Return the seconds of one call on the slowest rank."""
    world.comm.Barrier()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return float(world.comm.allreduce((time.perf_counter() - start) / repeats, op=_max()))


def _max() -> Any:
    from mpi4py import MPI

    return MPI.MAX


def _bound(world: Any, bind: Callable[[Any], Any], array: Any, out: Any) -> tuple[Call, Call, Call]:
    call, checked = bind(world), bind(world.checked())
    return (lambda: call(array, out)), (lambda: call(array)), (lambda: checked(array, out))


def _all_reduce(world: Any, size: int) -> tuple[Call, ...]:
    x, y = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
    ours = _bound(world, lambda c: c.all_reduce(x.shape, x.dtype), x, y)
    return (lambda: world.comm.Allreduce(x, y)), *ours


def _all_gather(world: Any, size: int) -> tuple[Call, ...]:
    part = max(1, size // 4 // world.size)
    x, y = np.ones(part, np.float32), np.empty(part * world.size, np.float32)
    return (lambda: world.comm.Allgather(x, y)), *_bound(world, lambda c: c.all_gather(x.shape, x.dtype, 0), x, y)


def _reduce_scatter(world: Any, size: int) -> tuple[Call, ...]:
    part = max(1, size // 4 // world.size)
    x, y = np.ones(part * world.size, np.float32), np.empty(part, np.float32)
    ours = _bound(world, lambda c: c.reduce_scatter(x.shape, x.dtype, 0), x, y)
    return (lambda: world.comm.Reduce_scatter_block(x, y)), *ours


def _all_to_all(world: Any, size: int) -> tuple[Call, ...]:
    count = max(1, size // 4 // world.size) * world.size
    x, y = np.ones(count, np.float32), np.empty(count, np.float32)
    ours = _bound(world, lambda c: c.all_to_all(x.shape, x.dtype, 0, 0, world.size), x, y)
    return (lambda: world.comm.Alltoall(x, y)), *ours


def _collective_permute(world: Any, size: int) -> tuple[Call, ...]:
    x, y = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
    n, rank = world.size, world.rank
    pairs = [(i, (i + 1) % n) for i in range(n)]
    ours = _bound(world, lambda c: c.collective_permute(x.shape, x.dtype, pairs), x, y)
    return (lambda: world.comm.Sendrecv(x, (rank + 1) % n, 0, y, (rank - 1) % n, 0)), *ours


def _collective_broadcast(world: Any, size: int) -> tuple[Call, ...]:
    x = np.ones(size // 4, np.float32)
    return (lambda: world.comm.Bcast(x, 0)), *_bound(world, lambda c: c.collective_broadcast(x.shape, x.dtype), x, x)


def _collective_reduce(world: Any, size: int) -> tuple[Call, ...]:
    x, y = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
    ours = _bound(world, lambda c: c.collective_reduce(x.shape, x.dtype), x, y)

    def bare() -> None:
        world.comm.Reduce(x, y, root=0)
        if world.rank:
            y.fill(0)  # the op's result on ranks other than the root

    return bare, *ours


CONTESTANTS: dict[str, Callable[[Any, int], tuple[Call, ...]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "collective_permute": _collective_permute,
    "collective_broadcast": _collective_broadcast,
    "collective_reduce": _collective_reduce,
}


def _size(count: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count >> shift} {unit}"
    return f"{count} B"
