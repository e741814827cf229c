"""Each op becomes its local form. Files are named by family, as in spmd/dialects; the package files them all."""

from __future__ import annotations

from partitioner.lowering import (
    by_rule,
    contraction,
    control_flow,
    data_movement,
    indexing,
    manual_code,
    random,
    reduction,
    sdy,
    single_device,
    sort,
)
from partitioner.lowering.core import Lowering, lowers

#: The modules that say how ops become local.
FAMILIES = (
    *(by_rule, contraction, control_flow, data_movement, indexing),
    *(manual_code, random, reduction, sdy, single_device, sort),
)

__all__ = ["FAMILIES", "Lowering", "lowers"]
