"""Rules of sdy's own ops, which are identities."""

from __future__ import annotations

from partitioner.rules.core import rule
from partitioner.rules.elementwise import pointwise

rule("sdy.sharding_constraint")(pointwise)
rule("sdy.reshard", "sdy.propagation_barrier", published=False)(pointwise)
rule("sdy.all_reduce", "sdy.reduce_scatter", published=False)(pointwise)
rule("sdy.data_flow_edge", "sdy.func_data_flow_edge", published=False)(pointwise)
