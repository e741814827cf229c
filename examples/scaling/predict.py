"""Predict a transformer's training step, laid out five ways, on 8 to 4,096 processes of a cluster.

    python examples/scaling/predict.py

It needs neither the cluster nor MPI: nothing is run. `machine.toml` says how fast a process is, `cluster.toml` how
processes are joined.
"""

import argparse
from collections.abc import Sequence
from math import prod
from pathlib import Path

from ways import NAMES, SIZES, way

import partitioner
import spmd
from collectives.network import Network
from spmd.compiler.pipeline.prepare import prepare
from spmd.predict.machine import Machine, read_machine
from spmd.predict.prediction import Prediction, predict_on
from spmd.predict.report import amount, duration, picture, table
from spmd.predict.topology import read_topology

HERE = Path(__file__).parent
COUNTS = (8, 64, 512, 4096)
SLOWER = 4
HEADER = ("layout", "processes", "a step", "computing", "sent", "memory")


def predictions(
    module: spmd.Module, name: str, processes: int, machine: Machine, networks: Sequence[Network]
) -> list[Prediction]:
    """A step laid out as `name` on each of the networks."""
    layout = way(name, processes)
    laid_out = partitioner.with_shardings(module, layout.mesh, layout.arguments, layout.results)
    prepared = prepare(laid_out, spmd.ProcessGrid(1, processes), backends=("llvm", "numpy"))
    return predict_on(prepared, machine, networks)


def rows(layouts: dict[str, list[Prediction]]) -> list[tuple[str, ...]]:
    """Time, share of computing, bytes that a process sends, and memory of each way on each number of processes."""
    return [
        (
            name,
            f"{each.grid.size:,}",
            duration(each.seconds),
            f"{each.computing / each.seconds:.0%}",
            amount(sum(each.levels.values()) / each.grid.size),
            amount(each.memory.total),
        )
        for name, all_sizes in layouts.items()
        for each in all_sizes
    ]


def curves(layouts: dict[str, list[Prediction]]) -> dict[str, list[float]]:
    """How many times as fast as the fastest way on the fewest processes."""
    first = min(each[0].seconds for each in layouts.values())
    return {name: [first / each.seconds for each in all_sizes] for name, all_sizes in layouts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=COUNTS, help="multiples of eight")
    options = parser.parse_args()
    machine = read_machine(HERE / "machine.toml")
    network = read_topology(HERE / "cluster.toml", machine.rates["folding"])
    module = spmd.load(HERE / "step.mlir")
    fast: dict[str, list[Prediction]] = {name: [] for name in NAMES}
    slow: dict[str, list[Prediction]] = {name: [] for name in NAMES}
    for name in NAMES:
        for processes in options.processes:
            both = predictions(module, name, processes, machine, (network, network.slower(SLOWER)))
            fast[name].append(both[0])
            slow[name].append(both[1])
    parameters = sum(map(prod, SIZES.parameters().values()))
    print(
        f"a step of {parameters / 1e6:.0f} million parameters on {SIZES.batch:,} sequences of {SIZES.sequence:,} tokens"
    )
    for title, predicted in (("as described", fast), (f"with a network {SLOWER} times slower", slow)):
        print(f"\n{title}:\n")
        print("\n".join(table(HEADER, rows(predicted))))
        print()
        print(picture(options.processes, curves(predicted), "times as fast as the best on the fewest processes"))


if __name__ == "__main__":
    main()
