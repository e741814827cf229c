"""Compare programs with the same computation written by hand in NumPy, alternating, on the same arrays and threads."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import spmd
from benchmarks.harness import Timing, duration, in_turns, print_table, write_json
from benchmarks.peers import elementwise_chain, mlp_train, softmax, transformer_block
from benchmarks.programs import DEFAULT_FOLDER, difference
from spmd.io import arguments

OWN_PROGRAMS = Path(__file__).parent
PEERS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "mlp_train": mlp_train.step,
    "transformer_block": transformer_block.block,
    "elementwise_chain_4m": elementwise_chain.chain,
    "softmax": softmax.softmax_and_gradient,
}
TOLERANCE = 1e-4


def run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="default: %(default)s")
    parser.add_argument("--threads", type=int, help="threads of each contestant (default: 1)")
    parser.add_argument("--seconds", type=float, default=3.0, help="spent on each program (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks-peers.json"), help="default: %(default)s")
    options = parser.parse_args(argv)
    rows, results = [], {}
    for name, by_hand in PEERS.items():
        file = next(
            (path for path in (options.folder / f"{name}.mlir", OWN_PROGRAMS / f"{name}.mlir") if path.exists()), None
        )
        if file is None:
            print(f"{name}: no such program in {options.folder}", file=sys.stderr)
            continue
        timings, apart = measure(file, by_hand, options.seconds)
        if apart > TOLERANCE:
            print(f"{name}: the results differ by {apart:.1e}", file=sys.stderr)
            return 1
        ours, theirs = timings["spmd"], timings["NumPy"]
        results[name] = {**timings, "ratio": ours.median / theirs.median, "difference": apart}
        ratio = f"{ours.median / theirs.median:.2f}"
        spreads = (f"{ours.spread:.0%}", f"{theirs.spread:.0%}")
        rows.append((name, duration(ours.median), duration(theirs.median), ratio, *spreads, f"{apart:.1e}"))
    print_table(("program", "spmd", "NumPy", "spmd/NumPy", "spread", "spread NumPy", "difference"), rows)
    write_json(options.json, {"peers": results})
    return 0


def measure(file: Path, by_hand: Callable[..., tuple[Any, ...]], seconds: float) -> tuple[dict[str, Timing], float]:
    """Return both timings and the difference of the results."""
    module = spmd.load(file)
    executable = spmd.compile(module)
    arrays = arguments.make(module)
    # Scale the weights to keep activations near one, as in a network in training.
    arrays = [array / np.float32(np.sqrt(array.shape[0])) if array.ndim == 2 else array for array in arrays]
    apart = difference(executable(*arrays), [np.asarray(result) for result in by_hand(*arrays)])
    contestants = {"spmd": lambda: executable(*arrays), "NumPy": lambda: by_hand(*arrays)}
    return in_turns(contestants, seconds), apart
