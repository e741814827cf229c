"""The registry of ops that have native code but are no loop nests, and ops that native code runs by callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from spmd.backends.llvm.emit.function_emitter import FunctionEmitter
from spmd.compiler.schedule.fusibility import is_plain
from spmd.compiler.schedule.target import LibraryPlan
from spmd.ir import Op, captured_values
from spmd.support.processor import Processor
from spmd.types import TokenType, Type

#: Emits a step of an op that is no loop nest: (emitter, step).
Handler = Callable[[FunctionEmitter, Any], None]


class PlanTarget(Protocol):
    """The properties of a target that plans of ops depend on: see spmd.backends.llvm.target."""

    @property
    def threads(self) -> int: ...

    @property
    def processor(self) -> Processor: ...

    @property
    def in_fixed_order(self) -> bool: ...


#: Returns the plan of an op: (op, target, bytes of one image of a convolution whose input is fused).
Planner = Callable[[Op, PlanTarget, int | None], LibraryPlan]


@dataclass(frozen=True)
class NativeOp:
    """The emitter of an op that is no loop nest; `supports` checks its types and attributes."""

    write: Handler
    supports: Callable[[Op], bool]
    plan: Planner


NATIVE: dict[str, NativeOp] = {}

#: The native function that calls Python: takes the number of a callback and the addresses of its arrays; returns 0 on
#: success.
CALL = "spmd.call"


def native(
    name: str, supports: Callable[[Op], bool], plan: Planner = lambda op, machine, image_bytes: LibraryPlan()
) -> Callable[[Handler], Handler]:
    """Register the emitter of op `name`; return a decorator. `plan` gives its tasks and scratch memory."""

    def add(handler: Handler) -> Handler:
        NATIVE[name] = NativeOp(handler, supports, plan)
        return handler

    return add


def supports(op: Op) -> bool:
    """Return whether `op`, which is no loop nest, has native code."""
    known = NATIVE.get(op.name)
    return known is not None and known.supports(op)


def has_buffer(type: Type) -> bool:
    """Return whether values of `type` have buffers in native code; tokens have empty ones."""
    return is_plain(type) or isinstance(type, TokenType)


def can_call_back(op: Op) -> bool:
    """Return whether native code can run `op` by a callback: its operands and results have buffers."""
    captured = captured_values(op) if op.regions else ()
    return all(has_buffer(value.type) for value in (*op.operands, *captured, *op.results))
