"""Search for the first value inside two programs that differs although its operands agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from spmd.comparison.correspondence import corresponding
from spmd.comparison.distance import Distance
from spmd.comparison.observation import Observation, Observed, parting
from spmd.comparison.sides import Side, is_observable
from spmd.dialects.core import Trait, has_trait
from spmd.errors import SpmdError
from spmd.ir import Op, Value, captured_values
from spmd.support.arrays import Array

#: Maximum bytes of values that are observed at a time, on all processes; each is stored six times.
_MOST_BYTES = 1 << 28
#: Maximum iterations of a loop that are compared one by one.
_MOST_ITERATIONS = 10_000


@dataclass(frozen=True)
class Difference:
    """The first value that differs: the ops that define it, the process, and the distance.

    If an op is None, the other program has no counterpart. `iterations` are those of the enclosing loops, outermost
    first, in which the sides first differ; `result` is the index of the function's result, if no inner value was found.
    """

    left: Op | None
    right: Op | None
    process: int
    distance: Distance
    iterations: tuple[int, ...] = ()
    result: int | None = None

    def __str__(self) -> str:
        ops = [op for op in (self.left, self.right) if op is not None]
        where = " and ".join(dict.fromkeys(f"{op.name} at {op.location}" for op in ops))
        if self.result is not None:
            where = f"result {self.result}" + (f" ({where})" if where else "")
        elif len(ops) == 1:
            where += f", which the {'right' if self.right is None else 'left'} program lacks"
        inside = "".join(f", in iteration {number}" for number in self.iterations)
        quotes = [op.location.quote() for op in ops[:1]]
        return "\n".join([f"{where}{inside}, process {self.process}, {self.distance}", *filter(None, quotes)])

    def to_json(self) -> dict[str, object]:
        """Return the difference as JSON."""
        ops = {
            side: None if op is None else {"op": op.name, "place": str(op.location)}
            for side, op in (("left", self.left), ("right", self.right))
        }
        return {
            **ops,
            "result": self.result,
            "iterations": list(self.iterations),
            "process": self.process,
            "distance": self.distance.to_json(),
        }


@dataclass
class Search:
    """Finds where two sides differ by more than `tolerance` times what rounding explains.

    `compared` of the left side's `observed` values have a counterpart on the right side.
    """

    tolerance: float
    compared: int = 0
    observed: int = 0

    def within(
        self, left: Side, right: Side, inputs: Sequence[Array], beside: Sequence[Array] | None = None
    ) -> Difference | None:
        """Return the first value at which `left` and `right` differ, in the left program's order; None if there is
        none.

        `beside` are the right side's inputs if they differ from the left one's.
        """
        others = inputs if beside is None else beside
        pairs = corresponding(left.function.body, right.function.body)
        seen = _Seen((left, right), (inputs, others))
        self.observed += sum(len(op.results) for op in left.function.body.ops[:-1])
        for chunk in _chunks(pairs, left.grid.size):
            observed = seen.of([(value, other) for _, _, value, other in chunk])
            for (op, other, _, _), (x, y) in zip(chunk, observed, strict=True):
                self.compared += 1
                found = parting(x, y, self.tolerance)
                if found is not None and found[1].share > 1:
                    inner = self._in_regions(left, right, (inputs, others), op, other, found[0])
                    return inner or self._given(seen, pairs, (op, other)) or Difference(op, other, *found)
        return self._given(seen, pairs, (left.function.body.terminator, right.function.body.terminator))

    def _given(self, seen: _Seen, pairs: Sequence[tuple[Op, Op]], ops: tuple[Op, Op]) -> Difference | None:
        """Return the op without a counterpart that causes operands of corresponding ops to differ; None
        if they agree.
        """
        paired = {id(op) for pair in pairs for op in pair}

        def apart(ours: Value, theirs: Value) -> tuple[int, Distance] | None:
            (both,) = seen.of([(ours, theirs)])
            found = parting(*both, self.tolerance)
            return found if found is not None and found[1].share > 1 else None

        def alone(value: Value) -> Op | None:
            op = value.defining_op
            return None if op is None or id(op) in paired else op

        def cause(ours: Value, theirs: Value) -> Difference | None:
            op, other = alone(ours), alone(theirs)
            is_comparable = ours.type == theirs.type and is_observable(ours)
            found = apart(ours, theirs) if is_comparable and (op or other) else None
            if found is None:
                return None
            lacked, counterpart = (other, ours) if other is not None else (op, theirs)
            assert lacked is not None
            pairs = [
                (counterpart, operand) if other is not None else (operand, counterpart)
                for operand in lacked.operands
                if operand.type == counterpart.type
            ]
            here = Difference(op, other, *found)
            if not all(apart(*pair) for pair in pairs):
                return here  # its operand is what the other program has in its place
            return next((each for pair in pairs if (each := cause(*pair)) is not None), here)

        causes = (cause(ours, theirs) for ours, theirs in zip(*(op.operands for op in ops), strict=False))
        return next((each for each in causes if each is not None), None)

    def _in_regions(
        self, left: Side, right: Side, inputs: tuple[Sequence[Array], Sequence[Array]], op: Op, other: Op, process: int
    ) -> Difference | None:
        """Return the first difference inside control flow whose operands agree; None if it cannot be observed."""
        if op.name != other.name or not has_trait(op, Trait.RUNS_REGIONS):
            return None
        captured = captured_values(op), captured_values(other)
        if not all(map(is_observable, (*op.operands, *captured[0], *captured[1]))):
            return None
        try:
            given = left.run(inputs[0], [*op.operands, *captured[0]]) if op.operands or captured[0] else []
            beside = right.run(inputs[1], captured[1]) if captured[1] else []
            operands, around = given[: len(op.operands)], given[len(op.operands) :]
            sides = left, right, op, other, captured
            if has_trait(op, Trait.LOOP):
                return self._in_loop(*sides, operands, around, beside)
            number = _branch(op, int(operands[0][process % len(operands[0])]))
            return self.within(*_bodies(*sides, number), [*around], beside=[*beside])
        except SpmdError:
            return None

    def _in_loop(
        self,
        left: Side,
        right: Side,
        op: Op,
        other: Op,
        captured: tuple[Sequence[Value], Sequence[Value]],
        state: Sequence[Array],
        around: Sequence[Array],
        beside: Sequence[Array],
    ) -> Difference | None:
        """Return the first difference in the first iteration in which the bodies differ, given the same state."""
        conditions = _bodies(left, right, op, other, captured, 0)
        bodies = _bodies(left, right, op, other, captured, 1)
        for number in range(_MOST_ITERATIONS):
            goes_on = conditions[0].run([*state, *around])[0]
            if not goes_on.any():
                return None
            after = bodies[0].run([*state, *around])
            there = bodies[1].run([*state, *beside])
            # States that are equal bitwise are examined once: bounds are expensive.
            if not number or any(x.tobytes() != y.tobytes() for x, y in zip(after, there, strict=True)):
                inner = self.within(*bodies, [*state, *around], beside=[*state, *beside])
                if inner is not None:
                    return replace(inner, iterations=(number, *inner.iterations))
            state = after
        return None


@dataclass
class _Seen:
    """Values of both sides on their inputs; those observed last are cached."""

    sides: tuple[Side, Side]
    inputs: tuple[Sequence[Array], Sequence[Array]]
    kept: dict[tuple[Value, Value], tuple[Observed, int]] = field(default_factory=dict)

    def of(self, pairs: Sequence[tuple[Value, Value]]) -> Iterable[tuple[Observation, Observation]]:
        """Return the observations of each pair of values."""
        if len(pairs) == 1 and pairs[0] in self.kept:
            observed, at = self.kept[pairs[0]]
            return [observed.pair(at)]
        observed = Observed(self.sides, self.inputs, ([ours for ours, _ in pairs], [theirs for _, theirs in pairs]))
        if len(pairs) > 1:
            self.kept = {pair: (observed, at) for at, pair in enumerate(pairs)}
        return observed


def _bodies(
    left: Side, right: Side, op: Op, other: Op, captured: tuple[Sequence[Value], Sequence[Value]], number: int
) -> tuple[Side, Side]:
    """Return region `number` of both sides as functions; one function if the op is the same."""
    ours = left.inside(op.regions[number].block, captured[0])
    if op is other:
        return ours, replace(right, function=ours.function)
    return ours, right.inside(other.regions[number].block, captured[1])


def _branch(op: Op, chosen: int) -> int:
    """Return the region that an `if` or `case` runs."""
    if op.name == "stablehlo.if":
        return 0 if chosen else 1
    return chosen if 0 <= chosen < len(op.regions) else len(op.regions) - 1


def _chunks(pairs: Sequence[tuple[Op, Op]], processes: int) -> Iterator[list[tuple[Op, Op, Value, Value]]]:
    """Yield the observable values of pairs of ops, as many at a time as fit the memory limit."""
    chunk: list[tuple[Op, Op, Value, Value]] = []
    size = 0
    for op, other in pairs:
        for value, corresponding_value in zip(op.results, other.results, strict=True):
            if not is_observable(value):
                continue
            size += value.tensor.nbytes * processes
            chunk.append((op, other, value, corresponding_value))
            if size > _MOST_BYTES:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk
