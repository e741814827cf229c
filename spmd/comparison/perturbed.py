"""Rounding errors of a program in 64-bit floats, estimated by running it repeatedly with perturbed results.

Bounds propagated from op to op grow with magnitudes only, and are useless after a recurrence of matrices: they ignore
that errors cancel, or decay in a contraction. A program in 64-bit floats is therefore run again with each result moved
by its possible rounding error, with random signs, and then with all signs reversed: the resulting deviation is the
possible error, up to a factor. A choice that rounding may decide is decided the other way in some of these runs.
Constants that their type cannot represent (0.1) are moved, one by one, by the rounding that they may be off. Source:
Parker, "Monte Carlo arithmetic" (1997); Vignes, "A stochastic arithmetic for reliable scientific computation" (1993).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from spmd.comparison.bound_writer import Writer
from spmd.comparison.bounds import BoundedOp, Bounds, Errors
from spmd.comparison.distance import gaps
from spmd.comparison.formats import is_inexact, unit_roundoff
from spmd.comparison.precision import WIDE
from spmd.comparison.sides import Side, wide_runner
from spmd.dialects.make import make_op
from spmd.ir import Block, Op, Region, Value
from spmd.support.arrays import Array
from spmd.types import COMPLEX128, F64, TensorType

#: Number of random sign patterns; each is run as it is, and reversed.
DRAWS = 3
#: Factor from the deviation of the runs to the bound. That all three draws stay below this fraction of their standard
#: deviation happens to one element in 10^8.
MARGIN = 256.0
#: Up to so many elements of uncertain constants are moved one by one; of more, the largest deviation of _DRAWN runs is
#: multiplied by _OF_DRAWN.
_FEW, _DRAWN, _OF_DRAWN = 16, 6, 4.0
#: Multiples of _STEP are exact, and so are their sums, products and quotients below _EXACT.
_STEP, _EXACT = 2.0**-12, 2.0**28
_EXACT_ON_SHORT = frozenset(
    ("add", "subtract", "multiply", "divide", "sqrt", "convert", "dot", "dot_general", "reduce", "reduce_window")
)
#: Up to so many elements a sign pattern is random per element; beyond, it is a product of one pattern per dimension.
_DENSE = 1 << 14
#: Kinds of additional arguments.
_SIGNS, _PARTS = "signs", "parts"


@dataclass
class Perturbed(Bounds):
    """Rewrites a function in 64-bit floats; if it `moves`, with additional arguments that move its values.

    These are a scalar, the fraction of its rounding by which each result is moved (0: none), and those in `taken`, by
    kind and shape: signs of the moves of a result, or fractions of the representation errors of a constant's elements.
    """

    moves: bool = True
    taken: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def function(self, body: Block, of: Sequence[Value]) -> Block:
        """Return a body that returns the values `of` a function's body."""
        self._outer = copy = self._arguments(body)
        if self.moves:
            self._amount = copy.add_argument(TensorType((), F64))
        self._ops(body, copy)
        copy.ops.append(make_op("func.return", [self.values.get(value, value) for value in of], []))
        return copy

    def _take(self, op: Op, results: Sequence[Value], bounds: Errors, write: Writer) -> None:
        if not self.moves:
            pass
        elif op.name == "stablehlo.constant" and bounds[0] is not None:
            results = [self._constant(op, results[0], bounds[0], write)]
        else:
            pairs = zip(op.results, results, bounds, strict=True)
            results = [
                value if bound is None or not is_inexact(result.type) else self._rounded(op, value, bound, write)
                for result, value, bound in pairs
            ]
        self.values.update(zip(op.results, results, strict=True))

    def _constant(self, op: Op, value: Value, error: Value, write: Writer) -> Value:
        """Return a constant moved by a fraction of its error, which is an argument."""
        array = op["value"].array
        shape = () if array.size and not any(array.strides) else array.shape
        part = self._argument(_PARTS, shape)
        step = write.multiply(error, part if shape == value.tensor.shape else write.broadcast(part, array.shape))
        return self._moved_by(value, step, write)

    def _rounded(self, op: Op, value: Value, bound: Value, write: Writer) -> Value:
        """Return a result moved by its rounding with random signs, unchanged if it is certainly exact."""
        zeros = write.zeros(bound)
        step = write.select(write.one("is_finite", [bound]), bound, zeros)
        if op.name.partition(".")[2] in _EXACT_ON_SHORT:
            step = write.select(self._is_short(op, value, bound, write), zeros, step)
        step = write.multiply(step, write.broadcast(self._amount, value.tensor.static_shape))
        return self._moved_by(value, write.multiply(step, self._signs(value.tensor.static_shape, write)), write)

    def _moved_by(self, value: Value, step: Value, write: Writer) -> Value:
        if value.tensor.element_type == COMPLEX128:
            other = write.multiply(step, self._signs(value.tensor.static_shape, write))
            step = write.one("complex", [step, other])
        return write.add(value, step)

    def _signs(self, shape: Sequence[int], write: Writer) -> Value:
        if prod(shape) <= _DENSE:
            return self._argument(_SIGNS, tuple(shape))
        lines = [write.spread(self._argument(_SIGNS, (size,)), shape, at) for at, size in enumerate(shape)]
        signs = lines[0]
        for line in lines[1:]:
            signs = write.multiply(signs, line)
        return signs

    def _argument(self, kind: str, shape: tuple[int, ...]) -> Value:
        """Add an argument to the function."""
        self.taken.append((kind, shape))
        return self._outer.add_argument(TensorType(shape, F64))

    def _is_short(self, op: Op, value: Value, bound: Value, write: Writer) -> Value:
        """Return where operands are short multiples of a power of two, so that the result is exact."""
        shape = value.tensor.static_shape
        found = write.compare(bound, write.number(_EXACT * unit_roundoff(F64), bound), "LT")
        results = [value] if op.name in ("stablehlo.divide", "stablehlo.sqrt") else []
        for each in (*(self.values.get(operand, operand) for operand in op.operands), *results):
            steps = write.scaled(write.magnitude(each), 1 / _STEP)
            rest = write.gap(steps, write.one("floor", [steps]))
            if each.tensor.static_shape != shape:
                least = write.splat(0.0, TensorType((), F64))
                rest = write.reduce("stablehlo.maximum", rest, least, range(each.tensor.rank))
                rest = write.broadcast(rest, shape)
            found = write.one("and", [found, write.compare(rest, write.zeros(rest), "EQ")])
        return found

    def _control_flow(self, op: Op, x: Sequence[Value], given: Errors, write: Writer) -> tuple[Sequence[Value], Errors]:
        regions = [self._inner(region.block) for region in op.regions]
        types = [self._wide.type(type) for type in op.result_types]
        return write.op(op.name, x, types, dict(op.attributes), regions).results, [None] * len(op.results)

    def _inner(self, block: Block) -> Region:
        copy = self._arguments(block)
        self._ops(block, copy)
        returned = [self.values.get(value, value) for value in block.terminator.operands]
        Writer(copy, block.terminator).op(block.terminator.name, returned, [])
        return Region([copy])

    def _of_own_types(self, step: BoundedOp) -> Errors:
        """Return no bounds: operands that round to the same values have the same result."""
        return [None] * len(step.results)


def in_wide(side: Side, inputs: Sequence[Array], of: Sequence[Value]) -> list[Array]:
    """Return the values `of` a side's function in 64-bit floats."""
    side = side.plain()
    return wide_runner(side, Perturbed(side.grid.size, side.meant, WIDE, moves=False).function(side.function.body, of))(
        inputs
    )


def wide_bounds(side: Side, inputs: Sequence[Array], of: Sequence[Value]) -> list[Array]:
    """Return how far each element of values in 64-bit floats may be off, by rounding and constants."""
    side = side.plain()
    written = Perturbed(side.grid.size, side.meant, WIDE)
    runner = wide_runner(side, written.function(side.function.body, of))
    signs, parts = ([shape for each, shape in written.taken if each == kind] for kind in (_SIGNS, _PARTS))
    random, still = np.random.default_rng(0), [np.zeros(shape) for shape in parts]

    def run(amount: float, along: Sequence[Array], by: Sequence[Array]) -> list[Array]:
        given = {_SIGNS: iter(along), _PARTS: iter(by)}
        more = [np.asarray(amount), *(next(given[kind]) for kind, _ in written.taken)]
        return runner([*inputs, *(each[None] for each in more)])

    plus = _drawn(signs, random)
    base = run(0.0, plus, still)

    def deviations(by: Sequence[Array]) -> list[Array]:
        return _farthest([run(0.0, plus, [way * part for part in by]) for way in (1.0, -1.0)], base)

    rounded = [
        run(way, along, still)
        for along in (plus, *(_drawn(signs, random) for _ in range(DRAWS - 1)))
        for way in (1.0, -1.0)
    ]
    bounds = [
        MARGIN * (far + unit_roundoff(F64) * _sizes(x)) for far, x in zip(_farthest(rounded, base), base, strict=True)
    ]
    singly = _singly(still)
    for by in singly:
        bounds = [bound + far for bound, far in zip(bounds, deviations(by), strict=True)]
    if still and not singly:
        drawn = [deviations(_drawn(parts, random)) for _ in range(_DRAWN)]
        bounds = [bound + _OF_DRAWN * np.max(far, axis=0) for bound, *far in zip(bounds, *drawn, strict=True)]
    return bounds


def _drawn(shapes: Sequence[tuple[int, ...]], random: np.random.Generator) -> list[Array]:
    """Return random signs for the elements of these shapes."""
    return [random.choice([-1.0, 1.0], shape) for shape in shapes]


def _farthest(runs: Sequence[Sequence[Array]], base: Sequence[Array]) -> list[Array]:
    """Return how far each element of values in any of the runs is from that in `base`."""
    return [np.max([gaps(x, at) for x in each], axis=0) for at, *each in zip(base, *runs, strict=True)]


def _sizes(array: Array) -> Array:
    """Return magnitudes of the finite elements of floats; 0 for others."""
    sizes = np.abs(array) if array.dtype.kind in "fc" else np.zeros(array.shape)
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _singly(still: Sequence[Array]) -> list[list[Array]]:
    """Return the moves of the elements of uncertain constants, one at a time, if they are few."""
    count = sum(each.size for each in still)
    ends = np.cumsum([each.size for each in still])[:-1]
    rows = np.eye(count) if count <= _FEW else ()
    return [[part.reshape(each.shape) for part, each in zip(np.split(row, ends), still, strict=True)] for row in rows]
