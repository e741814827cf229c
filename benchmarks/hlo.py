"""Programs in HLO beside XLA's CPU client: ``python -m benchmarks hlo FOLDER``.

Each file is run by both on the same drawn arguments; what differs, or only one of them runs, is listed. The work is
done in a child process, which is started again behind a program that ends it.
"""

import argparse
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.harness import print_table
from benchmarks.xla import XlaProgram
from spmd.support.arrays import Array

ENDINGS = (".hlo", ".txt")
#: Verdicts that the summary counts, and does not list.
QUIET = ("equal", "both refuse it", "no arguments are drawn", "several processes")
_DETAIL = 150
#: By how much of the largest result a result may differ, by the bits of its type's mantissa.
_TOLERANCE = {52: 1e-10, 23: 1e-4, 10: 2e-2, 7: 5e-2}
_COARSEST = 0.3


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks hlo", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=f"files that end with {', '.join(ENDINGS)}")
    parser.add_argument("--random", type=int, default=0, metavar="SEED", help="the seed of the arguments (default: 0)")
    parser.add_argument("--as-child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.as_child:
        for line in sys.stdin:
            print(json.dumps(verdict(Path(line.rstrip("\n")), args.random)), flush=True)
        return 0
    files = sorted(path for path in args.folder.rglob("*") if path.name.endswith(ENDINGS) and path.is_file())
    rows = list(zip(files, verdicts(args.folder, files, args.random), strict=True))
    print_table(["verdict", "programs"], [[name, str(count)] for name, count in Counter(v[0] for _, v in rows).items()])
    for path, (name, detail) in rows:
        if name not in QUIET:
            print(f"{path}: {name}: {detail}")
    return int(any(name == "differs" for _, (name, _) in rows))


def verdicts(folder: Path, files: Sequence[Path], seed: int) -> Iterator[tuple[str, str]]:
    """Yield what is found of each file, in their order: a verdict, and what there is to say of it."""
    command = [sys.executable, "-m", "benchmarks", "hlo", str(folder), "--random", str(seed), "--as-child"]
    pending = list(files)
    while pending:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            assert child.stdin is not None and child.stdout is not None
            while pending:
                try:
                    print(pending.pop(0), file=child.stdin, flush=True)
                    line = child.stdout.readline()
                except BrokenPipeError:
                    line = ""
                if not line:
                    yield "ends the process", f"status {child.wait()}"
                    break
                name, detail = json.loads(line)
                yield name, detail
            else:
                child.stdin.close()


def verdict(path: Path, seed: int) -> tuple[str, str]:
    """Return whether both clients give the same for the program in the file, and what differs."""
    import spmd
    from spmd.compiler.pipeline.prepare import declared_grid
    from spmd.io import arguments

    warnings.simplefilter("ignore")
    theirs = _attempt(lambda: XlaProgram.of_hlo(path.read_text()))
    ours = _attempt(lambda: spmd.load(path))
    if isinstance(ours, Exception):
        return ("both refuse it" if isinstance(theirs, Exception) else "not read by spmd", _line(ours))
    if declared_grid(ours, "main").size > 1:
        return "several processes", ""
    try:
        inputs = arguments.make(ours, "main", seed)
    except spmd.UsageError as error:
        return "no arguments are drawn", _line(error)
    mine = _attempt(lambda: spmd.compile(ours)(*inputs))
    other = theirs if isinstance(theirs, Exception) else _attempt(lambda: theirs(*inputs))
    failed = {name: each for name, each in (("spmd", mine), ("XLA", other)) if isinstance(each, Exception)}
    if not failed:
        return compared(mine, other)
    name = "both refuse it" if len(failed) == 2 else f"run by {'XLA' if 'spmd' in failed else 'spmd'} alone"
    return name, "; ".join(map(_line, failed.values()))


def _attempt(make: Callable[[], Any]) -> Any:
    """Return what `make` returns, or the exception that it raises, which may be of any type."""
    try:
        return make()
    except Exception as error:
        return error


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0][:_DETAIL]


def compared(ours: Sequence[Array], theirs: Sequence[Array]) -> tuple[str, str]:
    """Return the verdict on results, and of the first that differs which it is and by how much."""
    if len(ours) != len(theirs):
        return "differs", f"{len(ours)} results and {len(theirs)}"
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return "differs", f"result {number}: {mine.dtype}{mine.shape} and {other.dtype}{other.shape}"
        error, allowed = difference(mine, other)
        if not error <= allowed:
            return "differs", f"result {number}: by {error:.3g} of the largest, {allowed:.3g} is allowed"
    return "equal", ""


def difference(ours: Array, theirs: Array) -> tuple[float, float]:
    """Return the largest difference as a part of the largest result, inf where one is finite alone, and what may be."""
    if ours.dtype.kind in "biu" or ours.dtype.name.startswith(("int", "uint")):
        return float(np.any(ours != theirs)), 0.0
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    mine, other = ours.astype(wide), theirs.astype(wide)
    same = (mine == other) | (np.isnan(mine) & np.isnan(other))
    if np.any(~same & ~(np.isfinite(mine) & np.isfinite(other))):
        return np.inf, 0.0
    errors, sizes = np.abs(mine - other)[~same], np.abs(other[np.isfinite(other)])
    largest = float(sizes.max(initial=0.0)) or 1.0
    bits = int(ml_dtypes.finfo(ours.real.dtype).nmant)
    return float(errors.max(initial=0.0)) / largest, _TOLERANCE.get(bits, _COARSEST)
