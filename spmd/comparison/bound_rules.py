"""Propagation of error bounds through elementwise ops, by op name.

A rule returns the bound of the result from the operands and their bounds, at least one of which is given; the rounding
of the result is added to it. Ops without a rule are computed again with each operand moved by its bound. Source:
Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.comparison.bound_writer import Writer
from spmd.comparison.retyped import is_float
from spmd.ir import Value

#: Elementwise ops of floats that round once.
ROUNDED_ONCE = frozenset(("add", "subtract", "multiply", "divide", "sqrt", "convert"))
#: Elementwise ops that do not round.
EXACT = frozenset(
    ("abs", "ceil", "clamp", "compare", "floor", "imag", "is_finite", "maximum", "minimum", "negate", "real",
     "round_nearest_afz", "round_nearest_even", "select", "sign", "complex", "and", "or", "xor", "not")
)  # fmt: skip
#: Functions whose derivative is at most 1, with values from -1 to 1.
GENTLE = frozenset(("cosine", "sine"))
#: Functions whose absolute error near their zeros is as large as elsewhere.
ROUNDED_AT_ONE = frozenset(("digamma", "lgamma", "polygamma", "zeta"))

Rule = Callable[[Writer, Value, Sequence[Value], Sequence[Value | None]], Value | None]


def _sum(write: Writer, result: Value, x: Sequence[Value], errors: Sequence[Value | None]) -> Value | None:
    return write.total(errors)


def _largest(write: Writer, result: Value, x: Sequence[Value], errors: Sequence[Value | None]) -> Value | None:
    return write.largest(errors)


def _extreme(write: Writer, result: Value, x: Sequence[Value], errors: Sequence[Value | None]) -> Value | None:
    """Bound by the results of operands moved up and down: operands far from being chosen have no effect."""
    if not all(is_float(value.type) for value in x):
        return write.largest(errors)
    return write.between(result, *(write.again(write.of, moved)[0] for moved in write.ends(x, errors)))


def _product(write: Writer, result: Value, x: Sequence[Value], errors: Sequence[Value | None]) -> Value | None:
    terms: list[Value | None] = [
        None if error is None else write.multiply(error, write.magnitude(other))
        for error, other in zip(errors, reversed(x), strict=True)
    ]
    left, right = errors
    if left is not None and right is not None:
        terms.append(write.multiply(left, right))
    return write.total(terms)


def _quotient(write: Writer, result: Value, x: Sequence[Value], errors: Sequence[Value | None]) -> Value | None:
    """Return the bound of a quotient, infinite if the divisor may be zero."""
    left, right = errors
    divisor = write.magnitude(x[1])
    if right is None:
        assert left is not None
        return write.binary("divide", left, divisor)
    least = write.binary("maximum", write.subtract(divisor, right), write.zeros(divisor))
    above = write.total([left, write.multiply(write.magnitude(result), right)])
    assert above is not None
    return write.binary("divide", above, least)


def _selection(write: Writer, result: Value, x: Sequence[Value], errors: Sequence[Value | None]) -> Value | None:
    """Add the difference of the two where the predicate is uncertain."""
    zeros = write.zeros(result)
    bound = write.select(x[0], errors[1] or zeros, errors[2] or zeros)
    if errors[0] is None:
        return bound
    certain = write.compare(errors[0], zeros, "EQ")
    return write.add(bound, write.select(certain, zeros, write.gap(x[1], x[2])))


def _comparison(write: Writer, result: Value, x: Sequence[Value], errors: Sequence[Value | None]) -> Value | None:
    """Return 1 where the operands are too close for the outcome to be certain; of a value with itself it always is."""
    if x[0] is x[1]:
        return None
    bound = write.total(errors)
    assert bound is not None
    return write.real(write.near(write.gap(*x), bound))


ELEMENTWISE: dict[str, Rule] = {
    **dict.fromkeys(("abs", "add", "complex", "imag", "negate", "real", "subtract"), _sum),
    **dict.fromkeys(("and", "not", "or", "xor"), _largest),
    **dict.fromkeys(("clamp", "maximum", "minimum"), _extreme),
    "compare": _comparison,
    "divide": _quotient,
    "multiply": _product,
    "select": _selection,
}
