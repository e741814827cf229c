"""Properties of functions made by jax.jit: alone, bound as methods, or in functools.partial."""

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
    """The static arguments of a function made by jax.jit, by position and by name.

    `bound` has the names and values of the static ones among the arguments that the function is bound to; positions and
    names refer to the remaining arguments.
    """

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    bound: tuple[tuple[str, Tree], ...] = ()


def own_statics(function: UserFunction) -> OwnStatics:
    """Return the static arguments of `function` in jax.jit; none if it is not jax.jit's."""
    if inspect.ismethod(function):
        return _bound(function.__func__, (function.__self__,), {})
    if isinstance(function, functools.partial):
        return _bound(function.func, function.args, function.keywords)
    if not is_jitted(function):
        return OwnStatics()
    of_jax = function._jit_info  # type: ignore[attr-defined]
    return OwnStatics(tuple(of_jax.static_argnums), tuple(of_jax.static_argnames))


def _bound(function: UserFunction, args: Sequence[Tree], kwargs: Mapping[str, Tree]) -> OwnStatics:
    """Return the static arguments of `function` bound to its first arguments `args` and to `kwargs`."""
    own = own_statics(function)
    positional = positional_names(parameters_of(function))
    numbers = {number + len(positional) if number < 0 else number for number in own.numbers}
    names = {*own.names, *(positional[number] for number in numbers if number < len(positional))}
    named = {**dict(zip(positional, args, strict=False)), **kwargs}
    bound = [(name, value) for name, value in named.items() if name in names]
    bound += [(f"argument {at}", args[at]) for at in numbers if len(positional) <= at < len(args)]
    return OwnStatics(
        tuple(at - len(args) for at in numbers if at >= max(len(positional), len(args))),  # others by name
        tuple(names.difference(positional[: len(args)])),  # arguments bound by name may be passed by name again
        (*own.bound, *bound),
    )


def is_jitted(function: UserFunction) -> bool:
    """Return whether `function`, or the function of a method, is made by jax.jit."""
    plain = function.__func__ if inspect.ismethod(function) else function
    return isinstance(plain, jax.stages.Wrapped) and hasattr(plain, "_jit_info")


def has_shardings(function: UserFunction) -> bool:
    """Return whether jax.jit was given shardings for `function`."""
    of_jax = getattr(function, "_jit_info", None)
    leaves = (*getattr(of_jax, "in_shardings_leaves", ()), *getattr(of_jax, "out_shardings_leaves", ()))
    return any(isinstance(leaf, jax.sharding.Sharding) for leaf in leaves)


def trace(function: UserFunction, args: Sequence[Tree], kwargs: Mapping[str, Tree]) -> Tree:
    """Return the `jax.stages.Traced` of a function made by jax.jit."""
    if inspect.ismethod(function):
        return function.__func__.trace(function.__self__, *args, **kwargs)  # type: ignore[attr-defined]
    return function.trace(*args, **kwargs)  # type: ignore[attr-defined]


def parameters_of(function: UserFunction) -> list[Parameter]:
    """Return the parameters of `function`; none if it has no signature."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def positional_names(parameters: Sequence[Parameter]) -> list[str]:
    """Return the names of the parameters that can be passed by position."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [entry.name for entry in parameters if entry.kind in kinds]
