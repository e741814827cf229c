"""Measure the peak memory of one program in a separate process: ``python -m benchmarks.memory program.mlir [--peer]``.

Prints JSON, in bytes of resident memory: ``start`` when the program is compiled, before its arguments are allocated;
``peak`` the highest value while it runs twice. This includes arguments, results, temporaries, and what libraries
allocate during the computation; not compilation, nor buffers that a library allocates once at its first large product,
such as OpenBLAS's packing buffers. With ``--peer``, XLA runs the program and is measured in the same way. XLA's own
estimate in the table does not include what its libraries allocate.
"""

import argparse
import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MARK = "VmHWM:"
NOW = "VmRSS:"
_PR_SET_THP_DISABLE = 41
_PRODUCT = """
func.func @main(%x: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
      : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  return %0 : tensor<1024x1024xf32>
}
"""

#: A compiled program: a function that runs it, and one that puts its arguments where it reads them.
Prepared = Callable[[Sequence[npt.NDArray[Any]]], Callable[[], object]]


def of_program(path: Path, *, peer: bool = False) -> dict[str, int] | None:
    """Measure in a new process; return None on systems without /proc."""
    if not Path("/proc/self/status").exists():
        return None
    command = [sys.executable, "-m", "benchmarks.memory", str(path), *(["--peer"] if peer else [])]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"the memory of {path.name} could not be measured:\n{answer.stderr}")
    return {name: int(value) for name, value in json.loads(answer.stdout).items()}


def _resident(which: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {which}")


def _give_back() -> None:
    """Return freed memory to the system; otherwise the program would reuse it without being measured."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _leave_small_pages() -> None:
    """Disable huge pages, of which all 2 MiB count as resident, however little is used."""
    ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("--peer", action="store_true", help="measure XLA")
    options = parser.parse_args()
    _leave_small_pages()
    from spmd.io import arguments, reading

    module = reading.load(options.program)
    prepared = _prepared_by_xla if options.peer else _prepared
    prepared(_PRODUCT)([np.ones((1024, 1024), np.float32)])()  # libraries allocate their permanent buffers at first use
    run_on = prepared(options.program.read_text())
    arguments.make(module)  # the modules it loads are not counted
    _give_back()
    start = _resident(NOW)
    run = run_on(arguments.make(module))
    _give_back()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    for _ in range(2):
        run()
    print(json.dumps({"start": start, "peak": _resident(MARK)}))


def _prepared(text: str) -> Prepared:
    import spmd

    executable = spmd.compile(spmd.parse(text))
    return lambda arrays: lambda: executable(*arrays)


def _prepared_by_xla(text: str) -> Prepared:
    from benchmarks import xla

    program = xla.XlaProgram(text)

    def run_on(arrays: Sequence[npt.NDArray[Any]]) -> Callable[[], object]:
        on_device = program.put(arrays)
        return lambda: program.run(on_device)

    return run_on


if __name__ == "__main__":
    main()
