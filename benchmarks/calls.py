"""Overhead of JAX calls on spmd's PJRT client and on XLA's: ``python -m benchmarks calls``.

The clients run alternately in child processes: a time is the median over children, a ratio the median over pairs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.harness import duration, print_table

CLIENTS = ("spmd", "cpu")
#: Limits of the ratio of spmd's time to XLA's.
WANTED = {
    "jitted x + 1": 1.2,
    "eager add": 1.2,
    "MLP step of 20 arguments": 0.5,
    "17 results": 1.0,
    "device_put of 16 MB": 0.1,
    "import to first result": 1.5,
}
FIRST = "import jax; print(jax.jit(lambda x: x + 1)(jax.numpy.zeros(8)))"
_SECONDS = 0.2


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks calls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="pairs of children (default: 7)")
    parser.add_argument("--as-child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.as_child:
        print(json.dumps(measured()))
        return 0
    rounds = [{client: child(client) for client in CLIENTS} for _ in range(args.rounds)]
    rows = []
    for name, wanted in WANTED.items():
        ours, theirs = ([pair[client][name] for pair in rounds] for client in CLIENTS)
        ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
        times = [duration(statistics.median(each)) for each in (ours, theirs)]
        rows.append([name, *times, f"{ratio:.2f}", f"{wanted:.1f}", "" if ratio <= wanted else "more"])
    print_table(["", "spmd", "XLA", "ratio", "wanted", ""], rows)
    return 0


def child(client: str) -> dict[str, float]:
    """Return the seconds of each figure, measured in a child process."""
    environment = {**os.environ, "JAX_PLATFORMS": client}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code, as jax has
    since = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIRST], env=environment, check=True, capture_output=True)
    first = time.perf_counter() - since
    command = [sys.executable, "-m", "benchmarks", "calls", "--as-child"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return {**json.loads(done.stdout), "import to first result": first}


def measured() -> dict[str, float]:
    """Return the seconds per call of each figure, on this process's client."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    x, large = jnp.zeros(8), np.zeros(4 << 20, np.float32)
    plus = jax.jit(lambda x: x + 1)
    many = jax.jit(lambda x: [x + number for number in range(17)])
    layers = [(jnp.full((32, 32), 0.1), jnp.zeros(32)) for _ in range(9)]
    batch, labels = jnp.ones((16, 32)), jnp.zeros((16, 32))

    def loss(layers, batch, labels):
        for weights, bias in layers:
            batch = jnp.tanh(batch @ weights + bias)
        return ((batch - labels) ** 2).mean()

    step = jax.jit(lambda *arguments: jax.tree.map(lambda p, g: p - 0.1 * g, arguments[0], jax.grad(loss)(*arguments)))
    return {
        "jitted x + 1": seconds(lambda: plus(x)),
        "eager add": seconds(lambda: x + x),
        "MLP step of 20 arguments": seconds(lambda: step(layers, batch, labels)),
        "17 results": seconds(lambda: many(x)),
        "device_put of 16 MB": seconds(lambda: jax.device_put(large)),
    }


def seconds(call: Callable[[], object]) -> float:
    """Return the median seconds per call over batches; each batch ends when its last result is ready."""
    import jax

    def stretch(count: int) -> float:
        since = time.perf_counter()
        for _ in range(count):
            result = call()
        jax.block_until_ready(result)
        return time.perf_counter() - since

    stretch(20)
    count = max(1, int(_SECONDS / 20 / (stretch(20) / 20)))
    return statistics.median(stretch(count) / count for _ in range(20))
