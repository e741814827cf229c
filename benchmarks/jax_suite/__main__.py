"""``python -m benchmarks.jax_suite --folder JAX/tests``: JAX's own tests on spmd's client and on XLA's.

``--folder`` is the folder ``tests`` of a checkout of JAX at the tag of the installed version, e.g. jax-v0.10.2. Prints
for each file how many tests were run, how many XLA's client passes, and how many of these spmd's passes; then the tests
that only spmd's fails, with the reason.
"""

import argparse
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jax_suite.outcomes import PASSED, Outcome
from benchmarks.jax_suite.running import MULTIPROCESS, OURS, XLA, Runs, Settings, names_of, title_of

FILES = (
    "lax lax_numpy lax_numpy_indexing lax_scipy lax_control_flow api random nn linalg fft image dtypes "
    "python_callback debug_nans ffi export aot memories layout array pjit shard_map multiprocess"
)


@dataclass(frozen=True)
class Result:
    """The outcomes of a file's tests on both clients, by test."""

    name: str
    xla: Mapping[str, Outcome]
    ours: Mapping[str, Outcome]

    @property
    def held_to(self) -> list[str]:
        """The names of the tests that XLA's client passes."""
        return [name for name, outcome in self.xla.items() if outcome.outcome == PASSED]

    @property
    def failures(self) -> list[Outcome]:
        """The outcomes on spmd's client of the tests that only XLA's client passes."""
        return [self.ours[name] for name in self.held_to if self.ours[name].outcome != PASSED]

    def line(self) -> str:
        """Return a row of the table."""
        return row(self.name, len(self.xla), len(self.held_to), len(self.held_to) - len(self.failures))


def row(name: str, run: int, xla: int, ours: int) -> str:
    """Return a row of the table: the number of tests run, passed by XLA's client, and passed by both."""
    share = f"{100 * ours / xla:6.2f} %" if xla else "      -"
    return f"{name:<28}{run:>7}{xla:>7}{ours:>7}  {share}"


def files_in(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the test files of these names; `multiprocess` means all files of that folder. Exit if one is missing."""
    files: list[Path] = []
    for name in names:
        if name == MULTIPROCESS:
            files += sorted((folder / name).glob("*_test.py"))
        else:
            files.append(folder / f"{name.removesuffix('_test')}_test.py")
    for file in files:
        if not file.is_file():
            raise SystemExit(f"--folder {folder} has no {file.relative_to(folder)}")
    return files


def sampled(names: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Return a random sample of `count` names, in their order; the same for the same seed."""
    if count is None or count >= len(names):
        return list(names)
    chosen = set(random.Random(seed).sample(list(names), count))
    return [name for name in names if name in chosen]


def compared(file: Path, settings: Settings, count: int | None, seed: int) -> Result:
    """Run the tests of a file on XLA's client, and those that pass on spmd's."""
    names = sampled(names_of(file), count, seed)
    xla = Runs(file, XLA, settings).outcomes(names)
    held_to = [name for name in names if xla[name].outcome == PASSED]
    return Result(title_of(file), xla, Runs(file, OURS, settings).outcomes(held_to))


def report(results: Sequence[Result]) -> None:
    """Print the totals, and each test that only spmd's client fails, with the last line of its output."""
    counts = [(len(result.xla), len(result.held_to), len(result.failures)) for result in results]
    run, xla, failed = (sum(column) for column in zip(*counts, strict=True))
    print(row("all", run, xla, xla - failed))
    for result in results:
        for outcome in result.failures:
            print(f"{result.name}: {outcome.name}: {outcome.outcome}: {_last_line(outcome.text)[:300]}")


def _last_line(text: str) -> str:
    """Return the last informative line: JAX ends its tracebacks with a rule and a remark on them."""
    lines = [line for line in text.splitlines() if line.strip("- ") and not line.startswith("For simplicity, JAX")]
    return lines[-1] if lines else ""


def run(argv: Sequence[str]) -> int:
    """Run the command; return 1 if spmd's client fails a test that XLA's passes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jax_suite", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the folder tests of a checkout of JAX")
    parser.add_argument("--files", default=FILES, help="names of test files, without _test.py (default: %(default)s)")
    parser.add_argument("--sample", type=int, help="number of tests of each file, drawn at random (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=120, help="CPU time limit of a test (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="of multi-process tests (default: %(default)s)")
    parser.add_argument("--keep", type=Path, required=True, help="folder of outcomes, which are reused")
    chosen = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # its children end with it
    settings = Settings(chosen.seconds, chosen.processes, chosen.keep)
    print(f"{'file':<28}{'run':>7}{'XLA':>7}{'spmd':>7}")
    results = []
    for file in files_in(chosen.folder, chosen.files.split()):
        results.append(compared(file, settings, chosen.sample, chosen.seed))
        print(results[-1].line(), flush=True)
    report(results)
    return int(any(result.failures for result in results))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
