"""What jax.jit has made of a function: alone, as a method of an object, or with what functools.partial gives it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter

import jax

from spmd.support.arrays import Tree, UserFunction


@dataclass(frozen=True)
class OwnStatics:
    """The static arguments that jax.jit has of a function, by position and by name.

    Of arguments that the function is bound to, `bound` has the names and values of those that are static; positions and
    names are those of arguments that are still to be given.
    """

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    bound: tuple[tuple[str, Tree], ...] = ()


def own_statics(function: UserFunction) -> OwnStatics:
    """Return the static arguments that jax.jit has of `function`; none where it has not made it."""
    if inspect.ismethod(function):
        return _bound(function.__func__, (function.__self__,), {})
    if isinstance(function, functools.partial):
        return _bound(function.func, function.args, function.keywords)
    if not is_jitted(function):
        return OwnStatics()
    of_jax = function._jit_info  # type: ignore[attr-defined]
    return OwnStatics(tuple(of_jax.static_argnums), tuple(of_jax.static_argnames))


def _bound(function: UserFunction, args: Sequence[Tree], kwargs: Mapping[str, Tree]) -> OwnStatics:
    """Return the static arguments of `function` where it is bound to its first ones, `args`, and to `kwargs`."""
    own = own_statics(function)
    positional = positional_names(parameters_of(function))
    numbers = {number + len(positional) if number < 0 else number for number in own.numbers}
    names = {*own.names, *(positional[number] for number in numbers if number < len(positional))}
    named = {**dict(zip(positional, args, strict=False)), **kwargs}
    bound = [(name, value) for name, value in named.items() if name in names]
    bound += [(f"argument {at}", args[at]) for at in numbers if len(positional) <= at < len(args)]
    return OwnStatics(
        tuple(at - len(args) for at in numbers if at >= max(len(positional), len(args))),  # others have their names
        tuple(names.difference(positional[: len(args)])),  # what is bound by name may be given by name once more
        (*own.bound, *bound),
    )


def is_jitted(function: UserFunction) -> bool:
    """Return whether jax.jit has made `function`, or that of which it is a method."""
    plain = function.__func__ if inspect.ismethod(function) else function
    return isinstance(plain, jax.stages.Wrapped) and hasattr(plain, "_jit_info")


def has_shardings(function: UserFunction) -> bool:
    """Return whether jax.jit was given shardings for `function`."""
    of_jax = getattr(function, "_jit_info", None)
    leaves = (*getattr(of_jax, "in_shardings_leaves", ()), *getattr(of_jax, "out_shardings_leaves", ()))
    return any(isinstance(leaf, jax.sharding.Sharding) for leaf in leaves)


def trace(function: UserFunction, args: Sequence[Tree], kwargs: Mapping[str, Tree]) -> Tree:
    """Return the `jax.stages.Traced` of a function that jax.jit has made."""
    if inspect.ismethod(function):
        return function.__func__.trace(function.__self__, *args, **kwargs)  # type: ignore[attr-defined]
    return function.trace(*args, **kwargs)  # type: ignore[attr-defined]


def parameters_of(function: UserFunction) -> list[Parameter]:
    """Return the parameters of `function`; none where Python has no signature of it."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def positional_names(parameters: Sequence[Parameter]) -> list[str]:
    """Return the names of the parameters that may be given by position."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [entry.name for entry in parameters if entry.kind in kinds]
