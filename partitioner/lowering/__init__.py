"""Lowers each op to its per-process form. Files are named by family, as in spmd/dialects."""

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

#: Modules imported because they register lowerings.
FAMILIES = (
    *(by_rule, contraction, control_flow, data_movement, indexing),
    *(manual_code, random, reduction, sdy, single_device, sort),
)

__all__ = ["FAMILIES", "Lowering", "lowers"]
