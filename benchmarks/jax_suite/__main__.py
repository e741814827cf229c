"""``python -m benchmarks.jax_suite --folder JAX/tests``: JAX's own tests on spmd's client and on XLA's.

``--folder`` is the folder ``tests`` of a checkout of JAX, of the tag of the JAX that is installed: jax-v0.10.2, say.
For each file it says how many tests were run, how many XLA's client passes, and how many of these spmd's does; then
which only spmd's fails, and why.
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
        """The tests that XLA's client passes."""
        return [name for name, outcome in self.xla.items() if outcome.outcome == PASSED]

    @property
    def failures(self) -> list[Outcome]:
        """What became here of the tests that XLA's client passes, and this one does not."""
        return [self.ours[name] for name in self.held_to if self.ours[name].outcome != PASSED]

    def line(self) -> str:
        """Return a row of the table."""
        return row(self.name, len(self.xla), len(self.held_to), len(self.held_to) - len(self.failures))


def row(name: str, run: int, xla: int, ours: int) -> str:
    """Return a row of the table: tests that were run, that XLA's client passes, and that spmd's does, too."""
    share = f"{100 * ours / xla:6.2f} %" if xla else "      -"
    return f"{name:<28}{run:>7}{xla:>7}{ours:>7}  {share}"


def files_in(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return files of tests by their names, `multiprocess` for all of its folder."""
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
    """Return `count` of the names, in their order: the same for the same seed."""
    if count is None or count >= len(names):
        return list(names)
    chosen = set(random.Random(seed).sample(list(names), count))
    return [name for name in names if name in chosen]


def compared(file: Path, settings: Settings, count: int | None, seed: int) -> Result:
    """Run the tests of a file on both clients; on spmd's, those alone that XLA's passes."""
    names = sampled(names_of(file), count, seed)
    xla = Runs(file, XLA, settings).outcomes(names)
    held_to = [name for name in names if xla[name].outcome == PASSED]
    return Result(title_of(file), xla, Runs(file, OURS, settings).outcomes(held_to))


def report(results: Sequence[Result]) -> None:
    """Print the sums, and each test that spmd's client alone fails, with the last line of why."""
    counts = [(len(result.xla), len(result.held_to), len(result.failures)) for result in results]
    run, xla, failed = (sum(column) for column in zip(*counts, strict=True))
    print(row("all", run, xla, xla - failed))
    for result in results:
        for outcome in result.failures:
            print(f"{result.name}: {outcome.name}: {outcome.outcome}: {_last_line(outcome.text)[:300]}")


def _last_line(text: str) -> str:
    """The last line that says something of its own: JAX ends its tracebacks with a rule and a remark on them."""
    lines = [line for line in text.splitlines() if line.strip("- ") and not line.startswith("For simplicity, JAX")]
    return lines[-1] if lines else ""


def run(argv: Sequence[str]) -> int:
    """Run the command; 1 where spmd's client fails a test that XLA's passes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jax_suite", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the folder tests of a checkout of JAX")
    parser.add_argument("--files", default=FILES, help="files by their names, without _test.py; all that are listed")
    parser.add_argument("--sample", type=int, help="so many tests of each file, drawn at random; all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample; 0")
    parser.add_argument("--seconds", type=float, default=120, help="the processor time a test may take; 120")
    parser.add_argument("--processes", type=int, default=2, help="of tests for several; 2")
    parser.add_argument("--keep", type=Path, required=True, help="a folder of outcomes: what is there is not run again")
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
