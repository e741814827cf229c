"""Compare programs of a folder on spmd and, with the ``jax`` extra, on XLA's CPU client, alternating."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import spmd
from benchmarks import memory, xla
from benchmarks.harness import Timing, duration, in_turns, print_table, write_json
from spmd.analysis.grid import grid_of
from spmd.io import arguments

DEFAULT_FOLDER = Path("../shared/bench")
MEBIBYTE = 2**20
HEADER = ("program", "spmd", "XLA", "spmd/XLA", "spread", "spread XLA", "MiB", "XLA MiB", "estimate", "difference")


@dataclass(frozen=True)
class ProgramResult:
    """One program: ``difference`` is the largest absolute difference of the results relative to the largest value."""

    program: str
    spmd: Timing
    xla: Timing | None
    ratio: float | None
    difference: float | None
    memory: dict[str, int] | None
    xla_memory: dict[str, int] | None
    xla_estimate: int | None

    def row(self) -> tuple[str, ...]:
        return (
            self.program,
            duration(self.spmd.median),
            "-" if self.xla is None else duration(self.xla.median),
            "-" if self.ratio is None else f"{self.ratio:.2f}",
            f"{self.spmd.spread:.0%}",
            "-" if self.xla is None else f"{self.xla.spread:.0%}",
            _mebibytes(self.memory),
            _mebibytes(self.xla_memory),
            "-" if self.xla_estimate is None else f"{self.xla_estimate / MEBIBYTE:.1f}",
            "-" if self.difference is None else f"{self.difference:.1e}",
        )


def _mebibytes(marks: dict[str, int] | None) -> str:
    return "-" if marks is None else f"{(marks['peak'] - marks['start']) / MEBIBYTE:.1f}"


def run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[DEFAULT_FOLDER], help="folders or files of StableHLO")
    parser.add_argument("--threads", type=int, help="threads of each contestant (default: 1)")
    parser.add_argument("--seconds", type=float, default=3.0, help="spent on each program (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"), help="results (default: %(default)s)")
    options = parser.parse_args(argv)
    files = [file for path in options.paths for file in (sorted(path.glob("*.mlir")) if path.is_dir() else [path])]
    if not files:
        print(f"no programs in {', '.join(map(str, options.paths))}", file=sys.stderr)
        return 1
    results, failed = [], []
    for file in files:
        try:
            result = measure(file, options.seconds)
        except spmd.SpmdError as error:
            failed.append(file.name)
            print(error, file=sys.stderr)
            continue
        results += [] if result is None else [result]
    print_table(HEADER, [result.row() for result in results])
    write_json(options.json, {"programs": results, "failed": failed})
    return 1 if failed else 0


def measure(file: Path, seconds: float) -> ProgramResult | None:
    """Measure one program; return None for a program of several processes, which ``train`` measures."""
    module = spmd.load(file)
    if grid_of(module).size > 1:
        print(f"{file.name}: a program of several processes, not measured here", file=sys.stderr)
        return None
    executable = spmd.compile(module)
    arrays = arguments.make(module)
    contestants = {"spmd": lambda: executable(*arrays)}
    apart = estimate = None
    if xla.is_installed():
        program = xla.XlaProgram(file.read_text())
        on_device = program.put(arrays)
        contestants["xla"] = lambda: tuple(program.run(on_device))
        apart = difference(executable(*arrays), program(*arrays))
        estimate = program.memory()
    timings = in_turns(contestants, seconds)
    peer = timings.get("xla")
    ratio = None if peer is None else timings["spmd"].median / peer.median
    marks = memory.of_program(file)
    xla_marks = memory.of_program(file, peer=True) if peer else None
    return ProgramResult(file.stem, timings["spmd"], peer, ratio, apart, marks, xla_marks, estimate)


def difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            raise ValueError(f"{mine.dtype}{mine.shape} where XLA gives {other.dtype}{other.shape}")
        wide = np.complex128 if mine.dtype.kind == "c" else np.float64
        gap, scale = np.abs(mine.astype(wide) - other.astype(wide)), np.abs(other.astype(wide))
        worst = max(worst, float(gap.max(initial=0) / max(scale.max(initial=0), 1e-30)))
    return worst
