"""Whether a difference is rounding: both programs modulo primes, and in 64-bit floats, which say who is nearer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spmd.comparison.distance import farthest
from spmd.comparison.retyped import PRIMES, Residues, Rewriter, is_float
from spmd.comparison.sides import Side, function_of
from spmd.compiler.transforms.inline import inline
from spmd.errors import CompileError
from spmd.ir import Module
from spmd.support.arrays import Array

#: Units of the last place of 64-bit floats up to which programs in them agree: what single precision cannot see.
_WIDE_ROUNDING = 2.0**20


@dataclass(frozen=True)
class Exactness:
    """What other numbers say of two programs that part, or agree.

    `same_formula` says whether they agree modulo two primes (None: an op has no meaning there, `obstacle` says which);
    `same_wide` whether they agree in 64-bit floats; `errors` are how far each side's results are from those, in units
    of the last place of an array's largest element, where programs compute in less than 64 bits.
    """

    same_formula: bool | None
    same_wide: bool | None
    errors: tuple[float, float] | None
    obstacle: str = ""

    @property
    def is_rounding(self) -> bool:
        """Whether the programs mean the same, and their difference is rounding."""
        return bool(self.same_formula or self.same_wide)

    @property
    def nearer(self) -> str | None:
        """The side, "left" or "right", whose results are nearer to what 64-bit floats give."""
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
        lines.append(f"the difference is {'' if self.is_rounding else 'not '}rounding")
        return "; ".join(lines)


def exactness(left: Side, right: Side, inputs: Sequence[Array], beside: Sequence[Array]) -> Exactness:
    """Runs both sides in other numbers, on `inputs` and `beside`, arrays with a leading axis of processes."""
    obstacle, same_formula = "", None
    try:
        same_formula = all(_same_residues(left, right, inputs, beside, prime) for prime in PRIMES)
    except CompileError as error:
        obstacle = str(error).partition("\n")[0]
    try:
        wide = [
            _run(side, Rewriter(), given, lambda array: array.astype(np.float64))
            for side, given in ((left, inputs), (right, beside))
        ]
    except CompileError:
        return Exactness(same_formula, None, None, obstacle)
    found = [farthest(ours, theirs) for ours, theirs in zip(*wide, strict=True)]
    same_wide = all(each is None or each[1].relative <= _WIDE_ROUNDING for each in found)
    return Exactness(same_formula, same_wide, _errors(left, right, (inputs, beside), wide), obstacle)


def widened(module: Module) -> Module:
    """`module`, of one process, with 64-bit floats in place of all others."""
    flat = inline(module, module.function("main"))
    return module.with_ops([function_of(Rewriter().block(flat.body, {}))])


def _errors(
    left: Side, right: Side, given: tuple[Sequence[Array], Sequence[Array]], wide: Sequence[Sequence[Array]]
) -> tuple[float, float] | None:
    """How far each side is from the right values; None where there are no narrower floats."""
    narrow = [value.type for value in left.function.body.terminator.operands]
    if not any(is_float(type) and type.element_type.bits < 64 for type in narrow):  # type: ignore[attr-defined]
        return None
    errors = []
    for side, inputs, truth in zip((left, right), given, wide, strict=True):
        results = side.run(inputs)
        pairs = [(x, y.astype(x.dtype)) for x, y in zip(results, truth, strict=True) if x.dtype.kind in "fV"]
        found = [farthest(x, y) for x, y in pairs]
        errors.append(max((each[1].relative for each in found if each is not None), default=0.0))
    return errors[0], errors[1]


def _same_residues(left: Side, right: Side, inputs: Sequence[Array], beside: Sequence[Array], prime: int) -> bool:
    field = Residues(prime=prime, salt=prime & 0xFF)
    ours, theirs = (_run(side, field, given, field.points) for side, given in ((left, inputs), (right, beside)))
    return all(np.array_equal(x, y) for x, y in zip(ours, theirs, strict=True))


def _run(side: Side, rewriter: Rewriter, inputs: Sequence[Array], numbers: object) -> list[Array]:
    """What a side gives in other numbers; `numbers` makes them of its floats."""
    function = side.entry(rewriter.block(side.function.body, {}))
    types = [argument.type for argument in side.function.body.arguments]
    arrays = [numbers(array) if is_float(type) else array for array, type in zip(inputs, types, strict=True)]  # type: ignore[operator]
    return replace(side, function=function).run(arrays)
