"""Constructs ops by name, according to their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spmd.dialects.core import OPS
from spmd.errors import UNKNOWN, Location
from spmd.ir import AttributeValue, Block, Function, Op, Region, Value, new_op
from spmd.types import FunctionType, TensorType, Type


def make_op(
    name: str,
    operands: Iterable[Value] = (),
    result_types: Iterable[Type] | None = (),
    attributes: Mapping[str, AttributeValue] | None = None,
    regions: Iterable[Region] = (),
    *,
    location: Location = UNKNOWN,
) -> Op:
    """Return a new op `name`; raises KeyError if it is not declared. `result_types` are inferred if None."""
    operands, regions = tuple(operands), tuple(regions)
    if result_types is None:
        rule = OPS[name].rule
        assert rule is not None, f"{name} requires result types"
        result_types = rule(new_op(name, operands, (), attributes, regions, definition=OPS[name]))
    return new_op(name, operands, result_types, attributes, regions, definition=OPS[name], location=location)


def make_reducer(name: str, scalar: TensorType, *, location: Location = UNKNOWN) -> Region:
    """Return a region that applies op `name` to two scalars."""
    block = Block([scalar, scalar])
    op = make_op(name, block.arguments, [scalar], location=location)
    block.ops += [op, make_op(f"{name.partition('.')[0]}.return", op.results, location=location)]
    return Region([block])


def make_function(symbol: str, body: Block, *, location: Location = UNKNOWN) -> Function:
    """Return a private function `symbol`, whose body must end in func.return."""
    results = tuple(value.type for value in body.terminator.operands)
    attributes = {
        "sym_name": symbol,
        "sym_visibility": "private",
        "function_type": FunctionType(tuple(value.type for value in body.arguments), results),
    }
    function = new_op("func.func", (), (), attributes, [Region([body])], definition=OPS["func.func"], location=location)
    assert isinstance(function, Function)
    return function
