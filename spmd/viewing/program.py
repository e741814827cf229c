"""The program of one process as data for a page: ops, values, and scopes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from partitioner.record import PartitionRecord
from partitioner.sharding import ShardedType
from spmd.dialects.calls import CALLS
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Function, Op, Value
from spmd.viewing.callers import Callers, Scopes, after
from spmd.viewing.layouts import Layouts, element_bytes, name_of, static_shape
from spmd.viewing.places import LocationTable
from spmd.viewing.tables import Json, Texts, short

#: The largest number of ops of functions that are shown at their calls.
_MOST_FOLDED = 5000


@dataclass
class ProgramTables:
    """Ops in program order, including those in regions of control flow; values; scopes.

    The ops of a function stand at each of its calls, in a scope of their own, up to `_MOST_FOLDED` ops in all.
    An op is [name, operands, results, scope, place, resharding, rule, whether it is a terminator]; a scope [name,
    parent]. A value is [name, type, shape, bytes of an element, global value, sharding, op, argument]: the global value
    of which it is the block, and the number of its op or argument; -1 for none.
    """

    texts: Texts
    places: LocationTable
    layouts: Layouts
    record: PartitionRecord | None
    callers: Callers
    ops: list[Json] = field(default_factory=list)
    values: list[Json] = field(default_factory=list)
    scopes: list[Json] = field(default_factory=list)
    reshards: list[Json] = field(default_factory=list)
    rules: dict[Hashable, str] = field(default_factory=dict)
    _functions: dict[str, Function] = field(default_factory=dict)
    _folding: dict[str, None] = field(default_factory=dict)  # the functions whose calls are being folded
    _folded: set[str] = field(default_factory=set)
    _room: int = _MOST_FOLDED
    _scope_numbers: dict[tuple[int, str, int], int] = field(default_factory=dict)
    _value_numbers: dict[Value, int] = field(default_factory=dict)
    _by_place: dict[Hashable, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.scopes.append([self.texts.of(""), -1])
        graph = self.record.graph if self.record is not None else None
        for edge in graph.edges if graph is not None else ():
            if edge.op is not None and edge.name == edge.op.name:
                self.rules.setdefault((edge.name, self.places.key(edge.op)), short(str(edge.rule)))

    def add_functions(self, entry: Function, functions: Iterable[Function]) -> None:
        """Add the ops of `entry`, and those of other functions: at their calls, or in scopes of their own."""
        self._functions = {each.symbol: each for each in functions if not each.is_declaration}
        self._folding[entry.symbol] = None
        for number, argument in enumerate(entry.body.arguments):
            self._value(argument, -1, number)
        self._block(entry.body.ops, 0)
        for symbol, function in self._functions.items():
            if function is not entry and symbol not in self._folded:
                self._block(function.body.ops, self._scope(0, f"@{symbol}"))

    def results(self, entry: Function) -> list[int]:
        """Return the numbers of the values that `entry` returns."""
        return [self._value(value) for value in entry.body.terminator.operands]

    def lay_out(self, numbers: Iterable[int], shardings: Sequence[ShardedType] | None) -> None:
        """Set the layouts of values, by number, to `shardings` where partitioning recorded none."""
        for number, sharded in zip(numbers, shardings or (), strict=False):
            value = self.values[number]
            if value[4] < 0 and sharded.sharding is not None:
                value[4] = self.layouts.boundary(self.texts.entries[value[0]], sharded)
                value[5] = self.layouts.sharding(sharded.sharding)

    def _block(self, ops: Iterable[Op], scope: int, outer: Scopes = ()) -> None:
        """Add ops to `scope`; the names in their locations are of scopes within it, after those of `outer`."""
        for op in ops:
            names = self.callers.names(op)
            inner = scope
            for name, call in after(names[:-1], outer):
                inner = self._scope(inner, name, -1 - call)
            callee = self._functions.get(op[CALLS[op.name]]) if op.name in CALLS else None
            if callee is not None and self._may_fold(callee):
                self._fold(op, callee, inner, names or outer)
            else:
                self._op(op, inner, names or outer)

    def _may_fold(self, callee: Function) -> bool:
        return callee.symbol not in self._folding and len(callee.body.ops) <= self._room

    def _fold(self, call: Op, callee: Function, scope: int, names: Scopes) -> None:
        """Add the ops of a function where it is called, with the operands of the call as its arguments."""
        body, first = callee.body, len(self.ops)
        self._room -= len(body.ops)
        self._folded.add(callee.symbol)
        operands = [self._value(value) for value in call.operands]
        values, self._value_numbers = self._value_numbers, dict(zip(body.arguments, operands, strict=True))
        self._folding[callee.symbol] = None
        self._block(body.ops[:-1], self._scope(scope, f"@{callee.symbol}", 1 + first), names)
        del self._folding[callee.symbol]
        results = [self._value(value) for value in body.terminator.operands]
        self._value_numbers = values | dict(zip(call.results, results, strict=True))
        self._by_place[call.name, self.places.key(call)].append(min(first, len(self.ops) - 1))

    def _op(self, op: Op, scope: int, names: Scopes) -> None:
        number = len(self.ops)
        operands = [self._value(value) for value in op.operands]
        entry = [
            self.texts.of(op.name.removeprefix("stablehlo.")),
            operands,
            [],
            scope,
            self.places.number(op),
            self._reshard(op),
            self._rule(op),
            has_trait(op, Trait.TERMINATOR),
        ]
        self.ops.append(entry)
        entry[2] = [self._value(value, number) for value in op.results]
        self._by_place[op.name, self.places.key(op)].append(number)
        if has_trait(op, Trait.RUNS_REGIONS):
            for place, region in enumerate(op.regions):
                part = _region_name(op, place)
                at = str(op.location).rpartition("/")[2]
                inner = self._scope(scope, f"{part} of {op.name.removeprefix('stablehlo.')} at {at}", 1 + number)
                for block in region.blocks:
                    self._block(block.ops, inner, (*names, (part, -1)))

    def _scope(self, parent: int, name: str, of: int = 0) -> int:
        """Return the number of a scope in `parent`; one of a call or region has the number `of` an op."""
        key = parent, name, of
        number = self._scope_numbers.get(key)
        if number is None:
            number = self._scope_numbers[key] = len(self.scopes)
            self.scopes.append([self.texts.of(name), parent])
        return number

    def _value(self, value: Value, op: int = -1, argument: int = -1) -> int:
        number = self._value_numbers.get(value)
        if number is not None:
            return number
        number = self._value_numbers[value] = len(self.values)
        whole, sharding = self.record.locals.get(value, (None, None)) if self.record is not None else (None, None)
        self.values.append(
            [
                self.texts.of(name_of(value)),
                self.texts.of(str(value.type)),
                static_shape(value.type),
                element_bytes(value.type),
                -1 if whole is None else self.layouts.value(whole),
                self.layouts.sharding(sharding),
                op,
                argument,
            ]
        )
        return number

    def _reshard(self, op: Op) -> int:
        reshard = self.record.reshards.get(op) if self.record is not None else None
        if reshard is None:
            return -1
        user = reshard.user
        self.reshards.append(
            {
                "value": self.layouts.value(reshard.value),
                "from": self.layouts.sharding(reshard.before),
                "to": self.layouts.sharding(reshard.after),
                "user": -1 if user is None else self.texts.of(user.name.removeprefix("stablehlo.")),
                "place": -1 if user is None else self.places.number(user),
            }
        )
        return len(self.reshards) - 1

    def _rule(self, op: Op) -> int:
        rule = self.rules.get((op.name, self.places.key(op)))
        return -1 if rule is None else self.texts.of(rule)

    def at(self, op: Op) -> list[int]:
        """Return the numbers of the ops with the name and location of `op`, in order."""
        return self._by_place.get((op.name, self.places.key(op)), [])


@dataclass
class Origins:
    """Maps ops of a derived program to the ops of `program` that they come from.

    If several ops have the same location, as in an inlined function, they are assigned in order.
    """

    program: ProgramTables
    _found: dict[Op, int] = field(default_factory=dict)
    _turns: dict[Hashable, int] = field(default_factory=lambda: defaultdict(int))

    def __call__(self, op: Op) -> int:
        """Return the number of the original op; -1 if there is none."""
        number = self._found.get(op)
        if number is None:
            numbers = self.program.at(op) or [-1]
            key = op.name, self.program.places.key(op)
            number = self._found[op] = numbers[min(self._turns[key], len(numbers) - 1)]
            self._turns[key] += 1
        return number

    def all(self, ops: Iterable[Op]) -> list[int]:
        """Return the numbers of the original ops of `ops`, sorted and without duplicates."""
        return sorted({number for number in map(self, ops) if number >= 0})


def _region_name(op: Op, place: int) -> str:
    if op.definition is None or not op.definition.regions:
        return str(place)
    return op.definition.regions[min(place, len(op.definition.regions) - 1)].name
