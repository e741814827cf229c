"""Static arguments: a function is compiled for each of their values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import jax

from spmd.errors import UsageError
from spmd.jax import modules
from spmd.jax.wrapped import parameters_of, positional_names
from spmd.support.arrays import Tree, UserFunction


def as_numbers(value: int | Sequence[int], name: str) -> tuple[int, ...]:
    """Return an argument such as static_argnums as a tuple; UsageError unless it has integers."""
    numbers = (value,) if isinstance(value, int) else tuple(value) if isinstance(value, Sequence) else (None,)
    if not all(isinstance(number, int) for number in numbers):
        raise UsageError(f"{name} must be an integer or a sequence of integers, got {value!r}")
    return numbers


def as_names(value: str | Sequence[str], name: str) -> tuple[str, ...]:
    """Return an argument such as static_argnames as a tuple; UsageError unless it has names."""
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (None,)
    if not all(isinstance(entry, str) for entry in names):
        raise UsageError(f"{name} must be a name or a sequence of names, got {value!r}")
    return names


def _starts(tree: Tree) -> list[int]:
    """Return the index of the first leaf of each child."""
    return [0, *itertools.accumulate(child.num_leaves for child in tree.children())][:-1]


@dataclass(frozen=True)
class Selected:
    """Arguments by position and by name; `of_numbers` and `of_names` are the options that selected
    them, for messages.
    """

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    of_numbers: str = "donate_argnums"
    of_names: str = "donate_argnames"


class _Static:
    """A static value with its current hash: a mutated object counts as another value."""

    __slots__ = ("_hash", "value")

    def __init__(self, value: Tree) -> None:
        self.value = value
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Static) or type(self.value) is not type(other.value):
            return False
        return self._hash == other._hash and bool(self.value == other.value)


class Statics:
    """The static arguments of a function, by position and by name, as for jax.jit.

    A named parameter counts whether it is passed by position or by name, by the function's signature. `bound` are
    static arguments that the function has already, such as a method's object, by name; they are part of the keys of
    `split`.
    """

    def __init__(
        self,
        function: UserFunction,
        numbers: int | Sequence[int] = (),
        names: str | Sequence[str] = (),
        bound: Sequence[tuple[str, Tree]] = (),
    ) -> None:
        self._bound = tuple(bound)
        self._numbers = set(as_numbers(numbers, "static_argnums"))
        self._names = set(as_names(names, "static_argnames"))
        parameters = parameters_of(function)
        positional = positional_names(parameters)
        count = len(positional)
        self._numbers = {number + count if -count <= number < 0 else number for number in self._numbers}
        has_rest = any(entry.kind is entry.VAR_POSITIONAL for entry in parameters)
        beyond = [number for number in self._numbers if parameters and not has_rest and not 0 <= number < count]
        if beyond:
            raise UsageError(f"static_argnums has {beyond[0]}, and the function takes {count} arguments")
        takes_any = not parameters or any(entry.kind is entry.VAR_KEYWORD for entry in parameters)
        self._parameters = None if takes_any else {entry.name for entry in parameters}
        self._check_names(self._names, "static_argnames")
        self._names |= {positional[number] for number in self._numbers if number < count}
        self._numbers |= {number for number, name in enumerate(positional) if name in self._names}
        self._positional = positional

    def __bool__(self) -> bool:
        return bool(self._numbers or self._names or self._bound)

    def split(
        self, args: tuple[Tree, ...], kwargs: dict[str, Tree]
    ) -> tuple[tuple[Tree, ...], dict[str, Tree], tuple[Tree, ...]]:
        """Return the other arguments, and the static ones as a key; UsageError for one that is not hashable."""
        positions = tuple((at, self._static(at, value)) for at, value in enumerate(args) if at in self._numbers)
        named = tuple(sorted((name, self._static(name, kwargs[name])) for name in self._names.intersection(kwargs)))
        bound = tuple(self._static(name, value) for name, value in self._bound)
        rest = tuple(value for at, value in enumerate(args) if at not in self._numbers)
        others = {name: value for name, value in kwargs.items() if name not in self._names}
        leaves, tree = jax.tree.flatten((rest, others))
        places = modules.static_places(tree, leaves)
        if not places:
            return rest, others, (positions, named, bound, None)
        within = tuple((place, self._static(f"leaf {place}", leaves[place])) for place in places)
        return *modules.without(tree, leaves, places), (positions, named, bound, (tree, within))

    def has_modules(self, args: tuple[Tree, ...], kwargs: Mapping[str, Tree]) -> bool:
        """Return whether the arguments have static leaves, so that `split` must be called for them."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        return bool(modules.static_places(tree, leaves))

    def _static(self, which: int | str, value: Tree) -> _Static:
        try:
            return _Static(value)
        except TypeError as error:
            name = self._positional[which] if isinstance(which, int) and which < len(self._positional) else which
            raise UsageError(
                f"the static argument {name!r} is of type {type(value).__name__}, which cannot be hashed"
            ) from error

    def _check_names(self, names: Iterable[str], what: str) -> None:
        unknown = () if self._parameters is None else sorted(set(names) - self._parameters)
        if unknown:
            raise UsageError(f"{what} has {unknown[0]!r}, which is no parameter of the function")

    def leaves_of(self, selected: Selected, tree: Tree) -> list[int]:
        """Return the leaves of the arguments `selected`; `tree` is of (args, kwargs) without the static ones.

        A parameter counts however it is passed; one left at its default has no leaves.
        """
        args, kwargs = tree.children()
        by_place: dict[int, range] = {}
        by_name: dict[str, range] = {}
        place = 0
        for child, start in zip(args.children(), _starts(args), strict=True):
            while place in self._numbers:
                place += 1
            by_place[place] = range(start, start + child.num_leaves)
            if place < len(self._positional):
                by_name[self._positional[place]] = by_place[place]
            place += 1
        names = kwargs.node_data()[1]
        for name, child, start in zip(names, kwargs.children(), _starts(kwargs), strict=True):
            first = args.num_leaves + start
            by_name[name] = range(first, first + child.num_leaves)
            if name in self._positional:
                by_place[self._positional.index(name)] = by_name[name]
        self._check_names(selected.names, selected.of_names)
        places = self._places(selected, max(place, len(self._positional)))
        static = sorted(self._names.intersection(selected.names))
        if static:
            raise UsageError(f"{selected.of_names} has {static[0]!r}, which is static")
        ranges = [by_place.get(place, ()) for place in places] + [by_name.get(name, ()) for name in selected.names]
        return sorted({leaf for leaves in ranges for leaf in leaves})

    def _places(self, selected: Selected, count: int) -> list[int]:
        """Return the positions of arguments by their numbers; UsageError for one that is no array."""
        places = [number + count if number < 0 else number for number in selected.numbers]
        for number, place in zip(selected.numbers, places, strict=True):
            if not 0 <= place < count or place in self._numbers:
                raise UsageError(f"{selected.of_numbers} has {number}, which is no array among the {count} arguments")
        return places

    @staticmethod
    def insert(
        key: tuple[Tree, ...], args: tuple[Tree, ...], kwargs: Mapping[str, Tree]
    ) -> tuple[tuple[Tree, ...], Mapping[str, Tree]]:
        """Return the arguments of which `split` made the key and the others, the inverse of `split`."""
        if not key:
            return args, kwargs
        positions, named, _, within = key
        if within is not None:
            tree, static = within
            values = [(place, each.value) for place, each in static]
            args, kwargs = modules.restored(tree, jax.tree.leaves((args, kwargs)), values)
        complete = list(args)
        for at, static in positions:
            complete.insert(at, static.value)
        return tuple(complete), {**kwargs, **{name: static.value for name, static in named}}

    def of_leaves(self, function: UserFunction, key: tuple[Tree, ...], tree: Tree) -> UserFunction:
        """Return `function` as a function of the leaves of the other arguments, whose tree is `tree`."""

        def complete(*leaves: Tree) -> Tree:
            args, kwargs = self.insert(key, *tree.unflatten(leaves))
            return function(*args, **kwargs)

        return complete

    def names_of_rest(self) -> list[str]:
        """Return the names of the positional parameters that are not static."""
        return [name for number, name in enumerate(self._positional) if number not in self._numbers]
