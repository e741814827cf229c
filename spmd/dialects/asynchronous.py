"""Ops that start work and wait for it. Source: StableHLO specification, async_start and async_done."""

from __future__ import annotations

from spmd.dialects import type_sets
from spmd.dialects.checks import listed, parameters, returned, signature
from spmd.dialects.core import Trait, define, has_trait, operand, region, result
from spmd.ir import Op
from spmd.types import FutureType, Type

ASYNC_START = define(
    "stablehlo.async_start",
    operands=[operand("operands", variadic=True)],
    results=[result("result", type_sets.FUTURE)],
    regions=[region("body")],
    traits=[Trait.ISOLATED, Trait.READS_CONTEXT],
)

_SLICES = ("stablehlo.slice", "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice")


@ASYNC_START.constraint("C1", "body must have one op and a return")
def _(op: Op) -> str | None:
    count = len(op.regions[0].block.ops)
    return None if count == 2 else f"{count} ops"


@ASYNC_START.constraint("C2", "the op in body must be a collective or a slice")
def _(op: Op) -> str | None:
    inner = op.regions[0].block.ops[0]
    return None if has_trait(inner, Trait.COLLECTIVE) or inner.name in _SLICES else inner.name


@ASYNC_START.constraint("C3", "operands must have the types of body's arguments")
def _(op: Op) -> str | None:
    body = op.regions[0]
    return None if op.operand_types == parameters(body) else f"{listed(op.operand_types)} for {signature(body)}"


@ASYNC_START.constraint("C4", "body must return one value")
def _(op: Op) -> str | None:
    return None if len(returned(op.regions[0])) == 1 else signature(op.regions[0])


ASYNC_START.infers("C4", "the result is a future of what body returns")(
    lambda op: [FutureType(tuple(returned(op.regions[0])))]
)

ASYNC_DONE = define(
    "stablehlo.async_done",
    operands=[operand("operand", type_sets.FUTURE)],
    results=[result("results", variadic=True)],
)


@ASYNC_DONE.infers("C1", "the results are what the future holds")
def _(op: Op) -> list[Type]:
    future = op.operands[0].type
    assert isinstance(future, FutureType)
    return list(future.types)


@ASYNC_DONE.constraint("C1", "the future must hold one value")
def _(op: Op) -> str | None:
    future = op.operands[0].type
    assert isinstance(future, FutureType)
    return None if len(future.types) == 1 else str(future)
