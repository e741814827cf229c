"""Types other than tensors: tokens, tuples, futures, functions, and types of other dialects.

Source: StableHLO specification, "Types"; `future<...>`, the async ops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from spmd.types.base import Type, TypeOfTypes


@dataclass(frozen=True, eq=False, repr=False)
class TokenType(Type):
    """`!stablehlo.token`: orders side effects; as a value it is None."""

    def __str__(self) -> str:
        return "!stablehlo.token"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class _ListOfTypes(TypeOfTypes):
    """A keyword followed by a list of types."""

    keyword: ClassVar[str]
    types: tuple[Type, ...]

    @property
    def inner(self) -> tuple[Type, ...]:
        return self.types

    def written(self) -> str:
        return f"{self.keyword}<{', '.join(map(str, self.types))}>"


class TupleType(_ListOfTypes):
    """`tuple<...>`; as a value it is a Python tuple."""

    keyword = "tuple"


class FutureType(_ListOfTypes):
    """`!stablehlo.future<...>`: the result of async_start and operand of async_done."""

    keyword = "!stablehlo.future"


@dataclass(frozen=True, eq=False, repr=False)
class FunctionType(TypeOfTypes):
    """`(inputs) -> results`."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    @property
    def inner(self) -> tuple[Type, ...]:
        """The argument types, then the result types."""
        return self.inputs + self.results

    def written(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> {format_results(self.results)}"


def format_results(types: tuple[Type, ...]) -> str:
    """Result types as MLIR prints them: parentheses unless there is exactly one and it is not a function type."""
    if len(types) == 1 and not isinstance(types[0], FunctionType):
        return str(types[0])
    return f"({', '.join(map(str, types))})"


@dataclass(frozen=True, eq=False, repr=False)
class OpaqueType(Type):
    """A type of an unknown dialect, or a builtin type that no op uses, kept as its text."""

    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


TOKEN = TokenType()


_WIDE_INTEGER = re.compile(r"([su]?)i(\d{1,8})", re.ASCII)


def wide_integer(type: Type) -> tuple[int, bool] | None:
    """Return (bits, whether unsigned) of an integer type that no array holds, such as `i128`; None for any other."""
    match = _WIDE_INTEGER.fullmatch(type.text) if isinstance(type, OpaqueType) else None
    return None if match is None else (int(match[2]), match[1] == "u")
