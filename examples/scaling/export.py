"""Write the training step of examples/sharded, at a size worth a cluster, as StableHLO: ``step.mlir``.

Needs the ``jax`` extra. From the repository's root::

    python examples/scaling/export.py
"""

import runpy
from pathlib import Path

from ways import SHARDED, SIZES


def main() -> None:
    program = runpy.run_path(str(SHARDED / "export.py"))["program"]
    (Path(__file__).parent / "step.mlir").write_text(program(SIZES))


if __name__ == "__main__":
    main()
