"""XLA's HLO text: read into a module, and printed from one."""

from __future__ import annotations

from spmd.builder.computation import writes_hlo
from spmd.builder.hlo import (  # noqa: F401  they file what they know
    buffers,
    calls,
    collective,
    convert,
    convert_calls,
    expanded,
    instructions,
    ragged,
)
from spmd.builder.hlo.parser import parse_hlo
from spmd.builder.hlo.printer import print_hlo

__all__ = ["parse_hlo", "print_hlo"]

writes_hlo(print_hlo)
