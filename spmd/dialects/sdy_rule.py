"""Constraints on a factor rule on an op. Source: Shardy's dialect documentation, OpShardingRuleAttr, "Constraints"."""

from __future__ import annotations

from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.sdy_axes import ShardingFault
from spmd.ir import Op
from spmd.types import TensorType, Type


def check_rule(rule: sdy.OpShardingRule, op: Op) -> None:
    """Raise ShardingFault unless `rule` fits `op`."""
    used: set[int] = set()
    for kind, mappings, types in (
        ("operand", rule.operands, op.operand_types),
        ("result", rule.results, op.result_types),
    ):
        if len(mappings) != len(types) or not mappings:
            raise ShardingFault(f"the sharding rule maps {len(mappings)} {kind}s, the op has {len(types)}")
        for index, (mapping, type) in enumerate(zip(mappings, types, strict=True)):
            used.update(_check_mapping(f"sharding rule: {kind} {index}", rule, mapping, type))
    for factor, size in enumerate(rule.factor_sizes):
        if factor not in used:
            raise ShardingFault(f"sharding rule: no operand or result has factor {sdy.factor_symbol(factor)}={size}")
    _check_kinds(rule)


def _check_mapping(what: str, rule: sdy.OpShardingRule, mapping: sdy.TensorMapping, type: Type) -> list[int]:
    """Return the factors of one tensor."""
    count = len(rule.factor_sizes)
    if not isinstance(type, TensorType) or not type.is_static:
        raise ShardingFault(f"{what} must be a static tensor, got {type}")
    if len(mapping.dimensions) != type.rank:
        raise ShardingFault(f"{what} must be mapped with rank {type.rank}, got {len(mapping.dimensions)}")
    factors = [f for dimension in mapping.dimensions for f in dimension.factors]
    if len(set(factors)) != len(factors):
        raise ShardingFault(f"{what} has a factor twice")
    for dimension in mapping.dimensions:
        if not dimension.factors:
            raise ShardingFault(f"{what} has a dimension without factors")
        if any(not 0 <= f < count for f in dimension.factors):
            raise ShardingFault(f"{what} has a factor that is not among the {count} given")
        if len(dimension.factors) > 1 and any(rule.factor_sizes[f] == 1 for f in dimension.factors):
            raise ShardingFault(f"{what} has a factor of size 1 among others")
    return factors


def _check_kinds(rule: sdy.OpShardingRule) -> None:
    special = [*rule.reduction, *rule.need_replication, *rule.permutation]
    if len(set(special)) != len(special):
        raise ShardingFault("sharding rule: a factor must have at most one special kind")
    for group in (rule.reduction, rule.need_replication, rule.permutation, rule.blocked_propagation):
        if list(group) != sorted(set(group)) or any(not 0 <= f < len(rule.factor_sizes) for f in group):
            raise ShardingFault("sharding rule: special factors must be in range, ascending and unique")
    in_results = {f for mapping in rule.results for dimension in mapping.dimensions for f in dimension.factors}
    for factor in rule.reduction:
        if factor in in_results:
            raise ShardingFault(f"sharding rule: reduction factor {sdy.factor_symbol(factor)} is in a result")
