"""Factor rules: what they hold, how one is built, and the table of all rules by op.

A factor is a dimension of the computation, as the letters of an einsum are. A dimension of an operand or result is one
factor, or several for a reshape (major first). Source: Shardy's documentation, "Propagation" (operation sharding rule,
compound factors) and OpShardingRuleAttr (factor types).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module

from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.sdy_attributes import RULE_NAME
from spmd.ir import Op
from spmd.types import TensorType

#: Kinds of factors. PASS: no communication when all tensors are cut alike. REDUCE: cut operands give partial results.
#: REPLICATE: must not be cut. PERMUTE: cut dimensions exchange elements with their neighbours.
PASS, REDUCE, REPLICATE, PERMUTE = "pass", "reduce", "replicate", "permute"

#: Factors of each dimension of one tensor.
Mapping = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Rule:
    """The factors of one op. `blocked`: factors along which shardings do not propagate."""

    sizes: tuple[int, ...]
    operands: tuple[Mapping, ...]
    results: tuple[Mapping, ...]
    kinds: tuple[str, ...]
    blocked: frozenset[int] = frozenset()
    is_custom: bool = False

    @cached_property
    def tensors(self) -> tuple[Mapping, ...]:
        """Operands, then results."""
        return (*self.operands, *self.results)

    @cached_property
    def places(self) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        """Where each factor stands: (tensor, dimension, position among the dimension's factors)."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in self.sizes]
        for tensor, mapping in enumerate(self.tensors):
            for dimension, factors in enumerate(mapping):
                for position, factor in enumerate(factors):
                    found[factor].append((tensor, dimension, position))
        return tuple(map(tuple, found))

    def of_kind(self, kind: str) -> tuple[int, ...]:
        return tuple(factor for factor, have in enumerate(self.kinds) if have == kind)

    def attribute(self) -> sdy.OpShardingRule:
        """The rule as Shardy writes it."""

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


def from_attribute(given: sdy.OpShardingRule) -> Rule:
    """A rule that a program carries on an op."""
    kinds = [PASS] * len(given.factor_sizes)
    for kind, factors in ((REDUCE, given.reduction), (REPLICATE, given.need_replication), (PERMUTE, given.permutation)):
        for factor in factors:
            kinds[factor] = kind

    def mappings(tensors: Sequence[sdy.TensorMapping]) -> tuple[Mapping, ...]:
        return tuple(tuple(dimension.factors for dimension in tensor.dimensions) for tensor in tensors)

    return Rule(
        given.factor_sizes,
        mappings(given.operands),
        mappings(given.results),
        tuple(kinds),
        frozenset(given.blocked_propagation),
        given.is_custom,
    )


def shape_of(value_type: object) -> tuple[int, ...]:
    """The static shape of a tensor; () for anything else."""
    return value_type.static_shape if isinstance(value_type, TensorType) else ()


@dataclass
class RuleBuilder:
    """Builds the rule of `op` factor by factor. Dimensions left out get a factor of their own, never to be cut."""

    op: Op
    sizes: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)

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
    ) -> RuleBuilder:
        """Adds a factor that is dimension `operands[i]` of operand i (None: not in it), and so for results."""
        index = len(self.sizes)
        self.sizes.append(size)
        self.kinds.append(kind)
        if blocked:
            self.blocked.add(index)
        for tensors, places in ((self._operands, operands), (self._results, results)):
            for tensor, dimension in zip(tensors, places, strict=False):
                if dimension is not None:
                    tensor[dimension].append(index)
        return self

    def everywhere(self, dimension: int, size: int, kind: str = PASS, *, blocked: bool = False) -> RuleBuilder:
        """Adds a factor that is `dimension` of every operand of that rank or more, and of every result."""
        rank = max((len(shape) for shape in (*self.operand_shapes, *self.result_shapes)), default=0)
        operands = [dimension if len(shape) == rank else None for shape in self.operand_shapes]
        results = [dimension if len(shape) == rank else None for shape in self.result_shapes]
        return self.factor(operands, results, size, kind, blocked=blocked)

    def one_by_one(self) -> RuleBuilder:
        """Adds a factor for each dimension of each operand, which it shares with the result in the same place."""
        for index, shape in enumerate(self.operand_shapes):
            for dimension, size in enumerate(shape):
                places = [None] * index + [dimension]
                self.factor(places, places, size)
        return self

    def build(self) -> Rule:
        for tensors, shapes in ((self._operands, self.operand_shapes), (self._results, self.result_shapes)):
            for tensor, shape in zip(tensors, shapes, strict=True):
                for factors, size in zip(tensor, shape, strict=True):
                    if not factors:
                        factors.append(len(self.sizes))
                        self.sizes.append(size)
                        self.kinds.append(REPLICATE)
        return Rule(
            tuple(self.sizes),
            tuple(tuple(map(tuple, tensor)) for tensor in self._operands),
            tuple(tuple(map(tuple, tensor)) for tensor in self._results),
            tuple(self.kinds),
            frozenset(self.blocked),
        )


#: Gives an op's rule.
Maker = Callable[[Op], Rule]

_RULES: dict[str, Maker] = {}
_CUSTOM_CALLS: dict[str, Maker] = {}
_FAMILIES = (
    "chlo",
    "collective",
    "communication",
    "contraction",
    "control_flow",
    "data_movement",
    "elementwise",
    "indexing",
    "linear_algebra",
    "random",
    "reduction",
    "sdy",
)


def rule(*names: str) -> Callable[[Maker], Maker]:
    """Decorator: files a rule under the names of the ops it serves."""

    def add(maker: Maker) -> Maker:
        for name in names:
            if name in _RULES:
                raise ValueError(f"{name} has two rules")
            _RULES[name] = maker
        return maker

    return add


def register(target: str) -> Callable[[Maker], Maker]:
    """Decorator for users: the function gives the rule of custom calls of `target`; it replaces one there was.

    The rule is the whole truth on how the call may be cut: the call runs on blocks as if they were whole arrays.
    """

    def add(maker: Maker) -> Maker:
        _CUSTOM_CALLS[target] = maker
        return maker

    return add


def replicated_rule(op: Op) -> Rule:
    """No dimension may be cut: what an op has that nobody gave a rule."""
    return RuleBuilder(op).build()


def rules() -> dict[str, Maker]:
    """All rules by op name."""
    _load()
    return _RULES


@cache
def _load() -> None:
    for family in _FAMILIES:
        import_module(f"partitioner.rules.{family}")


def custom_call_rule(op: Op) -> Rule:
    maker = _CUSTOM_CALLS.get(op["call_target_name"])
    return replicated_rule(op) if maker is None else maker(op)


def rule_of(op: Op) -> Rule:
    """The rule of `op`: the one it carries, else the one registered for it, else nothing may be cut."""
    given = op.discardable.get(RULE_NAME)
    if isinstance(given, sdy.OpShardingRule):
        return from_attribute(given)
    types = (*op.operand_types, *op.result_types)
    if any(isinstance(type, TensorType) and not type.is_static for type in types):
        raise ValueError(f"{op.name} has dynamic shapes, which cannot be cut")
    table = rules()
    maker = custom_call_rule if op.name == "stablehlo.custom_call" else table.get(op.name)
    return replicated_rule(op) if maker is None else maker(op)


def is_known(op: Op) -> bool:
    """Whether somebody gave `op` a rule."""
    if RULE_NAME in op.discardable:
        return True
    if op.name == "stablehlo.custom_call":
        return op["call_target_name"] in _CUSTOM_CALLS
    return op.name in rules()
