"""The first value inside two programs at which they part, though what its op is given agrees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spmd.comparison.correspondence import corresponding
from spmd.comparison.distance import Distance, farthest
from spmd.comparison.sides import Side, is_observable
from spmd.errors import SpmdError
from spmd.ir import Op, Value, captured_values
from spmd.support.arrays import Array

#: Bytes of values that are observed at a time, on all processes.
_MOST_BYTES = 1 << 30
#: Iterations of a loop that are followed one by one.
_MOST_ITERATIONS = 10_000


@dataclass(frozen=True)
class Difference:
    """The first value at which two sides part: the ops that give it, the process, and how far apart it is.

    `iterations` are those of the loops around it, from the outermost, in which the sides part first.
    """

    left: Op | None
    right: Op | None
    process: int
    distance: Distance
    iterations: tuple[int, ...] = ()

    def __str__(self) -> str:
        ops = [op for op in (self.left, self.right) if op is not None]
        where = " and ".join(dict.fromkeys(f"{op.name} at {op.location}" for op in ops)) or "a result"
        inside = "".join(f", in iteration {number}" for number in self.iterations)
        far = self.distance
        index = f"[{', '.join(map(str, far.index))}]" if far.index else ""
        ulps = "" if np.isinf(far.ulps) else f", {far.ulps:.3g} units in the last place apart"
        quotes = [op.location.quote() for op in ops[:1]]
        head = f"{where}{inside}, process {self.process}, element {index or '0'}: {far.left} and {far.right}{ulps}"
        return "\n".join([head, *filter(None, quotes)])


@dataclass
class Search:
    """Looks for where two sides part by more than `tolerance`, and counts what it compares.

    `compared` of the left side's `observed` values have one on the right side that corresponds to them.
    """

    tolerance: float
    compared: int = 0
    observed: int = 0

    def within(
        self, left: Side, right: Side, inputs: Sequence[Array], beside: Sequence[Array] | None = None
    ) -> Difference | None:
        """The first value at which `left` and `right` part, in the left program's order; None where none is found.

        `beside` are the right side's inputs where they are not the left one's.
        """
        others = inputs if beside is None else beside
        pairs = corresponding(left.function.body, right.function.body)
        self.observed += sum(len(op.results) for op in left.function.body.ops[:-1])
        for chunk in _chunks(pairs, left.grid.size):
            ours = left.run(inputs, [value for _, _, value, _ in chunk])
            theirs = right.run(others, [value for _, _, _, value in chunk])
            for (op, other, _, _), x, y in zip(chunk, ours, theirs, strict=True):
                self.compared += 1
                found = farthest(x, y)
                if found is not None and found[1].relative > self.tolerance:
                    inner = self._in_regions(left, right, (inputs, others), op, other, found[0])
                    return inner or Difference(op, other, *found)
        return None

    def _in_regions(
        self, left: Side, right: Side, inputs: tuple[Sequence[Array], Sequence[Array]], op: Op, other: Op, process: int
    ) -> Difference | None:
        """The first difference inside of control flow whose operands agree; None where it cannot be looked into."""
        if op.name != other.name or op.name not in ("stablehlo.while", "stablehlo.if", "stablehlo.case"):
            return None
        captured = captured_values(op), captured_values(other)
        if not all(map(is_observable, (*op.operands, *captured[0], *captured[1]))):
            return None
        try:
            given = left.run(inputs[0], [*op.operands, *captured[0]]) if op.operands or captured[0] else []
            beside = right.run(inputs[1], captured[1]) if captured[1] else []
            operands, around = given[: len(op.operands)], given[len(op.operands) :]
            sides = left, right, op, other, captured
            if op.name == "stablehlo.while":
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
        """The first difference in the first iteration in which the bodies part, each time given the same state."""
        conditions = _bodies(left, right, op, other, captured, 0)
        bodies = _bodies(left, right, op, other, captured, 1)
        for number in range(_MOST_ITERATIONS):
            goes_on = conditions[0].run([*state, *around])[0]
            if not goes_on.any():
                return None
            after = bodies[0].run([*state, *around])
            found = [farthest(x, y) for x, y in zip(after, bodies[1].run([*state, *beside]), strict=True)]
            if any(each is not None and each[1].relative > self.tolerance for each in found):
                inner = self.within(*bodies, [*state, *around], beside=[*state, *beside])
                return None if inner is None else replace(inner, iterations=(number, *inner.iterations))
            state = after
        return None


def _bodies(
    left: Side, right: Side, op: Op, other: Op, captured: tuple[Sequence[Value], Sequence[Value]], number: int
) -> tuple[Side, Side]:
    """Both sides' region `number` as functions."""
    return (
        left.inside(op.regions[number].block, captured[0]),
        right.inside(other.regions[number].block, captured[1]),
    )


def _branch(op: Op, chosen: int) -> int:
    """The region that an `if` or `case` runs."""
    if op.name == "stablehlo.if":
        return 0 if chosen else 1
    return chosen if 0 <= chosen < len(op.regions) else len(op.regions) - 1


def _chunks(pairs: Sequence[tuple[Op, Op]], processes: int) -> Iterator[list[tuple[Op, Op, Value, Value]]]:
    """The observable values of pairs of ops, as many at a time as memory is meant to hold."""
    chunk: list[tuple[Op, Op, Value, Value]] = []
    size = 0
    for op, other in pairs:
        for value, corresponding_value in zip(op.results, other.results, strict=True):
            if not is_observable(value) or op.name == "stablehlo.constant":
                continue
            size += value.tensor.nbytes * processes
            chunk.append((op, other, value, corresponding_value))
            if size > _MOST_BYTES:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk
