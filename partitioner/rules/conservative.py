"""Rules that do not propagate along dimensions whose sharding would need communication with neighbours.

Source: Shardy's documentation of its passes, option conservative-propagation; its registry of rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from partitioner.rules.core import PASS, PERMUTE, REPLICATE, Mapping, Rule, rule_of
from spmd.dialects.sdy_attributes import RULE_NAME
from spmd.ir import Op

_MOVING = frozenset(
    "stablehlo." + name for name in ("pad", "slice", "reduce_window", "select_and_scatter")
)  # fmt: skip


def conservative_rule(op: Op) -> Rule:
    """Return the rule of `op` with such factors blocked or removed; a rule on the op itself is returned unchanged."""
    rule = rule_of(op)
    if RULE_NAME in op.discardable:
        return rule
    if op.name in _MOVING:
        return replace(rule, blocked=rule.blocked.union(rule.of_kind(PERMUTE), rule.of_kind(REPLICATE)))
    if op.name == "stablehlo.concatenate":
        return _without(rule, {op["dimension"]})
    if op.name == "stablehlo.convolution":
        numbers = op["dimension_numbers"]
        inputs = _factors_of(rule.operands[0], numbers.input_spatial_dimensions)
        return _without(rule, inputs | _factors_of(rule.operands[1], numbers.kernel_spatial_dimensions))
    return rule


def _factors_of(mapping: Mapping, dimensions: Iterable[int]) -> set[int]:
    return {factor for dimension in dimensions for factor in mapping[dimension]}


def _without(rule: Rule, dropped: Collection[int]) -> Rule:
    """Return `rule` without factors; dimensions that lose all factors get one of size 1."""
    kept = [factor for factor in range(len(rule.sizes)) if factor not in dropped]
    number = {factor: index for index, factor in enumerate(kept)}
    sizes = [rule.sizes[factor] for factor in kept]

    def numbered(factors: tuple[int, ...]) -> tuple[int, ...]:
        left = tuple(number[factor] for factor in factors if factor in number)
        if not left:
            sizes.append(1)
        return left or (len(sizes) - 1,)

    operands, results = (
        tuple(tuple(map(numbered, mapping)) for mapping in tensors) for tensors in (rule.operands, rule.results)
    )
    kinds = [rule.kinds[factor] for factor in kept]
    return Rule(
        tuple(sizes),
        operands,
        results,
        (*kinds, *[PASS] * (len(sizes) - len(kinds))),
        frozenset(number[factor] for factor in rule.blocked if factor in number),
        rule.is_custom,
    )
