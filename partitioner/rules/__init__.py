"""Factor rules of ops: which dimensions of operands and results are the same factor.

Files are named by family, as in spmd/dialects. `rule_of(op)` returns the op's rule as in Shardy, for propagation;
`conservative_rule(op)` the rule of conservative propagation; `local_rule(op)` the same factors with the kinds that hold
for blocks, for lowering and stacking. `register(name)` adds or replaces the rule of a custom call. Nothing here depends
on meshes or shardings.
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

#: Modules imported because they register the rules of ops.
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
