"""Factor rules: their representation, their construction, and the table of rules by op.

A factor is a dimension of the computation, like a letter of an einsum. A dimension of an operand or result is one
factor, or several for a reshape (major first). Source: Shardy's documentation, "Propagation" (operation sharding rule,
compound factors) and OpShardingRuleAttr (factor types); the rules of ops are those of its registry, factor by factor.

`rule_of` is the rule for propagation, which Shardy prints; `local_rule` has the same factors with the kinds that hold
for a process's blocks. `published_rule` omits ops for which Shardy has no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.sdy_attributes import RULE_NAME
from spmd.ir import Op
from spmd.ir.attributes import DictAttr, StringAttr
from spmd.types import TensorType

#: Kinds of factors. PASS: no communication if all tensors are sharded alike. REDUCE: sharded operands give partial
#: results. REPLICATE: must not be sharded. PERMUTE: sharded dimensions exchange elements with their neighbours.
PASS, REDUCE, REPLICATE, PERMUTE = "pass", "reduce", "replicate", "permute"

#: The factors of each dimension of one tensor.
Mapping = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Rule:
    """The factor rule of one op. `blocked` holds factors along which shardings do not propagate.

    `local` holds (factor, kind) where the kind for a process's blocks differs from that of Shardy's rule.
    """

    sizes: tuple[int, ...]
    operands: tuple[Mapping, ...]
    results: tuple[Mapping, ...]
    kinds: tuple[str, ...]
    blocked: frozenset[int] = frozenset()
    is_custom: bool = False
    local: tuple[tuple[int, str], ...] = ()

    @cached_property
    def tensors(self) -> tuple[Mapping, ...]:
        """The mappings of operands, then results."""
        return (*self.operands, *self.results)

    @cached_property
    def places(self) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        """The occurrences of each factor: (tensor, dimension, index among the dimension's factors)."""
        places_of_factors: list[list[tuple[int, int, int]]] = [[] for _ in self.sizes]
        for tensor, mapping in enumerate(self.tensors):
            for dimension, factors in enumerate(mapping):
                for position, factor in enumerate(factors):
                    places_of_factors[factor].append((tensor, dimension, position))
        return tuple(map(tuple, places_of_factors))

    def of_kind(self, kind: str) -> tuple[int, ...]:
        """Return the factors of `kind`."""
        return tuple(factor for factor, own_kind in enumerate(self.kinds) if own_kind == kind)

    def attribute(self) -> sdy.OpShardingRule:
        """Return the rule as Shardy's attribute."""

        def mappings(tensors: Iterable[Mapping]) -> tuple[sdy.TensorMapping, ...]:
            return tuple(sdy.TensorMapping(tuple(map(sdy.DimMapping, mapping))) for mapping in tensors)

        return sdy.OpShardingRule(
            self.sizes,
            mappings(self.operands),
            mappings(self.results),
            self.of_kind(REDUCE),
            self.of_kind(REPLICATE),
            self.of_kind(PERMUTE),
            tuple(sorted(self.blocked)),
            self.is_custom,
        )

    def __str__(self) -> str:
        return self.attribute().format()[1:-1]


def from_attribute(attribute: sdy.OpShardingRule) -> Rule:
    """Return the rule that an attribute on an op gives."""
    kinds = [PASS] * len(attribute.factor_sizes)
    for kind, factors in (
        (REDUCE, attribute.reduction),
        (REPLICATE, attribute.need_replication),
        (PERMUTE, attribute.permutation),
    ):
        for factor in factors:
            kinds[factor] = kind

    def mappings(tensors: Sequence[sdy.TensorMapping]) -> tuple[Mapping, ...]:
        return tuple(tuple(dimension.factors for dimension in tensor.dimensions) for tensor in tensors)

    return Rule(
        attribute.factor_sizes,
        mappings(attribute.operands),
        mappings(attribute.results),
        tuple(kinds),
        frozenset(attribute.blocked_propagation),
        attribute.is_custom,
    )


def shape_of(value_type: object) -> tuple[int, ...]:
    """Return the static shape of a tensor; () for anything else."""
    return value_type.static_shape if isinstance(value_type, TensorType) else ()


@dataclass
class RuleBuilder:
    """Builds the rule of `op` factor by factor.

    Dimensions without a factor get one of size 1, which is not sharded. Factors of size 1 are not added to dimensions
    that have a factor.
    """

    op: Op
    sizes: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)
    local: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.operand_shapes = [shape_of(type) for type in self.op.operand_types]
        self.result_shapes = [shape_of(type) for type in self.op.result_types]
        self._operands: list[list[list[int]]] = [[[] for _ in shape] for shape in self.operand_shapes]
        self._results: list[list[list[int]]] = [[[] for _ in shape] for shape in self.result_shapes]

    def factor(
        self,
        operands: Sequence[int | None],
        results: Sequence[int | None],
        size: int,
        kind: str = PASS,
        *,
        blocked: bool = False,
        local: str | None = None,
    ) -> RuleBuilder:
        """Add a factor: dimension `operands[i]` of operand i (None: not in it), and likewise for results.

        `local` is the kind for a process's blocks, if different.
        """
        index = len(self.sizes)
        self.sizes.append(size)
        self.kinds.append(kind)
        if blocked:
            self.blocked.add(index)
        if local is not None and local != kind:
            self.local.append((index, local))
        for tensors, places in ((self._operands, operands), (self._results, results)):
            for tensor, dimension in zip(tensors, places, strict=False):
                if dimension is not None and not (size == 1 and tensor[dimension]):
                    tensor[dimension].append(index)
        return self

    def everywhere(
        self, dimension: int, size: int, kind: str = PASS, *, blocked: bool = False, local: str | None = None
    ) -> RuleBuilder:
        """Add a factor: `dimension` of every operand and result except scalars."""
        operands, results = (
            [dimension if shape else None for shape in shapes] for shapes in (self.operand_shapes, self.result_shapes)
        )
        return self.factor(operands, results, size, kind, blocked=blocked, local=local)

    def of_all_operands(self, dimension: int, size: int, kind: str) -> RuleBuilder:
        """Add a factor: `dimension` of every operand."""
        return self.factor([dimension if shape else None for shape in self.operand_shapes], [], size, kind)

    def of_all_results(self, dimension: int, size: int, kind: str) -> RuleBuilder:
        """Add a factor: `dimension` of every result."""
        return self.factor([], [dimension if shape else None for shape in self.result_shapes], size, kind)

    def matching(self, kind: str, *, blocked: bool = False, local: str | None = None) -> RuleBuilder:
        """Add a factor per dimension of the first operand, of `kind` where the first result's size differs."""
        for dimension, (size, result_size) in enumerate(
            zip(self.operand_shapes[0], self.result_shapes[0], strict=True)
        ):
            if size == result_size:
                self.everywhere(dimension, size, local=local)
            else:
                self.everywhere(dimension, size, kind, blocked=blocked, local=local)
        return self

    def build(self) -> Rule:
        """Return the rule."""
        for tensors in (self._operands, self._results):
            for tensor in tensors:
                for factors in tensor:
                    if not factors:
                        factors.append(len(self.sizes))
                        self.sizes.append(1)
                        self.kinds.append(PASS)
        return Rule(
            tuple(self.sizes),
            tuple(tuple(map(tuple, tensor)) for tensor in self._operands),
            tuple(tuple(map(tuple, tensor)) for tensor in self._results),
            tuple(self.kinds),
            frozenset(self.blocked),
            local=tuple(self.local),
        )


#: Returns an op's rule.
Maker = Callable[[Op], Rule]

_RULES: dict[str, Maker] = {}
_CUSTOM_CALLS: dict[str, Maker] = {}
#: Ops for which Shardy has no rule.
_OURS: set[str] = set()


def rule(*names: str, published: bool = True) -> Callable[[Maker], Maker]:
    """Return a decorator that registers a rule for the ops named; `published`: whether Shardy has a rule for them."""

    def add(maker: Maker) -> Maker:
        for name in names:
            if name in _RULES:
                raise ValueError(f"{name} has two rules")
            _RULES[name] = maker
            if not published:
                _OURS.add(name)
        return maker

    return add


def register(target: str) -> Callable[[Maker], Maker]:
    """Return a decorator that registers, or replaces, the rule of custom calls of `target`.

    The rule must be exact: the call is executed on blocks as if they were complete arrays.
    """

    def add(maker: Maker) -> Maker:
        _CUSTOM_CALLS[target] = maker
        return maker

    return add


def replicated_rule(op: Op) -> Rule:
    """Return the rule of ops without one: no dimension may be sharded."""
    return RuleBuilder(op).build()


def rules() -> dict[str, Maker]:
    """Return all rules by op name."""
    return _RULES


def rule_of(op: Op) -> Rule:
    """Return the rule of `op`: the one on the op, else the registered one, else a replicated one."""
    attribute = op.discardable.get(RULE_NAME)
    return from_attribute(attribute) if isinstance(attribute, sdy.OpShardingRule) else _own_rule(op)


def local_rule(op: Op) -> Rule:
    """Return the rule of `op` with the kinds that hold for blocks; a rule on a custom call itself is trusted."""
    attribute = op.discardable.get(RULE_NAME) if op.name == _CALL else None
    own = from_attribute(attribute) if isinstance(attribute, sdy.OpShardingRule) else _own_rule(op)
    if not own.local:
        return own
    kinds = list(own.kinds)
    for factor, kind in own.local:
        kinds[factor] = kind
    return replace(own, kinds=tuple(kinds), local=())


def published_rule(op: Op, users: Iterable[Op] = (), maker: Maker | None = None) -> Rule | None:
    """Return the rule that Shardy has for `op`; None if it has none.

    `users` are the users of the results of `op`; `maker` returns rules instead of `rule_of`.
    """
    maker = maker or rule_of
    if RULE_NAME in op.discardable:
        return maker(op)
    if not is_known(op) or op.name in _OURS or not _is_static(op) or not op.results:
        return None
    if op.name == _CALL and op["call_target_name"] == "X64Combine" and any(user.name == _RANDOM for user in users):
        return _state_rule(op)
    is_empty = op.name == "stablehlo.reshape" and 0 in op.result.tensor.static_shape
    return maker(op) if not is_empty and isinstance(op.results[0].type, TensorType) else None


_CALL, _RANDOM = "stablehlo.custom_call", "stablehlo.rng_bit_generator"


def _state_rule(op: Op) -> Rule:
    """Return the rule of a random state that is combined from halves, which must be replicated."""
    builder = RuleBuilder(op)
    return builder.everywhere(0, builder.result_shapes[0][0], REPLICATE, blocked=True).build()


def _is_static(op: Op) -> bool:
    return all(type.is_static for type in (*op.operand_types, *op.result_types) if isinstance(type, TensorType))


def _own_rule(op: Op) -> Rule:
    if not _is_static(op):
        raise ValueError(f"{op.name} has dynamic shapes, which cannot be cut")
    table = rules()
    maker = _CUSTOM_CALLS.get(op["call_target_name"], _batch_rule) if op.name == _CALL else table.get(op.name)
    return replicated_rule(op) if maker is None else maker(op)


def _batch_rule(op: Op) -> Rule:
    """The rule of a custom call that says how many dimensions are a batch, as JAX writes it: these pass."""
    builder = RuleBuilder(op)
    attributes = op.discardable.get("mhlo.frontend_attributes")
    count = attributes.entries.get("num_batch_dims") if isinstance(attributes, DictAttr) else None
    digits = count.value if isinstance(count, StringAttr) else "0"
    rank = int(digits) if digits.isdecimal() else 0
    batches = {shape[:rank] for shape in (*builder.operand_shapes, *builder.result_shapes)}
    if len(batches) == 1:
        for dimension, size in enumerate(batches.pop()):
            builder.everywhere(dimension, size)
    return builder.build()


def is_known(op: Op) -> bool:
    """Return whether `op` has a rule, registered or on the op itself."""
    if RULE_NAME in op.discardable:
        return True
    table = rules()
    return op["call_target_name"] in _CUSTOM_CALLS if op.name == _CALL else op.name in table
