"""`interpreter.run_parallel`: functions of the module as the processes of a grid.

Source: StableHLO's interpreter dialect. Rows of `programs` are replicas, columns partitions; inputs and results are in
process order; `infeed` names functions whose results the processes read, in order.

A stacked grid is one function, called by `spmd.run_fed` if its processes read an infeed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from collectives.communicator import Communicator
from collectives.grid import ProcessGrid
from collectives.threads import run
from spmd.backends.custom_calls import target
from spmd.backends.kernels import Context, Kernel, Program, kernel
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Op
from spmd.runtime.endpoints import connect, endpoints
from spmd.runtime.process import Process
from spmd.runtime.world import ranks, under_mpi
from spmd.support.arrays import Array, Results


@kernel("interpreter.run_parallel")
def run_parallel(op: Op, context: Context) -> Kernel:
    """Run the processes on threads, or, if MPI has as many ranks as the grid processes, one per rank."""
    table = op["programs"]
    if not table or not table[0] or any(len(row) != len(table[0]) for row in table):
        raise CompileError(Diagnostic(op.location, "programs must be nonempty rows of equal length", op.name))
    grid = ProcessGrid(len(table), len(table[0]))
    processes = context.on_grid(grid)
    symbols = [_name(symbol) for row in table for symbol in row]
    functions = [processes.lookup(symbol, op) for symbol in symbols]
    programs = [processes.function(symbol, op) for symbol in symbols]
    counts = [len(function.type.inputs) for function in functions]
    if sum(counts) != len(op.operands) or sum(len(f.type.results) for f in functions) != len(op.results):
        text = f"the programs take {sum(counts)} inputs, got {len(op.operands)}"
        raise CompileError(Diagnostic(op.location, text, op.name))
    ends = [endpoints(context.module, symbol) for symbol in symbols]
    sends, receives = [end[0] for end in ends], [end[1] for end in ends]
    feeds = [context.function(_name(symbol), op) for symbol in op.attributes.get("infeed") or ()]
    single = len(op.results) == 1

    def call(process: Process, *values: Array) -> Results:
        arguments = _split(values, counts)
        feed = _Feed(process, feeds)

        def body(communicator: Communicator) -> tuple[Array, ...]:
            me = Process(grid, communicator, infeed=feed, outfeed=process.outfeed)
            connect(me, sends, receives)
            return programs[me.rank](me, *arguments[me.rank])

        ranks = _ranks(grid)
        what = f"the results of {op.name} at {op.location}"
        parts = run(grid.size, body) if ranks is None else ranks.exchange_results(body(ranks), what)
        results = tuple([value for part in parts for value in part])
        return results[0] if single else results

    return Kernel(call, needs_process=True, owned=False)


@target("spmd.run_fed")
def run_fed(op: Op, context: Context) -> Kernel:
    """Run a stacked grid whose processes read the results of other functions."""
    stacked, *feeds = [context.function(_name(symbol), op) for symbol in op["called_computations"]]
    single = len(op.results) == 1

    def call(process: Process, *values: Array) -> Results:
        feed = _Feed(process, feeds)
        results = stacked(Process(process.grid, process.communicator, infeed=feed, outfeed=process.outfeed), *values)
        return results[0] if single else results

    return Kernel(call, needs_process=True, owned=False)


class _Feed:
    """One queue for all processes, as in the reference interpreter."""

    def __init__(self, process: Process, programs: Sequence[Program]) -> None:
        self._process, self._programs = process, iter(programs)
        self._lock = threading.Lock()

    def __call__(self) -> tuple[Array, ...]:
        with self._lock:
            program = next(self._programs)
        return program(self._process)


def _ranks(grid: ProcessGrid) -> Communicator | None:
    if grid.size == 1 or not under_mpi():
        return None
    from mpi4py import MPI  # loaded late: loading it starts MPI

    if grid.size != MPI.COMM_WORLD.size:
        return None
    return ranks()


def _split(values: Sequence[Array], counts: Sequence[int]) -> list[Sequence[Array]]:
    parts, start = [], 0
    for count in counts:
        parts.append(values[start : start + count])
        start += count
    return parts


def _name(symbol: Array) -> str:
    return str(getattr(symbol, "root", symbol))
