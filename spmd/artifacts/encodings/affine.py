"""Affine maps, integer sets and strided layouts in bytecode, read as the text that MLIR prints.

Source: MLIR's BuiltinDialectBytecode, from the version of LLVM in jaxlib 0.11 on.
"""

from __future__ import annotations

from typing import NamedTuple

from spmd.artifacts.encodings.fields import BOOL, DIMENSION, SHAPE, EncodingTable, EntryReader, Enum, Simple, unwritten
from spmd.ir.attributes import AffineMapAttr, Attribute, OpaqueAttr
from spmd.syntax.token_parser import DEEPEST

#: The low two bits of a map's header tell how its results are stored; the others are the number of dimensions.
_IDENTITY, _PERMUTATION, _PROJECTED_PERMUTATION = range(3)
_MOST_INPUTS = 1 << 16
_LEAVES = ("d", "s", "constant")
_KIND = Enum((*_LEAVES, "+", "*", "mod", "floordiv", "ceildiv"))


class _Expression(NamedTuple):
    """A dimension, symbol or constant with its number, or an operation with operands."""

    kind: str
    number: int = 0
    operands: tuple[_Expression, ...] = ()

    def text(self, *, tight: bool = False) -> str:
        """Return the text of the expression, in parentheses if it is an operation and `tight`."""
        if not self.operands:
            return str(self.number) if self.kind == "constant" else f"{self.kind}{self.number}"
        left, right = self.operands
        if self.kind == "+":
            text = f"{left.text()} {right.added()}"
        elif self.negates:
            text = f"-{left.text(tight=True)}"
        else:
            text = f"{left.text(tight=True)} {self.kind} {right.text(tight=True)}"
        return f"({text})" if tight else text

    @property
    def negates(self) -> bool:
        """Whether this is a product with -1, printed as a subtraction."""
        return self.kind == "*" and self.operands[1] == _Expression("constant", -1)

    def added(self) -> str:
        """Return the text of the expression as the right-hand side of a sum, with its sign."""
        if self.kind == "constant" and self.number < 0:
            return f"- {-self.number}"
        if self.negates:
            factor = self.operands[0]
            return f"- {factor.text(tight=factor.kind == '+')}"
        if self.kind == "*" and self.operands[1].kind == "constant" and self.operands[1].number < 0:
            return f"- {self.operands[0].text(tight=True)} * {-self.operands[1].number}"
        return f"+ {self.text()}"


def _read_expression(reader: EntryReader, dims: int, symbols: int, depth: int = 0) -> _Expression:
    if depth > DEEPEST:
        raise ValueError(f"expressions must be nested at most {DEEPEST} deep")
    kind = _KIND.read(reader)
    if kind == "constant":
        return _Expression(kind, reader.svarint())
    if kind in _LEAVES:
        number, count = reader.varint(), dims if kind == "d" else symbols
        if number >= count:
            raise ValueError(f"{kind}{number} is none of {count} {'dimensions' if kind == 'd' else 'symbols'}")
        return _Expression(kind, number)
    left = _read_expression(reader, dims, symbols, depth + 1)
    return _Expression(kind, 0, (left, _read_expression(reader, dims, symbols, depth + 1)))


def _checked(number: int) -> int:
    """Return a number of dimensions or symbols; raises ValueError if it is too large, as it takes no space itself."""
    if number > _MOST_INPUTS:
        raise ValueError(f"an affine map has at most {_MOST_INPUTS} dimensions or symbols, got {number}")
    return number


def _inputs(dims: int, symbols: int) -> str:
    names = f"({', '.join([f'd{index}' for index in range(dims)])})"
    return f"{names}[{', '.join([f's{index}' for index in range(symbols)])}]" if symbols else names


def _read_map(reader: EntryReader) -> Attribute:
    header = reader.varint()
    dims, symbols, form = _checked(header >> 2), 0, header & 3
    if form == _IDENTITY:
        results = [_Expression("d", index) for index in range(dims)]
    elif form in (_PERMUTATION, _PROJECTED_PERMUTATION):
        count = dims if form == _PERMUTATION else reader.count("results")
        numbers = [reader.varint() for _ in range(count)]
        if len({*numbers}) < count or any(number >= dims for number in numbers):
            raise ValueError(f"the results {numbers} are not distinct ones of {dims} dimensions")
        results = [_Expression("d", number) for number in numbers]
    else:
        symbols = _checked(reader.varint())
        results = [_read_expression(reader, dims, symbols) for _ in range(reader.count("results"))]
    return AffineMapAttr(f"affine_map<{_inputs(dims, symbols)} -> ({', '.join([e.text() for e in results])})>")


def _read_set(reader: EntryReader) -> Attribute:
    dims, symbols = _checked(reader.varint()), _checked(reader.varint())
    expressions = [_read_expression(reader, dims, symbols) for _ in range(reader.count("constraints"))]
    constraints = [f"{e.text()} {'==' if BOOL.read(reader) else '>='} 0" for e in expressions]
    return AffineMapAttr(f"affine_set<{_inputs(dims, symbols)} : ({', '.join(constraints)})>")


def _strided(offset: int | None, strides: tuple[int | None, ...]) -> Attribute:
    sizes = ["?" if size is None else str(size) for size in (*strides, offset)]
    return OpaqueAttr(f"strided<[{', '.join(sizes[:-1])}]{'' if offset == 0 else f', offset: {sizes[-1]}'}>")


def declare(attributes: EncodingTable) -> None:
    """Add the codes to the builtin dialect's; they are not written."""
    attributes.reading(23, Simple(_read_map, unwritten), make=lambda value: value)
    attributes.reading(24, Simple(_read_set, unwritten), make=lambda value: value)
    attributes.reading(25, DIMENSION, SHAPE, make=_strided)
