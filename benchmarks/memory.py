"""Peak memory of one program under spmd, in a process of its own: ``python -m benchmarks.memory program.mlir``.

Prints JSON, in bytes of resident memory: ``start`` when the program is compiled, before its arguments are there;
``peak`` the highest mark while it runs on them, twice. What LLVM takes to compile it is not part of this, as it is no
part of XLA's estimate: arguments, results and temporaries are.
"""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

MARK = "VmHWM:"
NOW = "VmRSS:"


def of_program(path: Path) -> dict[str, int] | None:
    """Measure in a fresh process; None where the system does not tell (no /proc)."""
    if not Path("/proc/self/status").exists():
        return None
    command = [sys.executable, "-m", "benchmarks.memory", str(path)]
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
    """Gives back memory that was freed, which would serve the program unseen."""
    ctypes.CDLL(None).malloc_trim(0)


def main() -> None:
    import numpy as np

    import spmd
    from launch import arguments
    from spmd import reading

    np.ones((64, 64), np.float32) @ np.ones((64, 64), np.float32)  # BLAS takes its buffers at the first product.
    module = reading.load(sys.argv[1])
    executable = spmd.compile(module)
    arguments.make(module)  # what it loads is no part of the program
    _give_back()
    start = _resident(NOW)
    arrays = arguments.make(module)
    _give_back()
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew
    for _ in range(2):
        executable(*arrays)
    print(json.dumps({"start": start, "peak": _resident(MARK)}))


if __name__ == "__main__":
    main()
