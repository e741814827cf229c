"""Compare the data-parallel step of ``dp2_mlp_train`` on two ranks: spmd, NumPy with mpi4py, and two JAX processes.

spmd and the hand-written step run alternately in the same two ranks, each rank with one thread on its own core; the
order is random in each round, since a step finds the caches that the one before has left. If JAX is installed, the
same step as a JAX function through spmd.jax.jit does, too; its first call (which traces, lowers and compiles) is
printed with JAX's, and so is the overhead of a call of 100 leaves over that of the executable.
With ``--elastic`` all of them run in an elastic job, and the step in spmd.elastic's loop, too.
If mpi4jax is installed, the step compiled by XLA with MPI's collectives runs there as well. JAX itself runs as two
processes with its default CPU collectives: once each on its own core, and once with all cores for both, which leaves
room for its communication threads.
"""

import argparse
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import xla
from benchmarks.harness import Timing, duration, paired_ratio, print_table, write_json
from benchmarks.programs import DEFAULT_FOLDER
from spmd.runtime.thread_share import THREAD_VARIABLES

RANKS = 2
WARM_UP = 5
TOLERANCE = 1e-4
#: Peers that run in the same two ranks as spmd, alternating with it.
PEERS = {
    "spmd.jax": "spmd.jax.jit",
    "spmd.elastic": "spmd.elastic",
    "by hand": "NumPy and mpi4py",
    "mpi4jax": "mpi4jax",
}


def run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks train", description=__doc__)
    parser.add_argument("program", nargs="?", type=Path, default=DEFAULT_FOLDER / "dp2_mlp_train.mlir")
    parser.add_argument("--steps", type=int, default=200, help="measured of each contestant (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks-train.json"), help="default: %(default)s")
    parser.add_argument("--elastic", action="store_true", help="run in an elastic job, with spmd.elastic's loop, too")
    parser.add_argument("--as-rank", choices=("mpi", "jax"), help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--coordinator", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--pin", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.as_rank:
        (_mpi_rank if options.as_rank == "mpi" else _jax_rank)(options)
        return 0
    return _compare(options)


def _compare(options: argparse.Namespace) -> int:
    """Start the ranks, and print what they measured."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder)
        timings = {}
        if xla.is_installed():
            timings["JAX, a core each"] = Timing.of(_run_jax(options, into / "jax.json", pin=True))
        mine = [sys.executable, "-m", "benchmarks", "train", str(options.program), "--steps", str(options.steps)]
        mine += ["--elastic"] * options.elastic
        launch = [sys.executable, "-m", "launch", "launch", "-n", str(RANKS), "--threads", "1", "--bind"]
        launch += [*["--elastic"] * options.elastic, "--"]
        subprocess.run([*launch, *mine, "--as-rank", "mpi", "--into", str(into / "mpi.json")], check=True)
        if xla.is_installed():
            timings["JAX, all cores"] = Timing.of(_run_jax(options, into / "jax.json", pin=False))
        seconds = json.loads((into / "mpi.json").read_text())
        first = json.loads((into / "jax.json").read_text())["first"] if xla.is_installed() else 0.0
    peers = {PEERS[key]: values for key, values in seconds.items() if key in PEERS}
    timings = {"spmd": Timing.of(seconds["spmd"])} | {k: Timing.of(v) for k, v in peers.items()} | timings
    ratios = {name: timings["spmd"].median / timing.median for name, timing in timings.items()}
    ratios |= {name: paired_ratio(seconds["spmd"], values) for name, values in peers.items()}
    rows = [
        (name, duration(timing.median), f"{timing.spread:.0%}", f"{ratios[name]:.2f}")
        for name, timing in timings.items()
    ]
    print_table((options.program.stem, "step", "spread", "spmd/this"), rows)
    if "spmd.jax" in seconds:
        print(f"first call: spmd.jax.jit {duration(seconds['first'])}, JAX {duration(first)}")
        print(f"a call of 100 leaves: spmd.jax.jit takes {duration(seconds['overhead'])} more than the executable")
    write_json(options.json, {"train": timings, "ratios": ratios})
    return 0


def global_arguments(module: Any) -> list[np.ndarray]:
    """Return initial parameters, a batch of images and one-hot targets; the same for all contestants."""
    generator = np.random.default_rng(0)
    shapes = [value.type.shape for value in module.function("main").arguments]
    arrays = [generator.standard_normal(shape) / np.sqrt(shape[0]) for shape in shapes[:-2]]
    arrays.append(generator.uniform(size=shapes[-2]))
    arrays.append(np.eye(shapes[-1][1])[generator.integers(0, shapes[-1][1], shapes[-1][0])])
    return [array.astype(np.float32) for array in arrays]


def _mpi_rank(options: argparse.Namespace) -> None:
    from mpi4py import MPI

    import spmd
    from benchmarks.peers.mlp_train import DataParallelStep

    world = MPI.COMM_WORLD
    module = spmd.load(options.program)
    executable = spmd.compile(module)
    arguments = executable.shard(*global_arguments(module))
    arguments = tuple(np.ascontiguousarray(argument) for argument in arguments)
    by_hand = DataParallelStep(world, list(arguments[:6]))
    _agree(executable(*arguments), by_hand(*arguments))
    steps: dict[str, Any] = {"spmd": lambda: executable(*arguments), "by hand": lambda: by_hand(*arguments)}
    report: dict[str, Any] = {}
    if options.elastic:
        steps["spmd.elastic"] = _looped(executable, arguments, WARM_UP + options.steps)
    if xla.is_installed():
        from_jax = _through_jax()
        start = time.perf_counter()
        trained = from_jax(arguments[:6], *arguments[6:])
        report["first"] = time.perf_counter() - start
        _agree([trained[0], *trained[1]], by_hand(*arguments))
        report["overhead"] = _overhead()
        steps["spmd.jax"] = lambda: from_jax(arguments[:6], *arguments[6:])
        if importlib.util.find_spec("mpi4jax") is not None:
            steps["mpi4jax"] = peer = _through_mpi4jax(world, arguments)
            loss, parameters = peer()
            _agree([loss, *parameters], by_hand(*arguments))
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    drawn = np.random.default_rng(0)  # the same order on every rank
    for index in range(WARM_UP + options.steps):
        for name in drawn.permutation(list(steps)):
            step = steps[name]
            world.Barrier()
            start = time.perf_counter()
            step()
            # A step ends when its last rank does.
            taken = world.allreduce(time.perf_counter() - start, MPI.MAX)
            if index >= WARM_UP:
                seconds[name].append(taken)
    if world.rank == 0:
        options.into.write_text(json.dumps(report | seconds))


def _looped(executable: Any, arguments: Sequence[np.ndarray], steps: int) -> Any:
    """Return the step in spmd.elastic's loop: each call is one iteration."""
    from spmd import elastic

    training = elastic.Training(arguments[:6], examples=steps + 1, batch=1, epochs=1, build=lambda ranks: executable)
    loop = iter(training)

    def turn() -> None:
        step = next(loop)
        with step:
            step.program(*step.state, *arguments[6:])
            step.commit(step.state)

    return turn


def _through_jax() -> Any:
    """Return the step as spmd.jax.jit runs it."""
    import spmd.jax

    return spmd.jax.jit(jax_step(), axes={"data": RANKS})


def _overhead() -> float:
    """Return the overhead, in seconds, of a call of spmd.jax.jit with 100 leaves over one of its executable."""
    import jax

    import spmd.jax

    @jax.jit
    def function(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf + 1, tree)

    tree = {f"layer {index}": {"w": np.ones((4, 4), np.float32), "b": np.ones(4, np.float32)} for index in range(50)}
    leaves = jax.tree.leaves(tree)
    step = spmd.jax.jit(function, axes={"data": RANKS})
    step(tree)
    executable = step.executable(tree)
    differences = []
    for _ in range(1000):
        start = time.perf_counter()
        executable(*leaves)
        middle = time.perf_counter()
        step(tree)
        differences.append(time.perf_counter() - middle - (middle - start))
    return float(np.median(differences))


def _through_mpi4jax(world: Any, arguments: Sequence[np.ndarray]) -> Any:
    """Return the step compiled by XLA, with all_reduces by mpi4jax, as a user of JAX and MPI would write it."""
    import jax
    import mpi4jax
    from mpi4py import MPI

    def mean(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: mpi4jax.allreduce(leaf, op=MPI.SUM, comm=world) / world.size, tree)

    compiled = jax.jit(jax_step(mean))
    *parameters, images, targets = [jax.device_put(argument) for argument in arguments]
    return lambda: jax.block_until_ready(compiled(parameters, images, targets))


def jax_step(mean: Any = None, learning_rate: float = 0.1) -> Any:
    """Return one data-parallel step of the network in JAX, as one process of the axis "data".

    `mean` averages the loss and the gradients over all processes, by default over the axis.
    """
    import jax
    import jax.numpy as jnp

    def over_axis(tree: Any) -> Any:
        return jax.lax.pmean(tree, "data")

    mean = mean or over_axis

    def logits(parameters: Any, images: Any) -> Any:
        for weights, biases in zip(parameters[0:4:2], parameters[1:4:2], strict=True):
            images = jax.nn.relu(images @ weights + biases)
        return images @ parameters[4] + parameters[5]

    def loss(parameters: Any, images: Any, targets: Any) -> Any:
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits(parameters, images)) * targets, axis=1))

    def step(parameters: Any, images: Any, targets: Any) -> Any:
        value, slopes = mean(jax.value_and_grad(loss)(parameters, images, targets))
        return value, jax.tree.map(lambda parameter, slope: parameter - learning_rate * slope, parameters, slopes)

    return step


def _agree(first: Sequence[Any], second: Sequence[Any]) -> None:
    for mine, other in zip(first, second, strict=True):
        np.testing.assert_allclose(mine, other, rtol=TOLERANCE, atol=TOLERANCE * float(np.abs(other).max()))


def _run_jax(options: argparse.Namespace, into: Path, pin: bool) -> list[float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    mine = [sys.executable, "-m", "benchmarks", "train", str(options.program), "--steps", str(options.steps // 2)]
    mine += ["--as-rank", "jax", "--into", str(into), "--coordinator", coordinator]
    mine += ["--pin"] if pin else []
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
    processes = [subprocess.Popen([*mine, "--rank", str(rank)], env=environment) for rank in range(RANKS)]
    statuses = [process.wait() for process in processes]
    if any(statuses):
        raise RuntimeError("JAX's two processes failed")
    return list(json.loads(into.read_text())["steps"])


def _jax_rank(options: argparse.Namespace) -> None:
    if options.pin and hasattr(os, "sched_setaffinity"):
        available = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {available[options.rank % len(available)]})
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import spmd

    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(options.coordinator, RANKS, options.rank)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    arrays = global_arguments(spmd.load(options.program))
    specs = [PartitionSpec()] * 6 + [PartitionSpec("data")] * 2
    arguments = [
        jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index, array=array: array[index])
        for array, spec in zip(arrays, specs, strict=True)
    ]
    in_specs = (PartitionSpec(), PartitionSpec("data"), PartitionSpec("data"))
    mapped = jax.shard_map(jax_step(), mesh=mesh, in_specs=in_specs, out_specs=PartitionSpec(), check_vma=False)
    compiled = jax.jit(mapped)
    seconds = []
    for _ in range(1 + WARM_UP + options.steps):
        start = time.perf_counter()
        jax.block_until_ready(compiled(arguments[:6], *arguments[6:]))
        seconds.append(time.perf_counter() - start)
    if options.rank == 0:
        options.into.write_text(json.dumps({"first": seconds[0], "steps": seconds[1 + WARM_UP :]}))
