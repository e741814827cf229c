"""Peak memory of one program under spmd, in a process of its own: ``python -m benchmarks.memory program.mlir``.

Prints JSON, in bytes of resident memory: ``start`` after the imports, before the program is read; ``peak`` the highest
mark while it is read, compiled and run twice on its arguments, which are part of it.
"""

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


def main() -> None:
    import numpy as np

    import spmd
    from launch import arguments
    from spmd import reading
    from spmd.runtime import compile as _compiler  # noqa: F401  (imported before the start is measured)

    np.ones((64, 64), np.float32) @ np.ones((64, 64), np.float32)  # BLAS takes its buffers at the first product.
    start = _resident(NOW)
    module = reading.load(sys.argv[1])
    arrays = arguments.make(module)
    executable = spmd.compile(module)
    for _ in range(2):
        executable(*arrays)
    print(json.dumps({"start": start, "peak": _resident(MARK)}))


if __name__ == "__main__":
    main()
