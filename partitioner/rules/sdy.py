"""Rules of sdy's own ops: identities."""

from __future__ import annotations

from partitioner.rules.core import rule
from partitioner.rules.elementwise import pointwise

rule(
    "sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier", "sdy.data_flow_edge", "sdy.func_data_flow_edge"
)(pointwise)
