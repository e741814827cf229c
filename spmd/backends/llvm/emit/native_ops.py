"""Ops that are no loop nests and yet native code, by their names, and ops that native code has Python run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from spmd.backends.llvm.emit.function_emitter import FunctionWriter
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.target import LibraryPlan
from spmd.ir import Op, captured_values
from spmd.support.processor import Processor
from spmd.types import TokenType, Type

#: Writes a step of an op that is no loop nest: (writer, step).
Handler = Callable[[FunctionWriter, Any], None]


class Machine(Protocol):
    """What the plan of an op depends on: see spmd.backends.llvm.target."""

    @property
    def threads(self) -> int: ...

    @property
    def processor(self) -> Processor: ...

    @property
    def in_fixed_order(self) -> bool: ...


#: The plan of an op: (op, machine, bytes of an image of a convolution whose images are made one at a time).
Planner = Callable[[Op, Machine, int | None], LibraryPlan]


@dataclass(frozen=True)
class NativeOp:
    """How an op that is no loop nest is written; `supports` says whether it can be, with its types and attributes."""

    write: Handler
    supports: Callable[[Op], bool]
    plan: Planner


NATIVE: dict[str, NativeOp] = {}

#: The native function that calls Python: the number of a callback and the addresses of its arrays in, 0 out if all is
#: well.
CALL = "spmd.call"


def native(
    name: str, supports: Callable[[Op], bool], plan: Planner = lambda op, machine, image_bytes: LibraryPlan()
) -> Callable[[Handler], Handler]:
    """Decorator: files what writes the op `name`; `plan` says in how many tasks it runs, and with what memory."""

    def add(handler: Handler) -> Handler:
        NATIVE[name] = NativeOp(handler, supports, plan)
        return handler

    return add


def supports(op: Op) -> bool:
    """Return whether `op`, which is part of no loop nest, has a native form."""
    known = NATIVE.get(op.name)
    return known is not None and known.supports(op)


def lies_in_buffers(type: Type) -> bool:
    """Return whether values of `type` can be handed from op to op in native code: tokens take no memory."""
    return is_plain(type) or isinstance(type, TokenType)


def can_call_back(op: Op) -> bool:
    """Return whether native code can have Python run `op`: all that goes in and out lies in buffers."""
    captured = captured_values(op) if op.regions else ()
    return all(lies_in_buffers(value.type) for value in (*op.operands, *captured, *op.results))
