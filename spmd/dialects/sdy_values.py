"""Looks up the sharding annotations of values: on the value, its defining op, or its data-flow edge.

Source: Shardy's dialect documentation, DataFlowEdgeOp and ShardableDataFlowOpInterface (edges and their owners).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spmd.dialects import sdy_attributes as sdy
from spmd.dialects.sdy_attributes import SHARDING_NAME
from spmd.ir import Block, Function, Module, Op, Value

#: Ops whose results own data-flow edges, those of their regions' arguments.
_RESULT_OWNERS = frozenset(("stablehlo.while", "stablehlo.case", "stablehlo.optimization_barrier"))
#: Ops with data-flow edges into and out of their body, owned by the body's arguments and the results.
_COMPUTATIONS = frozenset(("sdy.manual_computation", "sdy.named_computation"))
_LAYING_OUT = frozenset(("sdy.sharding_constraint", "sdy.reshard", "sdy.data_flow_edge"))


class GivenShardings:
    """Looks up sharding annotations of the values of `module`."""

    def __init__(self, module: Module) -> None:
        self._parents: dict[Block, Op] = {}
        self._users: dict[Value, list[Op]] = {}
        for op in module.walk():
            for region in op.regions:
                for block in region.blocks:
                    self._parents[block] = op
            for operand in op.operands:
                self._users.setdefault(operand, []).append(op)

    def uses(self, value: Value) -> int:
        """Return the number of uses of `value`."""
        return len(self._users.get(value, ()))

    def owner(self, value: Value) -> Op | None:
        """Return the op that defines `value`, or the parent op of the block whose argument it is."""
        owner = value.owner
        return self._parents.get(owner) if isinstance(owner, Block) else owner

    def of(self, value: Value) -> sdy.TensorSharding | None:
        """Return the sharding annotation of `value`, or None."""
        op = self.owner(value)
        if op is None:
            return None
        if op.name in _RESULT_OWNERS and isinstance(value.owner, Block):
            if value.index >= len(op.results) or op.name == "stablehlo.case":
                return None
            value = op.results[value.index]
        if op.name in _RESULT_OWNERS or op.name in _COMPUTATIONS:
            users = self._users.get(value, [])
            if len(users) == 1 and users[0].name == "sdy.data_flow_edge":
                value, op = users[0].result, users[0]
        return _of_argument(op, value.index) if isinstance(value.owner, Block) else _of_result(op, value.index)

    def past_barriers(self, value: Value) -> sdy.TensorSharding | None:
        """Return the sharding annotation of `value`, looking through propagation barriers."""
        op = value.defining_op
        while op is not None and op.name == "sdy.propagation_barrier":
            value = op.operands[0]
            op = value.defining_op
        return self.of(value)


def _of_argument(op: Op, index: int) -> sdy.TensorSharding | None:
    if isinstance(op, Function):
        return _tensor_sharding(op.argument_attributes[index])
    if op.name not in _COMPUTATIONS:
        return None
    sharding = _entry(op["in_shardings"], index)
    if sharding is None or op.name == "sdy.named_computation":
        return sharding
    return without_axes(sharding, frozenset(op["manual_axes"].axes))


def _of_result(op: Op, index: int) -> sdy.TensorSharding | None:
    if op.name in _LAYING_OUT:
        sharding: sdy.TensorSharding | None = op["sharding"]
        return sharding
    if op.name in _COMPUTATIONS:
        return _entry(op["out_shardings"], index)
    if is_collective(op):
        sharding = op["out_sharding"]
        return sharding
    return _entry(op.discardable.get(SHARDING_NAME), index)


def is_collective(op: Op) -> bool:
    """Return whether `op` is one of sdy's collectives."""
    return op.name.startswith("sdy.") and op.definition is not None and "out_sharding" in op.definition.attribute_table


def _tensor_sharding(entries: Mapping[str, object]) -> sdy.TensorSharding | None:
    attribute = entries.get(SHARDING_NAME)
    return attribute if isinstance(attribute, sdy.TensorSharding) else None


def _entry(attribute: object, index: int) -> sdy.TensorSharding | None:
    if not isinstance(attribute, sdy.ShardingPerValue) or index >= len(attribute.shardings):
        return None
    return attribute.shardings[index]


def without_axes(sharding: sdy.TensorSharding, names: frozenset[str]) -> sdy.TensorSharding:
    """Return `sharding` inside a computation that is manual over the axes `names`."""

    def free(axes: tuple[sdy.AxisRef, ...]) -> tuple[sdy.AxisRef, ...]:
        return tuple(axis for axis in axes if axis.name not in names)

    dimensions = tuple(replace(dimension, axes=free(dimension.axes)) for dimension in sharding.dimensions)
    return replace(
        sharding, dimensions=dimensions, replicated=free(sharding.replicated), unreduced=free(sharding.unreduced)
    )
