"""Signatures of functions on batches of arrays, written as text.

`T m n -> T m n, i32 min(m,n), i32 where n <= m`: an operand of two dimensions, and results with dependent ones; leading
batch dimensions are common to all. `T` is the element type of the first operand, `R` its real part,
`C` the complex type of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from spmd.dialects.checks import Dimension, compatible_dims, compatible_shapes, listed
from spmd.types import COMPLEX64, COMPLEX128, F32, F64, I32, ElementType, TensorType, Type

_SIZE = re.compile(r"(?P<name>[a-z])(?:-(?P<less>\d+))?|min\((?P<first>[a-z]),(?P<second>[a-z])\)")

#: An array: the letter of its element type, and its sizes.
Form = tuple[str, tuple[str, ...]]


@lru_cache(maxsize=256)
def _read(signature: str) -> tuple[tuple[Form, ...], tuple[Form, ...], tuple[tuple[str, ...], ...]]:
    """Parse a signature into operands, results, and ordered chains of sizes."""
    types, _, conditions = signature.partition(" where ")
    operands, results = (_forms(part) for part in types.split("->"))
    chains = tuple(tuple(size.strip() for size in chain.split("<=")) for chain in conditions.split(",") if chain)
    return operands, results, chains


def _forms(text: str) -> tuple[Form, ...]:
    forms = (re.sub(r",(?!\s)", ";", part).split() for part in re.split(r",\s", text) if part.strip())
    return tuple((form[0], tuple(size.replace(";", ",") for size in form[1:])) for form in forms)


def signature_fault(
    signature: str, element: ElementType | None, operands: Sequence[Type], results: Sequence[Type]
) -> str | None:
    """Return the mismatch of types of `operands` and `results` with `signature`, or None.

    `element` is the element type `T`, by default that of the first operand.
    """
    given, gives, chains = _read(signature)
    if len(operands) != len(given) or len(results) != len(gives):
        return f"{len(operands)} operands and {len(results)} results"
    first = operands[0]
    if not isinstance(first, TensorType) or not isinstance(first.element_type, ElementType):
        return str(first)
    batch = first.shape[: first.rank - len(given[0][1])]
    sizes: dict[str, Dimension] = {}
    for type, form in zip((*operands, *results), (*given, *gives), strict=True):
        if not _fits(type, form, element or first.element_type, batch, sizes):
            return f"({', '.join(map(str, operands))}) -> ({', '.join(map(str, results))})"
    for chain in chains:
        known = [size for size in (_size(each, sizes) for each in chain) if size is not None]
        if any(low > high for low, high in pairwise(known)):
            return f"{listed(known)} for {' <= '.join(chain)}"
    return None


def _fits(
    type: Type, form: Form, element: ElementType, batch: Sequence[Dimension], sizes: dict[str, Dimension]
) -> bool:
    """Return whether `type` has the form `form`; binds new sizes in `sizes`."""
    name, core = form
    if not isinstance(type, TensorType) or type.element_type is not _element(name, element):
        return False
    begin = type.rank - len(core)
    if begin != len(batch) or not compatible_shapes(type.shape[:begin], batch):
        return False
    for size, symbol in zip(type.shape[begin:], core, strict=True):
        if symbol.isalpha() and sizes.get(symbol) is None:
            sizes[symbol] = size
        if not compatible_dims(size, _size(symbol, sizes)):
            return False
    return True


def _element(name: str, element: ElementType) -> Type:
    if name == "i32":
        return I32
    if name == "R":
        return element.real
    return element if name == "T" or element.is_complex else element.complex


def _size(symbol: str, sizes: dict[str, Dimension]) -> Dimension:
    """Return the value of a size, a size minus one, or a minimum of two; None if unknown."""
    if symbol.isdecimal():
        return int(symbol)
    found = _SIZE.fullmatch(symbol)
    assert found is not None, f"{symbol} is no size"
    if found["name"]:
        size = sizes.get(found["name"])
        return None if size is None else max(0, size - int(found["less"] or 0))
    pair = [sizes.get(found[part]) for part in ("first", "second")]
    known = [size for size in pair if size is not None]
    return min(known) if len(known) == len(pair) else None


#: Element types by the first letter of LAPACK's routines.
LETTERS = {"s": F32, "d": F64, "c": COMPLEX64, "z": COMPLEX128}
