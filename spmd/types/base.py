"""The base classes of types: interning and textual form.

Types are interned: two equal types are one object, so equality is identity and a type is a cheap dictionary key.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import fields
from threading import RLock
from typing import Any, ClassVar, TypeVar
from weakref import WeakValueDictionary

from spmd.support.context import holding

_T = TypeVar("_T")


#: The names of the fields of each class of types.
_FIELD_NAMES: dict[type, tuple[str, ...]] = {}


class _Interned(type):
    """Metaclass that returns one instance for equal fields, for as long as there is a use of it."""

    _table: ClassVar[WeakValueDictionary[tuple[object, ...], Any]] = WeakValueDictionary()
    _making: ClassVar[RLock] = RLock()

    def __call__(cls: type[_T], *args: object, **kwargs: object) -> _T:
        instance = super().__call__(*args, **kwargs)  # type: ignore[misc]
        names = _FIELD_NAMES.get(cls)
        if names is None:
            names = _FIELD_NAMES[cls] = tuple(field.name for field in fields(instance))
        key = (cls, *[getattr(instance, name) for name in names])
        found: _T | None = _Interned._table.get(key)
        if found is not None:
            return found
        with _Interned._making:
            return _Interned._table.setdefault(key, instance)  # type: ignore[no-any-return]


#: Prints types of many parts, in which equal parts may be shared (see `TypeOfTypes`).
Speller = Callable[["TypeOfTypes"], "str | None"]
_speller: ContextVar[Speller | None] = ContextVar("speller", default=None)

#: The most parts, each occurrence counted, and the greatest nesting depth of a type that is printed in full.
MOST_PARTS = 1 << 18
DEEPEST = 200


def spelled_by(speller: Speller) -> AbstractContextManager[None]:
    """A context in which types for which `speller` returns a text are printed as that text."""
    return holding(_speller, speller)


class Type(metaclass=_Interned):
    """A type of the language. `str(type)` is its textual form."""

    __slots__ = ()
    #: The number of component types, each occurrence counted, and their nesting depth.
    parts: ClassVar[int] = 1
    depth: ClassVar[int] = 1

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, memo: dict[int, object]) -> _T:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


class TypeOfTypes(Type):
    """A type made of other types. They may be shared, so few objects can make a type of very many parts."""

    def __post_init__(self) -> None:
        inner = self.inner
        object.__setattr__(self, "parts", 1 + sum([type.parts for type in inner]))
        object.__setattr__(self, "depth", 1 + max([type.depth for type in inner], default=0))

    @property
    def inner(self) -> tuple[Type, ...]:
        """The component types."""
        raise NotImplementedError

    def written(self) -> str:
        """The full textual form, regardless of the number of parts."""
        raise NotImplementedError

    def __str__(self) -> str:
        speller = _speller.get()
        text = speller(self) if speller is not None else None
        if text is None and (self.parts > MOST_PARTS or self.depth > DEEPEST):
            return f"(a type of 2^{self.parts.bit_length() - 1} parts or more, {self.depth} deep)"
        return self.written() if text is None else text

    __repr__ = __str__
