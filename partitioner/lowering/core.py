"""From the global program to the local one, op by op.

`Lowering` maps each global value to its local values, each with a layout. The handler of an op gets operands in the
layouts that it needs (`get`) and files its results with theirs (`set`). A reshard is reused by later users; one that a
loop needs of a value from outside is hoisted out of the loop.
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
from partitioner.program import Program
from partitioner.reading import ShardingReader
from partitioner.record import PartitionRecord, Reshard
from partitioner.reshard import cost
from partitioner.rules.core import PASS, REDUCE, Rule
from partitioner.sharding import Sharding, replicated
from partitioner.unreduced_values import unreduced_values
from spmd.analysis.shardings import GSPMD_NAME
from spmd.dialects.sdy_attributes import SHARDING_NAME
from spmd.errors import UNKNOWN, Diagnostic, InternalError
from spmd.ir import AttributeValue, Block, Op, Region, Value, captured_values
from spmd.types import TensorType, Type


@dataclass(frozen=True)
class Local:
    """One local value of a global one. `depth`: the nesting of blocks in which it was made."""

    value: Value
    sharding: Sharding
    depth: int


@dataclass
class OpenBlock:
    """A block being written. `is_loop`: reshards of outer values may be hoisted out of it."""

    ops: list[Op]
    is_loop: bool
    entries: list[tuple[Value, Local]]


#: Writes the local form of one op.
Handler = Callable[["Lowering", Op], None]
_SHARDINGS = ("sdy.", "mhlo.sharding", "mhlo.frontend")
#: The name under which the handler of ops of a single device is filed.
ON_DEVICE = "of a single device"
#: The handler of each op name; "" has that of all others. The modules of the package fill it.
_HANDLERS: dict[str, Handler] = {}


def lowers(*names: str) -> Callable[[Handler], Handler]:
    """Decorator: files how ops of these names become local."""

    def add(handler: Handler) -> Handler:
        for name in names:
            _HANDLERS[name] = handler
        return handler

    return add


class Lowering:
    """The state of one partitioning."""

    def __init__(
        self,
        program: Program,
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
        #: The op that is being lowered; None outside of all.
        self.current: Op | None = None
        #: Of each loop seen, the entries of its state that stay partial sums: see control_flow.
        self.partial_sums: dict[Op, dict[int, Axes]] = {}
        #: What the program says is unreduced, and over what.
        self.unreduced = unreduced_values(program, reader)
        #: Whether the written ops are discarded: only the layouts of values are of interest.
        self.on_trial = False
        #: The sub-axes of the manual computations that are being lowered.
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
        """Return the layout that propagation gave `value`."""
        layout = self.layouts.get(value)
        if layout is None:
            return replicated(self.mesh, value.tensor.rank)
        return layout if layout.mesh is self.mesh else replace(layout, mesh=self.mesh)

    def with_shares(self, value: Value, layout: Sharding) -> Sharding:
        """`layout` where the shares of `value` stay shares, if the program says that it is unreduced; else whole."""
        whole = layout.whole()
        axes, kind = self.unreduced.get(value, ((), whole.reduction))
        return whole if whole.used.intersection(axes) else replace(whole, partial=axes, reduction=kind)

    def layouts_of(self, value: Value) -> tuple[Sharding, ...]:
        """Return the layouts in which `value` is available, in the order in which they were made."""
        return tuple(entry.sharding for entry in self._entries(value))

    def current_sharding(self, value: Value) -> Sharding:
        """Return the layout in which `value` was made."""
        return self._entries(value)[0].sharding

    def defer(self, op: Op) -> None:
        """Postpones `op` until its result is needed; it is never written if that does not happen."""
        self._deferred[op.result] = op, len(self._scopes) - 1

    def is_forced(self, value: Value) -> bool:
        """Return whether the op of `value` was postponed, and its result is needed now."""
        return value in self._forced

    def _entries(self, value: Value) -> list[Local]:
        # While a postponed op is written where it stands, what was made further in is not there.
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
        """File `local` as `value` in layout `sharding`, whose mesh may order devices differently (None: no tensor)."""
        if sharding is not None and sharding.mesh is not self.mesh:
            local = self._reordered(local, sharding, self.mesh)
            sharding = replace(sharding, mesh=self.mesh)
        annotation = self.program.annotations.get(value)
        if annotation is not None and annotation.device is not None and isinstance(value.owner, Block):
            local = self.emitter.broadcast_from(local, annotation.device)  # what others were given is not the value
        self._add(value, local, sharding or replicated(self.mesh, 0), len(self._scopes) - 1)

    def set_all(self, values: Sequence[Value], locals_: Sequence[Value], layouts: Sequence[Sharding | None]) -> None:
        """`set` of each value."""
        for value, local, layout in zip(values, locals_, layouts, strict=True):
            self.set(value, local, layout)

    def _reordered(self, local: Value, sharding: Sharding, order: DeviceMesh) -> Value:
        """Return the block that this process holds with the device order of the mesh `order`."""
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
        """Register `make`, which gives `value` in any layout at no cost, and makes it in its target layout."""
        layout = self.target_sharding(value).whole()
        self._makers[value] = make
        self._add(value, make(layout), layout, len(self._scopes) - 1)

    def find_available(self, value: Value, dimensions: tuple[Axes, ...]) -> Value | None:
        """Return the local value laid out so and not partial, if there is one."""
        for entry in self._entries(value):
            if entry.sharding.dimensions == dimensions and not entry.sharding.partial:
                return entry.value
        return None

    def get(self, value: Value, sharding: Sharding) -> Value:
        """`value` in layout `sharding`, resharded if it is not available so."""
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
            # A reduction has the location of the op that it completes, any other reshard that of its user.
            self.emitter.location = value.defining_op.location
        before = len(self.emitter.ops)
        value_there = to_layout(self.emitter, best.value, value.tensor, best.sharding, sharding)
        if self.record is not None and not self.on_trial:
            self.record.resharded(self.emitter.ops[before:], Reshard(value, best.sharding, sharding, self.current))
        self.emitter.ops, self.emitter.location = outer, location
        self._add(value, value_there, sharding, depth)
        return value_there

    def _depth_for(self, depth: int) -> int:
        """Return the scope for a reshard of a value made at `depth`: the outermost one that only loops separate from
        here."""
        at = len(self._scopes) - 1
        while at > depth and self._scopes[at].is_loop:
            at -= 1
        return at

    def price(self, value: Value, target: Sharding) -> float:
        """What `get` would cost, in bytes sent."""
        if value in self._makers and not target.partial:
            return 0.0
        return min(layout_cost(value.tensor, layout, target) for layout in self.layouts_of(value))

    def whole(self, value: Value) -> Value:
        """`value` whole on every process (those of a manual computation: on every one that shares its block)."""
        if not isinstance(value.type, TensorType):
            return self._entries(value)[0].value
        return self.get(value, replicated(self.mesh, value.tensor.rank))

    # --- blocks

    def block(self, block: Block, arguments: Sequence[Sharding | None], *, is_loop: bool) -> Block:
        """Return the local form of `block`, without its terminator; its arguments are laid out as `arguments` say."""
        local_block = Block(
            argument.type if layout is None else layout.local_type(argument.tensor)
            for argument, layout in zip(block.arguments, arguments, strict=True)
        )
        self.enter(local_block.ops, is_loop)
        for argument, local, layout in zip(block.arguments, local_block.arguments, arguments, strict=True):
            local.name_hint = argument.name_hint
            self.set(argument, local, layout)
        self.ops(block.ops[:-1])
        return local_block

    @contextmanager
    def manual_over(self, axes: frozenset[int], mesh: DeviceMesh) -> Iterator[None]:
        """Inside, code is manual over `axes`, and values are laid out over the devices as they stand in `mesh`."""
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
        """Closes the innermost block and drops the local values made in it."""
        scope = self._scopes.pop()
        for value, entry in reversed(scope.entries):
            self._locals[value].remove(entry)
        self.emitter.ops = self._scopes[-1].ops if self._scopes else []

    def ops(self, ops: Sequence[Op]) -> None:
        """Lower `ops` one after another into the innermost block."""
        outer = self.current
        for op in ops:
            self.current, self.emitter.location = op, op.location
            name = op.name if self.device_of(op) is None else ON_DEVICE
            _HANDLERS.get(name, _HANDLERS[""])(self, op)
        self.current = outer

    def device_of(self, op: Op) -> int | None:
        """Return the device that alone computes `op`; None where all do.

        It is the one that the program names. A call with side effects of which the global program names none is issued
        once, by the first device.
        """
        device = self.program.devices.get(op)
        if device is not None or op.name != "stablehlo.custom_call" or not op["has_side_effect"]:
            return device
        is_told = SHARDING_NAME in op.discardable or GSPMD_NAME in op.discardable
        return None if is_told or self.mesh.size == 1 or self.manual_around(op) else 0

    def manual_around(self, op: Op) -> frozenset[int]:
        """Return the sub-axes over which the code that `op` stands in is manual."""
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
        """Append `op` on local operands; its results have the local types of `results`."""
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
        """Copy of the regions of `op`, which work on scalars; what they capture is made whole."""
        if not op.regions:
            return []
        values = {value: self.whole(value) for value in captured_values(op) if value in self._locals}
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
        """Return the cheapest assignment of sub-axes to the factors of `op`: operands in, results out, least work if
        equal.

        It costs `assignment_cost` and what `extra` says.
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
        """What resharding operands and results costs with an assignment, in bytes sent."""
        spent = 0.0
        for value, mapping in zip(op.operands, rule.operands, strict=True):
            if isinstance(value.type, TensorType) and mapping:
                spent += self.price(value, sharding_of(self.mesh, mapping, assignment))
        partial = reduced(rule, assignment)
        for value, mapping in zip(op.results, rule.results, strict=True):
            if isinstance(value.type, TensorType) and (mapping or partial):
                unreduced = replace(sharding_of(self.mesh, mapping, assignment), partial=partial)
                spent += cost(value.tensor, unreduced, self.target_sharding(value).whole())
        return spent

    def note(self, op: Op, text: str) -> None:
        """Record, with its place, something about `op` that a user should be told."""
        self.notes.append(f"{op.location}: {op.name}: {text}")


def _check_block(value: Value, local: Value, sharding: Sharding) -> None:
    """InternalError for a local value that is no block of `value` laid out as `sharding`."""
    if isinstance(value.type, TensorType) and local.tensor.shape != sharding.local_shape(value.tensor.static_shape):
        place = value.owner.location if isinstance(value.owner, Op) else UNKNOWN
        text = f"a block of {value.type} laid out as {sharding} is of type {local.type}"
        raise InternalError(Diagnostic(place, text, value.owner.name if isinstance(value.owner, Op) else ""))


def _span(value: Value) -> int:
    return prod(value.tensor.static_shape)
