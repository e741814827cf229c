"""Measure each op over a million elements, in nanoseconds per element, to find slow kernels.

For sums of products also the largest error and NumPy's, in units of 2^-24 of the root mean square of the results.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import spmd
from benchmarks.harness import Timing, duration, in_turns, print_table, write_json
from benchmarks.op_programs import ELEMENTS, WITHOUT, programs
from spmd.dialects import OPS
from spmd.io import arguments

LIMIT_NANOSECONDS = 50.0
#: Ops that inherently cost more per element than the limit, and the reason.
REASONS = {
    "stablehlo.cholesky": "cubic: 1000 x 1000 elements take 1000 products each",
    "stablehlo.triangular_solve": "cubic: each element of the result takes up to 1000 products",
    "stablehlo.dot_general": "1000 products an element of the result",
    "stablehlo.dot": "1000 products an element of the result",
    "stablehlo.einsum": "1000 products an element of the result",
    "chlo.ragged_dot": "1000 products an element of the result",
    "stablehlo.convolution": "576 products an element of the result",
    "stablehlo.dynamic_conv": "576 products an element of the result",
    "stablehlo.sort": "a sort compares each element about twenty times",
    "chlo.polygamma": "a series of zeta functions and a gamma function",
    "chlo.broadcast_polygamma": "a series of zeta functions and a gamma function",
    "chlo.bessel_i1e": "SciPy's Chebyshev series, one element at a time in compiled code",
    "chlo.digamma": "two expansions, each over the elements it serves, and a reflection",
    "chlo.lgamma": "a logarithm and a series for each element in compiled code",
    "chlo.zeta": "a sum and an Euler-Maclaurin tail of twenty terms",
    "chlo.broadcast_zeta": "a sum and an Euler-Maclaurin tail of twenty terms",
}
#: Sums of products, whose last digits depend on the order of summation.
PRODUCTS = ("stablehlo.convolution", "stablehlo.dot", "stablehlo.dot_general")


@dataclass(frozen=True)
class OpResult:
    op: str
    timing: Timing
    nanoseconds: float
    errors: tuple[float, ...]
    reason: str


def run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ops", description=__doc__)
    parser.add_argument("names", nargs="*", help="ops to measure (default: all)")
    parser.add_argument("--threads", type=int, help="threads (default: 1)")
    parser.add_argument("--seconds", type=float, default=0.05, help="spent on each op (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks-ops.json"), help="default: %(default)s")
    options = parser.parse_args(argv)
    texts = programs()
    missing = sorted(name for name in OPS if _is_computed(name) and name not in texts and name not in WITHOUT)
    names = options.names or list(texts)
    results = sorted(
        (measure(name, texts[name], options.seconds) for name in names), key=lambda each: -each.nanoseconds
    )
    rows = [
        (
            each.op,
            f"{each.nanoseconds:.2f}",
            duration(each.timing.median),
            " / ".join(f"{error:.2f}" for error in each.errors),
            each.reason,
        )
        for each in results
    ]
    print_table(("op", "ns/element", "time", "error / NumPy's", "why"), rows)
    write_json(options.json, {"ops": results})
    slow = [each.op for each in results if each.nanoseconds > LIMIT_NANOSECONDS and not each.reason]
    for title, listed in (("without a program", missing), (f"above {LIMIT_NANOSECONDS:g} ns per element", slow)):
        if listed:
            print(f"{title}: {', '.join(listed)}")
    return 1 if missing or slow else 0


def _is_computed(name: str) -> bool:
    return name.startswith(("stablehlo.", "chlo."))


def measure(name: str, text: str, seconds: float) -> OpResult:
    module = spmd.parse(text, name=name)
    executable = spmd.compile(module)
    arrays = arguments.make(module)
    timing = in_turns({name: lambda: executable(*arrays)}, seconds)[name]
    nanoseconds = timing.fastest / ELEMENTS * 1e9
    reason = REASONS.get(name, "") if nanoseconds > LIMIT_NANOSECONDS else ""
    return OpResult(name, timing, nanoseconds, errors(text) if name in PRODUCTS else (), reason)


def errors(text: str) -> tuple[float, float]:
    """Return the largest error of the first result of an f32 program, natively and by NumPy, against f64."""
    module = spmd.parse(text)
    arrays = arguments.make(module)
    wide = [array.astype(np.float64) if array.dtype == np.float32 else array for array in arrays]
    exact = spmd.compile(spmd.parse(text.replace("f32", "f64")))(*wide)[0]
    unit = np.sqrt(np.mean(np.square(exact))) * 2.0**-24
    native, plain = (spmd.compile(module, backends=each)(*arrays)[0] for each in (("llvm", "numpy"), ("numpy",)))
    return float(np.abs(native - exact).max() / unit), float(np.abs(plain - exact).max() / unit)
