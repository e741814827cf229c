"""Arguments that a function is compiled anew for each value of."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spmd.errors import UsageError


def as_numbers(value: int | Sequence[int], name: str) -> tuple[int, ...]:
    """An argument such as static_argnums as a tuple; UsageError for what is no number."""
    numbers = (value,) if isinstance(value, int) else tuple(value) if isinstance(value, Sequence) else (None,)
    if not all(isinstance(number, int) for number in numbers):
        raise UsageError(f"{name} is an integer or a sequence of integers, got {value!r}")
    return numbers


def _as_names(value: str | Sequence[str]) -> set[str]:
    names = {value} if isinstance(value, str) else set(value) if isinstance(value, Sequence) else {None}
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"static_argnames is a name or a sequence of names, got {value!r}")
    return {name for name in names if name is not None}


def _starts(tree: Any) -> list[int]:
    """Where the leaves of each child begin."""
    return [0, *itertools.accumulate(child.num_leaves for child in tree.children())][:-1]


class Statics:
    """Which arguments of a function are static, by position and by name, as jax.jit takes them.

    A parameter that is named counts wherever it is given: Python's signature of the function tells.
    """

    def __init__(self, function: Callable[..., Any], numbers: int | Sequence[int], names: str | Sequence[str]) -> None:
        self._numbers = set(as_numbers(numbers, "static_argnums"))
        self._names = _as_names(names)
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        positional = [
            entry.name for entry in parameters if entry.kind in (entry.POSITIONAL_ONLY, entry.POSITIONAL_OR_KEYWORD)
        ]
        count = len(positional)
        self._numbers = {number + count if -count <= number < 0 else number for number in self._numbers}
        has_rest = any(entry.kind is entry.VAR_POSITIONAL for entry in parameters)
        beyond = [number for number in self._numbers if parameters and not has_rest and not 0 <= number < count]
        if beyond:
            raise UsageError(f"static_argnums has {beyond[0]}, and the function takes {count} arguments")
        known = {entry.name for entry in parameters}
        unknown = self._names - known
        if unknown and parameters and not any(entry.kind is entry.VAR_KEYWORD for entry in parameters):
            raise UsageError(f"static_argnames has {sorted(unknown)[0]!r}, which is no parameter of the function")
        self._names |= {positional[number] for number in self._numbers if number < count}
        self._numbers |= {number for number, name in enumerate(positional) if name in self._names}
        self._positional = positional

    def __bool__(self) -> bool:
        return bool(self._numbers or self._names)

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
        """The other arguments, and the static ones as a key: UsageError for one that cannot be hashed."""
        positions = tuple((at, value) for at, value in enumerate(args) if at in self._numbers)
        named = tuple(sorted((name, value) for name, value in kwargs.items() if name in self._names))
        for which, value in (*positions, *named):
            try:
                hash(value)
            except TypeError as error:
                name = self._positional[which] if isinstance(which, int) and which < len(self._positional) else which
                raise UsageError(
                    f"the static argument {name!r} is of type {type(value).__name__}, which cannot be hashed"
                ) from error
        rest = tuple(value for at, value in enumerate(args) if at not in self._numbers)
        return rest, {name: value for name, value in kwargs.items() if name not in self._names}, (positions, named)

    def leaves_of(self, numbers: Sequence[int], tree: Any) -> list[int]:
        """The leaves of the arguments `numbers`, by position; `tree` is of (args, kwargs) without the static ones.

        One that is given by its name counts, one that is left to its default has none.
        """
        args, kwargs = tree.children()
        leaves: dict[int, range] = {}
        place = 0
        for child, start in zip(args.children(), _starts(args), strict=True):
            while place in self._numbers:
                place += 1
            leaves[place] = range(start, start + child.num_leaves)
            place += 1
        names = kwargs.node_data()[1]
        for name, child, start in zip(names, kwargs.children(), _starts(kwargs), strict=True):
            if name in self._positional:
                first = args.num_leaves + start
                leaves[self._positional.index(name)] = range(first, first + child.num_leaves)
        count = max(place, len(self._positional))
        donated: list[int] = []
        for number in numbers:
            position = number + count if number < 0 else number
            if not 0 <= position < count or position in self._numbers:
                raise UsageError(f"donate_argnums has {number}, which is no array among the {count} arguments")
            donated += leaves.get(position, ())
        return donated

    @staticmethod
    def insert(
        key: tuple[Any, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments of which `split` made the key and the others."""
        if not key:
            return args, kwargs
        positions, named = key
        complete = list(args)
        for at, value in positions:
            complete.insert(at, value)
        return tuple(complete), {**kwargs, **dict(named)}

    def names_of_rest(self) -> list[str]:
        """Names of the positional parameters that are not static."""
        return [name for number, name in enumerate(self._positional) if number not in self._numbers]
