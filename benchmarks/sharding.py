"""``python -m benchmarks sharding``: predicted times of searched layouts and of the five of examples/scaling.

For each number of processes the training step of examples/scaling is sharded in five ways by hand, each over its own
mesh, and by ``spmd.autoshard`` over ``data`` and ``model`` axes: once without a memory limit, and once limited to 1 %
more than the best of the five uses. Nothing is run.
"""

import argparse
import sys
import time
from pathlib import Path

import partitioner
import spmd
from spmd.compiler.pipeline.prepare import prepare
from spmd.predict.machine import read_machine
from spmd.predict.prediction import predict
from spmd.predict.report import amount, duration, table
from spmd.predict.topology import read_topology

SCALING = Path(__file__).parents[1] / "examples" / "scaling"
COUNTS, NODE = (8, 64, 512, 4096), 8


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks sharding", description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=COUNTS, help="multiples of eight")
    options = parser.parse_args(argv)
    sys.path.append(str(SCALING))
    from ways import NAMES, way  # the example's own module

    machine = read_machine(SCALING / "machine.toml")
    network = read_topology(SCALING / "cluster.toml", machine.rates["folding"])
    module = spmd.load(SCALING / "step.mlir")
    rows = []
    for count in options.processes:
        found = []
        for name in NAMES:
            layout = way(name, count)
            laid_out = partitioner.with_shardings(module, layout.mesh, layout.arguments, layout.results)
            prediction = predict(prepare(laid_out, spmd.ProcessGrid(1, count)), machine, network)
            found.append((name, prediction.seconds, prediction.memory.total, ""))
        best = min(found, key=lambda row: row[1])
        mesh = {"data": count // NODE, "model": NODE} if count > NODE else {"data": count}
        for name, memory in (("searched", None), ("searched, as small", 1.01 * best[2])):
            began = time.process_time()
            try:
                _, plan = spmd.autoshard(module, mesh=mesh, memory=memory, machine=machine, topology=network)
            except spmd.CompileError:
                rows.append((name, f"{count:,}", "no room", "", "", ""))
                continue
            took = f"{time.process_time() - began:.0f} s"
            found.append((name, plan.seconds, plan.memory.total, took))
        for name, seconds, memory, took in found:
            share = f"{seconds / best[1]:.3f}"
            rows.append((name, f"{count:,}", duration(seconds), share, amount(memory), took))
    header = ("layout", "processes", "a step", "of the best of five", "memory", "searched for")
    print("\n".join(table(header, rows)))
    return 0
