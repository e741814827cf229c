"""Lowering of the global program to the per-process program, op by op.

`Lowering` maps each global value to per-process values with their layouts. The handler of an op gets operands in the
layouts that it needs (`get`) and registers its results (`set`). Reshards are reused by later users, and those of
outer values are hoisted out of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from partitioner.emit import Emitter
from partitioner.lowering.assign import Assignment, Known, candidates, reduced, sharding_of
from partitioner.lowering.unreduced import layout_cost, same_layout, to_layout
from partitioner.manual import copy_local
from partitioner.mesh import Axes, DeviceMesh
from partitioner.program import ImportedProgram
from partitioner.reading import ShardingReader
from partitioner.record import PartitionRecord, Reshard
from partitioner.reshard import cost
from partitioner.rules.core import PASS, REDUCE, Rule
from partitioner.sharding import Sharding, replicated
from partitioner.unreduced_values import unreduced_values
from spmd.analysis.shardings import GSPMD_NAME
from spmd.dialects.sdy_attributes import SHARDING_NAME
from spmd.errors import UNKNOWN, Diagnostic, InternalError
from spmd.ir import AttributeValue, Block, NumberedValue, Op, Region, Value, captured_values
from spmd.types import TensorType, Type


@dataclass(frozen=True)
class Local:
    """A per-process value of a global one, and `depth`, the nesting depth of the block that defines it."""

    value: Value
    sharding: Sharding
    depth: int


@dataclass
class OpenBlock:
    """A block under construction; out of a loop (`is_loop`), reshards of outer values are hoisted."""

    ops: list[Op]
    is_loop: bool
    entries: list[tuple[Value, Local]]


#: Lowers one op.
Handler = Callable[["Lowering", Op], None]
_SHARDINGS = ("sdy.", "mhlo.sharding", "mhlo.frontend")
#: The key of the handler of ops of a single device.
ON_DEVICE = "of a single device"
#: Handlers by op name; "" is the default. Filled by the package's modules.
_HANDLERS: dict[str, Handler] = {}


def lowers(*names: str) -> Callable[[Handler], Handler]:
    """Return a decorator that registers the lowering of the ops named."""

    def add(handler: Handler) -> Handler:
        for name in names:
            _HANDLERS[name] = handler
        return handler

    return add


class Lowering:
    """The state of lowering one program."""

    def __init__(
        self,
        program: ImportedProgram,
        reader: ShardingReader,
        layouts: dict[Value, Sharding],
        emitter: Emitter,
        record: PartitionRecord | None = None,
    ) -> None:
        self.program = program
        self.reader = reader
        self.layouts = layouts
        self.emitter = emitter
        self.mesh: DeviceMesh = reader.mesh
        self.notes: list[str] = []
        self.record = record
        #: The op that is being lowered; None outside of ops.
        self.current: Op | None = None
        #: For each loop seen, the sub-axes of state entries that stay partial sums: see control_flow.
        self.partial_sums: dict[Op, dict[int, Axes]] = {}
        #: The values that the program declares unreduced, and over which sub-axes.
        self.unreduced = unreduced_values(program, reader)
        #: Whether ops are discarded, so that only the layouts of values matter.
        self.on_trial = False
        #: The sub-axes of the surrounding manual computations.
        self.manual: frozenset[int] = frozenset()
        self.uses: dict[Value, int] = {}
        self.users: dict[Value, list[Op]] = {}
        self._deferred: dict[Value, tuple[Op, int]] = {}
        self._forced: set[Value] = set()
        self._makers: dict[Value, Callable[[Sharding], Value]] = {}
        self._locals: dict[Value, list[Local]] = {}
        self._scopes: list[OpenBlock] = []
        for op in program.block.ops:
            for inner in op.walk():
                for operand in inner.operands:
                    self.uses[operand] = self.uses.get(operand, 0) + 1
                    self.users.setdefault(operand, []).append(inner)

    # --- values

    def target_sharding(self, value: Value) -> Sharding:
        """Return the propagated sharding of `value`."""
        layout = self.layouts.get(value)
        if layout is None:
            return replicated(self.mesh, value.tensor.rank)
        return layout if layout.mesh is self.mesh else replace(layout, mesh=self.mesh)

    def with_declared_partial(self, value: Value, layout: Sharding) -> Sharding:
        """Return `layout`, unreduced where the program declares `value` unreduced, else without partial sums."""
        whole = layout.without_partial()
        axes, kind = self.unreduced.get(value, ((), whole.reduction))
        return whole if whole.used.intersection(axes) else replace(whole, partial=axes, reduction=kind)

    def layouts_of(self, value: Value) -> tuple[Sharding, ...]:
        """Return the layouts in which `value` is available, in order of creation."""
        return tuple(entry.sharding for entry in self._entries(value))

    def current_sharding(self, value: Value) -> Sharding:
        """Return the layout in which `value` was computed."""
        return self._entries(value)[0].sharding

    def defer(self, op: Op) -> None:
        """Postpone `op` until its result is needed; otherwise it is never lowered."""
        self._deferred[op.result] = op, len(self._scopes) - 1

    def is_forced(self, value: Value) -> bool:
        """Return whether the op of `value` was deferred and is being lowered now."""
        return value in self._forced

    def _entries(self, value: Value) -> list[Local]:
        # While a deferred op is lowered in its original block, values of inner blocks are not available.
        entries = [entry for entry in self._locals.get(value, ()) if entry.depth < len(self._scopes)]
        if entries:
            return entries
        op, depth = self._deferred.pop(value)
        self._forced.add(value)
        ops, location = self.emitter.ops, self.emitter.location
        inner, self._scopes = self._scopes[depth + 1 :], self._scopes[: depth + 1]
        self.emitter.ops, self.emitter.location = self._scopes[-1].ops, op.location
        _HANDLERS[op.name](self, op)
        self._scopes += inner
        self._forced.discard(value)
        self.emitter.ops, self.emitter.location = ops, location
        return self._locals[value]

    def set(self, value: Value, local: Value, sharding: Sharding | None) -> None:
        """Register `local` as `value` in layout `sharding` (None: no tensor), adjusting the device order if needed."""
        if sharding is not None and sharding.mesh is not self.mesh:
            local = self._reordered(local, sharding, self.mesh)
            sharding = replace(sharding, mesh=self.mesh)
        annotation = self.program.annotations.get(value)
        if annotation is not None and annotation.device is not None and isinstance(value.owner, Block):
            local = self.emitter.broadcast_from(local, annotation.device)  # only that device has the value
        self._add(value, local, sharding or replicated(self.mesh, 0), len(self._scopes) - 1)

    def set_all(self, values: Sequence[Value], locals_: Sequence[Value], layouts: Sequence[Sharding | None]) -> None:
        """Register each of several values with `set`."""
        for value, local, layout in zip(values, locals_, layouts, strict=True):
            self.set(value, local, layout)

    def _reordered(self, local: Value, sharding: Sharding, order: DeviceMesh) -> Value:
        """Return the block that this process holds under the device order of the mesh `order`."""
        if not sharding.used:
            return local
        return self.emitter.permute(local, zip(sharding.mesh.devices.tolist(), order.devices.tolist(), strict=True))

    def _add(self, value: Value, local: Value, sharding: Sharding, depth: int) -> None:
        _check_block(value, local, sharding)
        entry = Local(local, sharding, depth)
        if local.name_hint is None:
            local.name_hint = value.name_hint
        self._locals.setdefault(value, []).append(entry)
        if self.record is not None and not self.on_trial:
            self.record.locals.setdefault(local, (value, sharding))
        self._scopes[depth].entries.append((value, entry))

    def set_rematerializable(self, value: Value, make: Callable[[Sharding], Value]) -> None:
        """Register `make`, which gives `value` in any layout at no cost, and make it in its target layout."""
        layout = self.target_sharding(value).without_partial()
        self._makers[value] = make
        self._add(value, make(layout), layout, len(self._scopes) - 1)

    def find_available(self, value: Value, dimensions: tuple[Axes, ...]) -> Value | None:
        """Return the per-process value with these dimension shardings that is not partial, or None."""
        for entry in self._entries(value):
            if entry.sharding.dimensions == dimensions and not entry.sharding.partial:
                return entry.value
        return None

    def get(self, value: Value, sharding: Sharding) -> Value:
        """Return `value` in layout `sharding`, resharded if needed."""
        entries = self._entries(value)
        if not isinstance(value.type, TensorType):
            return entries[0].value
        if sharding.mesh is not self.mesh:
            here = replace(sharding, mesh=self.mesh)
            return self._reordered(self.get(value, here), here, sharding.mesh)
        for entry in entries:
            if same_layout(entry.sharding, sharding):
                return entry.value
        if value in self._makers and not sharding.partial:
            value_there = self._makers[value](sharding)
            self._add(value, value_there, sharding, len(self._scopes) - 1)
            return value_there
        best = min(entries, key=lambda entry: layout_cost(value.tensor, entry.sharding, sharding))
        depth = self._depth_for(best.depth)
        outer, location = self.emitter.ops, self.emitter.location
        self.emitter.ops = self._scopes[depth].ops
        if best.sharding.partial and value.defining_op is not None:
            # A reduction gets the location of the op that it completes, any other reshard that of its user.
            self.emitter.location = value.defining_op.location
        before = len(self.emitter.ops)
        value_there = to_layout(self.emitter, best.value, value.tensor, best.sharding, sharding)
        if self.record is not None and not self.on_trial:
            self.record.resharded(self.emitter.ops[before:], Reshard(value, best.sharding, sharding, self.current))
        self.emitter.ops, self.emitter.location = outer, location
        self._add(value, value_there, sharding, depth)
        return value_there

    def _depth_for(self, depth: int) -> int:
        """Return the depth at which to reshard a value of `depth`: outside all loops in between."""
        at = len(self._scopes) - 1
        while at > depth and self._scopes[at].is_loop:
            at -= 1
        return at

    def price(self, value: Value, target: Sharding) -> float:
        """Return the cost of `get`, in bytes sent."""
        if value in self._makers and not target.partial:
            return 0.0
        return min(layout_cost(value.tensor, layout, target) for layout in self.layouts_of(value))

    def replicated(self, value: Value) -> Value:
        """Return `value` replicated (within manual code, over the free sub-axes)."""
        if not isinstance(value.type, TensorType):
            return self._entries(value)[0].value
        return self.get(value, replicated(self.mesh, value.tensor.rank))

    # --- blocks

    def block(self, block: Block, arguments: Sequence[Sharding | None], *, is_loop: bool) -> Block:
        """Return the lowered `block` without its terminator, its arguments having the layouts `arguments`."""
        local_block = Block(
            argument.type if layout is None else layout.local_type(argument.tensor)
            for argument, layout in zip(block.arguments, arguments, strict=True)
        )
        self.enter(local_block.ops, is_loop)
        for argument, local, layout in zip(block.arguments, local_block.arguments, arguments, strict=True):
            local.name_hint = argument.name_hint
            if isinstance(local, NumberedValue) and isinstance(argument, NumberedValue):
                local.locate_like(argument)
            self.set(argument, local, layout)
        self.ops(block.ops[:-1])
        return local_block

    @contextmanager
    def manual_over(self, axes: frozenset[int], mesh: DeviceMesh) -> Iterator[None]:
        """Lower in a context that is manual over `axes`, with the device order of `mesh`."""
        outer, outer_axes = self.mesh, self.manual
        self.mesh = self.emitter.mesh = mesh
        self.manual = outer_axes | axes
        yield
        self.mesh = self.emitter.mesh = outer
        self.manual = outer_axes

    def enter(self, ops: list[Op], is_loop: bool) -> None:
        """Open a block whose ops are appended to `ops`."""
        self._scopes.append(OpenBlock(ops, is_loop, []))
        self.emitter.ops = ops

    def leave(self) -> None:
        """Close the innermost block and forget the values defined in it."""
        scope = self._scopes.pop()
        for value, entry in reversed(scope.entries):
            self._locals[value].remove(entry)
        self.emitter.ops = self._scopes[-1].ops if self._scopes else []

    def ops(self, ops: Sequence[Op]) -> None:
        """Lower `ops` in order into the innermost block."""
        outer = self.current
        for op in ops:
            self.current, self.emitter.location = op, op.location
            name = op.name if self.device_of(op) is None else ON_DEVICE
            _HANDLERS.get(name, _HANDLERS[""])(self, op)
        self.current = outer

    def device_of(self, op: Op) -> int | None:
        """Return the device that computes `op` alone; None if all do.

        It is the annotated device or, for a call with side effects in the global program without annotation, the first
        device, so that the call is issued once.
        """
        device = self.program.devices.get(op)
        if device is not None or op.name != "stablehlo.custom_call" or not op["has_side_effect"]:
            return device
        is_annotated = SHARDING_NAME in op.discardable or GSPMD_NAME in op.discardable
        return None if is_annotated or self.mesh.size == 1 or self.manual_around(op) else 0

    def manual_around(self, op: Op) -> frozenset[int]:
        """Return the manual sub-axes of the code around `op`."""
        values = (*op.operands, *op.results)
        return self.manual.union(*(self.program.manual.get(value, frozenset()) for value in values))

    # --- ops

    def clone(
        self,
        op: Op,
        operands: Sequence[Value],
        results: Sequence[Sharding | None],
        attributes: dict[str, AttributeValue] | None = None,
        types: Sequence[Type] | None = None,
    ) -> Sequence[Value]:
        """Append `op` on per-process operands; its results have the local types of `results`."""
        result_types: Sequence[Type] = types or [
            value.type if layout is None or not isinstance(value.type, TensorType) else layout.local_type(value.tensor)
            for value, layout in zip(op.results, results, strict=True)
        ]
        copy = op.clone(
            operands, result_types, self.regions(op), None if attributes is None else {**op.attributes, **attributes}
        )
        if copy.discardable:
            copy.discardable = {key: value for key, value in copy.discardable.items() if not key.startswith(_SHARDINGS)}
        self.emitter.ops.append(copy)
        return copy.results

    def regions(self, op: Op) -> Sequence[Region]:
        """Return a copy of the regions of `op`, which work on scalars; captured values are replicated."""
        if not op.regions:
            return []
        values = {value: self.replicated(value) for value in captured_values(op) if value in self._locals}
        return copy_local(op, values).regions

    def known(self, op: Op) -> list[Known | None]:
        """Return the available layouts of operands and the target layouts of results."""
        operands: list[Known | None] = []
        for value in op.operands:
            is_tensor = isinstance(value.type, TensorType)
            operands.append(Known(self.layouts_of(value), _span(value)) if is_tensor else None)
        for value in op.results:
            is_tensor = isinstance(value.type, TensorType)
            operands.append(Known((self.target_sharding(value),), _span(value)) if is_tensor else None)
        return operands

    def choose(
        self,
        op: Op,
        rule: Rule,
        allowed: Callable[[int], bool] | None = None,
        extra: Callable[[Assignment], float] | None = None,
    ) -> Assignment:
        """Return the cheapest assignment of sub-axes to the factors of `op`; among equal ones, that with least work.

        The cost is `assignment_cost` plus `extra`.
        """
        usable = allowed or (lambda factor: rule.kinds[factor] in (PASS, REDUCE))
        best: tuple[tuple[float, float], Assignment] | None = None
        for assignment in candidates(self.mesh, rule, self.known(op), usable):
            spent = self.assignment_cost(op, rule, assignment) + (extra(assignment) if extra else 0.0)
            work = -float(sum(len(axes) for axes in assignment))
            if best is None or (spent, work) < best[0]:
                best = ((spent, work), assignment)
            if spent == 0.0 and best[1] is assignment and not extra:
                break
        assert best is not None
        return best[1]

    def assignment_cost(self, op: Op, rule: Rule, assignment: Assignment) -> float:
        """Return the cost of resharding operands and results for an assignment, in bytes sent."""
        spent = 0.0
        for value, mapping in zip(op.operands, rule.operands, strict=True):
            if isinstance(value.type, TensorType) and mapping:
                spent += self.price(value, sharding_of(self.mesh, mapping, assignment))
        partial = reduced(rule, assignment)
        for value, mapping in zip(op.results, rule.results, strict=True):
            if isinstance(value.type, TensorType) and (mapping or partial):
                unreduced = replace(sharding_of(self.mesh, mapping, assignment), partial=partial)
                spent += cost(value.tensor, unreduced, self.target_sharding(value).without_partial())
        return spent

    def note(self, op: Op, text: str) -> None:
        """Record a note to the user about `op`, with its location."""
        self.notes.append(f"{op.location}: {op.name}: {text}")


def _check_block(value: Value, local: Value, sharding: Sharding) -> None:
    """Raise InternalError if `local` does not have the shape of a block of `value` with this sharding."""
    if isinstance(value.type, TensorType) and local.tensor.shape != sharding.local_shape(value.tensor.static_shape):
        place = value.owner.location if isinstance(value.owner, Op) else UNKNOWN
        text = f"a block of {value.type} laid out as {sharding} is of type {local.type}"
        raise InternalError(Diagnostic(place, text, value.owner.name if isinstance(value.owner, Op) else ""))


def _span(value: Value) -> int:
    return prod(value.tensor.static_shape)
