"""One factor rule an op: which dimension of which operand and result is which factor.

Files are named by family, as in spmd/dialects. `rule_of(op)` gives an op's rule; `register(name)` adds one for a custom
call, or replaces one.
"""

from __future__ import annotations

from partitioner.rules.core import PASS, PERMUTE, REDUCE, REPLICATE, Rule, RuleBuilder, register, rule_of

__all__ = ["PASS", "PERMUTE", "REDUCE", "REPLICATE", "Rule", "RuleBuilder", "register", "rule_of"]
