"""XlaComputation, the result of a builder, and its inlining into another program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from spmd import types as t
from spmd.builder.shape import ProgramShape
from spmd.dialects.make import make_op
from spmd.errors import UNKNOWN, Location
from spmd.ir import Block, Module, Op, Region, Value, copy_op

_SERIAL = itertools.count()
W = TypeVar("W", bound="Callable[[XlaComputation], Module]")


class _Writers:
    """The functions that convert a computation, registered by modules of higher layers when they are loaded."""

    to_module: Callable[[XlaComputation], Module]
    print_hlo: Callable[[Module, str], str]


_writers = _Writers()


def writes_modules(writer: W) -> W:
    """Register `writer`, which converts a computation to a module."""
    _writers.to_module = writer
    return writer


def writes_hlo(writer: Callable[[Module, str], str]) -> None:
    """Register `writer`, which writes a module as HLO text under a name."""
    _writers.print_hlo = writer


#: Attributes that name a computation, or several.
CALLEES = frozenset(("callee", "decomposition", "called_computations"))
#: The attribute that carries a GSPMD sharding.
SHARDING = "mhlo.sharding"


@dataclass(eq=False, repr=False)
class XlaComputation:
    """A computation: parameters, ops and a result. Made by a builder's `Build`, immutable from then on.

    `called` maps the names by which its ops call computations to these; `parameter_shardings` holds GSPMD's text for
    each annotated parameter, `result_shardings` for each result (none, or all).
    """

    _name: str
    block: Block
    result: Value
    _shape: ProgramShape
    called: dict[str, XlaComputation]
    parameter_shardings: tuple[str | None, ...] = ()
    result_shardings: tuple[str, ...] = ()
    #: Compiled forms, by client.
    loaded: dict[object, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.symbol = f"{self._name}.{next(_SERIAL)}"

    def name(self) -> str:
        return self._name

    def program_shape(self) -> ProgramShape:
        """Return the shapes of parameters and result."""
        return self._shape

    GetProgramShape = program_shape

    def to_stablehlo(self) -> Module:
        """Return the computation as a module: the entry is @main, every called computation a private function.

        If the result is a tuple, its elements are the function's results.
        """
        return _writers.to_module(self)

    def as_hlo_text(self) -> str:
        """Return the computation in XLA's HLO text."""
        return _writers.print_hlo(self.to_stablehlo(), self._name)

    @property
    def parameter_types(self) -> list[t.Type]:
        return [argument.type for argument in self.block.arguments]

    @property
    def result_leaves(self) -> list[t.Type]:
        """Return the types of the result's leaves."""
        return leaf_types(self.result.type)

    def __repr__(self) -> str:
        return f"<XlaComputation {self._name}: {self._shape}>"


def leaf_types(type: t.Type) -> list[t.Type]:
    """Return the types of the arrays and tokens in a value of `type`, in order."""
    if isinstance(type, t.TupleType):
        return [leaf for part in type.types for leaf in leaf_types(part)]
    return [type]


def make(
    block: Block,
    name: str,
    operands: Iterable[Value],
    types: Iterable[t.Type],
    attributes: dict[str, object] | None = None,
    regions: Iterable[Region] = (),
    location: Location = UNKNOWN,
) -> Op:
    """Append an op with known result types to `block`."""
    op = make_op(name, operands, types, attributes, regions, location=location)
    block.ops.append(op)
    return op


def known_parts(value: Value) -> tuple[Value, ...] | None:
    """Return the elements of a tuple if the op that makes it is known."""
    origin = value.defining_op
    return origin.operands if origin is not None and origin.name == "stablehlo.tuple" else None


def element_of(block: Block, value: Value, index: int, location: Location = UNKNOWN) -> Value:
    """Return element `index` of a tuple, forwarded from the op that makes the tuple if that is known."""
    if (parts := known_parts(value)) is not None:
        return parts[index]
    assert isinstance(value.type, t.TupleType)
    kind = value.type.types[index]
    return make(block, "stablehlo.get_tuple_element", [value], [kind], {"index": index}, location=location).result


def unpack(block: Block, value: Value, location: Location = UNKNOWN) -> list[Value]:
    """Return the leaves of a value, in order."""
    if not isinstance(value.type, t.TupleType):
        return [value]
    parts = (element_of(block, value, index, location) for index in range(len(value.type.types)))
    return [leaf for part in parts for leaf in unpack(block, part, location)]


def pack(block: Block, type: t.Type, leaves: Sequence[Value], location: Location = UNKNOWN) -> Value:
    """Return the value of `type` with these leaves: the inverse of `unpack`."""
    if not isinstance(type, t.TupleType):
        (value,) = leaves
        return value
    parts, start = [], 0
    for part in type.types:
        count = len(leaf_types(part))
        parts.append(pack(block, part, leaves[start : start + count], location))
        start += count
    return make(block, "stablehlo.tuple", parts, [type], location=location).result


def inline(block: Block, computation: XlaComputation, arguments: Sequence[Value]) -> Value:
    """Copy the ops of `computation` into `block`, with `arguments` for its parameters, and return its result."""
    values = dict(zip(computation.block.arguments, arguments, strict=True))
    for op in computation.block.ops:
        is_element = op.name == "stablehlo.get_tuple_element"
        if is_element and (parts := known_parts(values[op.operands[0]])) is not None:
            values[op.result] = parts[op["index"]]
        else:
            block.ops.append(copy_op(op, values))
    return values[computation.result]


def region_of(computation: XlaComputation, argument_types: Sequence[t.Type], captured: Sequence[Value] = ()) -> Region:
    """Return a region that runs `computation` and returns its leaves.

    The block's arguments, of `argument_types`, are the leaves of the computation's first parameters; `captured` are
    its last ones.
    """
    block = Block(argument_types)
    arguments, start = [], 0
    for type in computation.parameter_types[: len(computation.parameter_types) - len(captured)]:
        count = len(leaf_types(type))
        arguments.append(pack(block, type, block.arguments[start : start + count]))
        start += count
    result = inline(block, computation, [*arguments, *captured])
    make(block, "stablehlo.return", unpack(block, result), [])
    drop_unused_tuples(block)
    return Region([block])


_OF_TUPLES = frozenset(("stablehlo.tuple", "stablehlo.get_tuple_element"))


def drop_unused_tuples(block: Block) -> None:
    """Remove unused tuple ops and element extractions in `block`."""
    used: set[Value] = set()
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.name in _OF_TUPLES and op.result not in used:
            continue
        kept.append(op)
        for inner in op.walk() if op.regions else (op,):
            used.update(inner.operands)
    block.ops[:] = reversed(kept)
