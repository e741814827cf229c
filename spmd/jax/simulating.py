"""`spmd.jax.simulate`: all processes of a JAX function, stacked in this one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import numpy as np

from collectives.grid import ProcessGrid
from spmd.compiler.options import CompileOptions, chosen_options
from spmd.errors import UsageError
from spmd.jax.compiled import Compiled
from spmd.jax.jitting import checked_axes
from spmd.jax.leaves import AbstractLeaf, form_of, names_of, to_array
from spmd.jax.process_view import Axes
from spmd.jax.statics import Statics
from spmd.jax.step import function_and_statics
from spmd.jax.tracing import lower, name_of
from spmd.runtime.simulation import Simulation
from spmd.runtime.simulation import simulate as simulate_module


def simulate(
    function: Callable[..., Any],
    *,
    axes: Mapping[str, int],
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    **options: Unpack[CompileOptions],
) -> Simulated:
    """The function that `spmd.jax.jit` would run on ranks (or what it made of one), with all processes stacked here.

    Each leaf of its arguments has a leading axis of all processes, in order of rank (the first of `axes` is major), or
    of size 1: the same on every process; so is a Python scalar. Each leaf of its results has that axis.

    :param axes: sizes by name, major first.
    :param static_argnums, static_argnames: as jax.jit takes them.
    :param options: those of spmd.compile.
    :raises UsageError: for axes, static arguments and leaves that are none.
    """
    plain, statics = function_and_statics(function, static_argnums, static_argnames, "spmd.jax.simulate")
    chosen_options(ProcessGrid(1, 1), options)
    return Simulated(plain, checked_axes(axes), statics, options)


class Simulated:
    """What `spmd.jax.simulate` makes of a function: call it with stacked trees."""

    def __init__(self, function: Callable[..., Any], axes: Axes, statics: Statics, options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.axes = axes
        self._statics = statics
        self._options = options
        self._simulations: dict[Any, tuple[Compiled, Simulation]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs all processes on their arguments."""
        args, kwargs, static = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        names = names_of((args, kwargs), self._statics.names_of_rest())
        pairs = [self._stacked(leaf, names, index) for index, leaf in enumerate(leaves)]
        compiled, simulation = self._compiled(tree, tuple(form for form, _ in pairs), static)
        arrays = [np.asarray(array) for _, array in pairs]
        results = simulation(*[None] * compiled.tokens, *[arrays[index] for index in compiled.kept])
        return compiled.out_tree.unflatten(compiled.finished(results[compiled.tokens :]))

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in self.axes)
        return f"<spmd.jax.simulate of {name_of(self._function)} over {axes}>"

    def _stacked(self, leaf: Any, names: Sequence[str], index: int) -> tuple[AbstractLeaf, Any]:
        """The form of one process's leaf, and the stacked array."""
        form = form_of(leaf, names, index)
        if np.isscalar(leaf):
            return form, to_array(leaf, form)[None]
        size = int(np.prod([length for _, length in self.axes]))
        if not form.shape or form.shape[0] not in (1, size):
            raise UsageError(f"{names[index]} is {form}: it needs a leading axis of all {size} processes, or of size 1")
        return AbstractLeaf(form.shape[1:], form.dtype, form.weak), to_array(leaf, form)

    def _compiled(
        self, tree: Any, forms: tuple[AbstractLeaf, ...], static: tuple[Any, ...]
    ) -> tuple[Compiled, Simulation]:
        key = (tree, forms, static)
        compiled_pair = self._simulations.get(key)
        if compiled_pair is None:
            insert = functools.partial(self._statics.insert, static)
            lowered = lower(self._function, self.axes, insert, tree, forms)
            if lowered.is_global:
                raise UsageError("spmd.jax.simulate takes the view of one process; JAX itself runs the global view")
            compiled = Compiled(lowered, tree, static, forms, False, self._options)
            simulation = simulate_module(compiled.module, compiled.grid, **self._options)
            compiled_pair = self._simulations[key] = compiled, simulation
        return compiled_pair
