"""What all types are: interned, and written as text.

Types are interned: two equal types are one object, so equality is identity and a type is a cheap dictionary key.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

from spmd.support.context import holding

_T = TypeVar("_T")


class _Interned(type):
    """Makes a class hand out one instance for equal fields."""

    _table: ClassVar[dict[tuple[object, ...], Any]] = {}

    def __call__(cls: type[_T], *args: object, **kwargs: object) -> _T:
        instance = super().__call__(*args, **kwargs)  # type: ignore[misc]
        key = (cls, *(getattr(instance, field.name) for field in fields(instance)))
        return _Interned._table.setdefault(key, instance)  # type: ignore[no-any-return]


#: What writes `str(type)` for types of many parts, which may share them (see `TypeOfTypes`).
Speller = Callable[["TypeOfTypes"], "str | None"]
_speller: ContextVar[Speller | None] = ContextVar("speller", default=None)

#: Of how many parts, each counted wherever it stands, and how deep, a type is written out.
MOST_PARTS = 1 << 18
DEEPEST = 200


def spelled_by(speller: Speller) -> AbstractContextManager[None]:
    """While the types that `speller` has a text for are written as that text."""
    return holding(_speller, speller)


class Type(metaclass=_Interned):
    """A type of the language. `str(type)` is its textual form."""

    __slots__ = ()
    #: How many types it is made of, each counted wherever it stands, and how deep they nest.
    parts: ClassVar[int] = 1
    depth: ClassVar[int] = 1

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, memo: dict[int, object]) -> _T:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


class TypeOfTypes(Type):
    """A type made of other types. They may be shared, so that few objects are a type of very many parts."""

    def __post_init__(self) -> None:
        inner = self.inner
        object.__setattr__(self, "parts", 1 + sum([type.parts for type in inner]))
        object.__setattr__(self, "depth", 1 + max([type.depth for type in inner], default=0))

    @property
    def inner(self) -> tuple[Type, ...]:
        """The types that it is made of."""
        raise NotImplementedError

    def written(self) -> str:
        """The textual form, whatever the number of parts."""
        raise NotImplementedError

    def __str__(self) -> str:
        speller = _speller.get()
        text = speller(self) if speller is not None else None
        if text is None and (self.parts > MOST_PARTS or self.depth > DEEPEST):
            return f"(a type of 2^{self.parts.bit_length() - 1} parts or more, {self.depth} deep)"
        return self.written() if text is None else text

    __repr__ = __str__
