"""What a compilation may be asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from collectives.grid import ProcessGrid
from spmd.ir import Op

#: Called around every op when a program is watched: (op, run) must call run() and return what it returns.
Watch = Callable[[Op, Callable[[], Any]], Any]


@dataclass(frozen=True)
class Options:
    """Choices of one compilation.

    grid               the process grid the program is for
    reproducible       reductions between processes give the same bits on any transport and mapping
    combine_threshold  bytes up to which consecutive small all_reduces travel as one; 0 turns combining off
    check_collectives  processes compare what they are about to do at each collective
    collective_timeout seconds after which a rank that waits tells for whom (None: 60, or $COLLECTIVE_TIMEOUT; 0: never)
    collective_abort   such a wait ends the job
    fuse               run chains of elementwise ops block by block in cache
    watch              called around every op (profiles, NaN checks, printing); turns fusing off
    """

    grid: ProcessGrid = field(default_factory=lambda: ProcessGrid(1, 1))
    reproducible: bool = False
    combine_threshold: int = 256 << 10
    check_collectives: bool = False
    collective_timeout: float | None = None
    collective_abort: bool = False
    fuse: bool = True
    watch: Watch | None = None
