"""Decides whether a difference is rounding: both programs modulo primes and in 64-bit floats, and their accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spmd.comparison.distance import Distance, farthest, gaps, is_inexact, of_largest
from spmd.comparison.observation import Observation, wide_parting
from spmd.comparison.retyped import PRIMES, Residues, Rewriter, is_float
from spmd.comparison.sides import Side, function_of
from spmd.compiler.transforms.inline import inline
from spmd.errors import CompileError
from spmd.ir import Module
from spmd.support.arrays import Array


@dataclass(frozen=True)
class Exactness:
    """The results of two programs in other numbers.

    `same_formula` is whether they agree modulo two primes (None if an op is not defined there, which `obstacle` names);
    `same_wide` whether they agree in 64-bit floats, up to rounding there (None if an op is not defined there);
    `as_computed` whether what they computed differs by no more than rounding explains. `errors` are the distances of
    each side's results from those in 64-bit floats, in units of the last place of an array's largest element.
    """

    same_formula: bool | None
    same_wide: bool | None
    as_computed: bool
    errors: tuple[float, float] | None
    obstacle: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether the other numbers decide the question."""
        return self.same_formula is not None or self.same_wide is not None

    @property
    def is_rounding(self) -> bool:
        """Whether the programs mean the same, and their difference is rounding."""
        return self.as_computed and bool(self.same_formula or self.same_wide)

    @property
    def nearer(self) -> str | None:
        """The side, "left" or "right", whose results are closer to those in 64-bit floats."""
        if self.errors is None or self.errors[0] == self.errors[1]:
            return None
        return "left" if self.errors[0] < self.errors[1] else "right"

    def __str__(self) -> str:
        lines = []
        if self.same_formula is not None:
            lines.append(f"modulo two primes they {'agree' if self.same_formula else 'part'}")
        if self.obstacle:
            lines.append(f"not evaluated modulo primes: {self.obstacle}")
        if self.same_wide is not None:
            lines.append(f"in 64-bit floats they {'agree' if self.same_wide else 'part'}")
        if self.errors is not None:
            left, right = self.errors
            near = f": the {self.nearer} one is nearer" if self.nearer else ""
            lines.append(f"from there, left is {left:.3g} and right {right:.3g} units in the last place{near}")
        if self.is_decided:
            lines.append(f"the difference is {'' if self.is_rounding else 'not '}rounding")
        return "; ".join(lines)


def exactness(
    left: Side,
    right: Side,
    inputs: Sequence[Array],
    beside: Sequence[Array],
    results: Sequence[tuple[Observation, Observation]],
) -> Exactness:
    """Return what other numbers show of both sides' `results` on `inputs` and `beside`, with a leading axis of
    processes.
    """
    obstacle, same_formula = "", None
    try:
        same_formula = all(_same_residues(left, right, inputs, beside, prime) for prime in PRIMES)
    except CompileError as error:
        obstacle = str(error).partition("\n")[0]
    as_computed = all(_is_near(farthest(x.computed, y.computed, np.asarray(x.bound) + y.bound)) for x, y in results)
    if any(seen.wide is None for pair in results for seen in pair):
        return Exactness(same_formula, None, as_computed, None, obstacle)
    same_wide = all(_is_near(wide_parting(x, y)) for x, y in results)
    errors = [max((_error(pair[side]) for pair in results), default=0.0) for side in range(2)]
    narrow = any(
        is_inexact(x.computed.dtype) and x.computed.dtype not in (np.float64, np.complex128) for x, _ in results
    )
    return Exactness(same_formula, same_wide, as_computed, (errors[0], errors[1]) if narrow else None, obstacle)


def widened(module: Module) -> Module:
    """Return `module`, of one process, with 64-bit floats in place of all others."""
    flat = inline(module, module.function("main"))
    return module.with_ops([function_of(Rewriter().block(flat.body, {}))])


def _is_near(found: tuple[int, Distance] | None) -> bool:
    return found is None or found[1].share <= 1


def _error(seen: Observation) -> float:
    """Return the distance of a result from that in 64-bit floats, in units of the last place of its largest element."""
    assert seen.wide is not None
    unit = of_largest(seen.computed, 1.0)
    return (
        float(np.max(gaps(seen.computed, seen.wide.astype(seen.computed.dtype)), initial=0.0)) / unit if unit else 0.0
    )


def _same_residues(left: Side, right: Side, inputs: Sequence[Array], beside: Sequence[Array], prime: int) -> bool:
    field = Residues(prime=prime, salt=prime & 0xFF)
    ours, theirs = (_run(side, field, given, field.points) for side, given in ((left, inputs), (right, beside)))
    if left.has_other_layout(right):
        ours, theirs = left.joined(ours), right.joined(theirs)
    return all(np.array_equal(x, y) for x, y in zip(ours, theirs, strict=True))


def _run(side: Side, rewriter: Rewriter, inputs: Sequence[Array], numbers: object) -> list[Array]:
    """Return a side's results in other numbers; `numbers` converts its floats."""
    function = side.entry(rewriter.block(side.function.body, {}))
    types = [argument.type for argument in side.function.body.arguments]
    arrays = [numbers(array) if is_float(type) else array for array, type in zip(inputs, types, strict=True)]  # type: ignore[operator]
    return replace(side, function=function).run(arrays)
