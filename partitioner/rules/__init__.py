"""One factor rule an op: which dimension of which operand and result is which factor.

Files are named by family, as in spmd/dialects. `rule_of(op)` gives an op's rule as Shardy has it, by which shardings
propagate, `conservative_rule(op)` the one by which less of them does; `local_rule(op)` gives the same factors, their
kinds as they hold for blocks: what lowering and stacking go by. `register(name)` adds a rule for a custom call, or
replaces one. Nothing here knows of meshes or of shardings.
"""

from __future__ import annotations

from partitioner.rules import (
    chlo,
    collective,
    communication,
    contraction,
    control_flow,
    custom_call,
    data_movement,
    elementwise,
    indexing,
    linear_algebra,
    random,
    reduction,
    sdy,
)
from partitioner.rules.conservative import conservative_rule
from partitioner.rules.core import (
    PASS,
    PERMUTE,
    REDUCE,
    REPLICATE,
    Rule,
    RuleBuilder,
    local_rule,
    published_rule,
    register,
    rule_of,
)

#: The modules that file the rules of ops.
FAMILIES = (
    *(chlo, collective, communication, contraction, control_flow, custom_call, data_movement, elementwise),
    *(indexing, linear_algebra, random, reduction, sdy),
)

__all__ = [
    "FAMILIES",
    "PASS",
    "PERMUTE",
    "REDUCE",
    "REPLICATE",
    "Rule",
    "RuleBuilder",
    "conservative_rule",
    "local_rule",
    "published_rule",
    "register",
    "rule_of",
]
