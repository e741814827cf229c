"""`spmd.jax.simulate`: all processes of a JAX function, stacked in this one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Unpack

import jax
import numpy as np

from collectives.grid import ProcessGrid
from partitioner import ShardedType, shard_stacked, unshard_stacked
from spmd.compiler.pipeline.options import CompileOptions, chosen_options
from spmd.errors import UsageError
from spmd.jax import settings
from spmd.jax.compiled import Compiled
from spmd.jax.jitting import checked_axes
from spmd.jax.layouts import Cuts, Leaves
from spmd.jax.leaves import AbstractLeaf, data_shape, form_of, to_array, with_data
from spmd.jax.local_arrays import ProcessLocalArray
from spmd.jax.op_by_op import as_value, refuse_global_view, refuse_shardings, run_op_by_op
from spmd.jax.process_view import Axes
from spmd.jax.programs import Forms, Names, Programs
from spmd.jax.statics import Statics
from spmd.jax.step import function_and_statics
from spmd.jax.tracebacks import api_boundary
from spmd.jax.tracing import described, lower, refuse_axes
from spmd.runtime.simulation import Simulation
from spmd.runtime.simulation import simulate as simulate_module
from spmd.support.arrays import Array, Tree, UserFunction


@api_boundary
def simulate(
    function: UserFunction,
    *,
    axes: Mapping[str, int] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    **options: Unpack[CompileOptions],
) -> Simulated:
    """Return a function that runs all processes of `function` stacked in this one.

    `function` is as for `spmd.jax.jit`, or its result. Written for one process, each leaf of its arguments has a
    leading axis of all processes, in order of rank (the first of `axes` is major), or of size 1 for a value equal on
    every process, like a Python scalar. Each leaf of its results has that axis.

    In the global view it is called as on ranks: with whole arrays at first, and afterwards with these or with blocks,
    as its results are; `unshard(tree)` joins blocks, `shard(tree)` cuts arrays. Blocks are those of all processes,
    stacked.

    :param axes: sizes by name, major first; the global view has a mesh instead, and takes none.
    :param static_argnums, static_argnames: as for jax.jit.
    :param options: those of spmd.compile.
    :raises UsageError: for invalid axes, static arguments or leaves.
    """
    plain, statics = function_and_statics(function, static_argnums, static_argnames, "spmd.jax.simulate")
    chosen_options(ProcessGrid(1, 1), options)
    return Simulated(plain, None if axes is None else checked_axes(axes), statics, options)


class Simulated:
    """The result of `spmd.jax.simulate`: call it with stacked trees, in the global view with whole ones."""

    def __init__(
        self, function: UserFunction, axes: Axes | None, statics: Statics, options: Mapping[str, Tree]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.axes = axes
        self._statics = statics
        self._options = options
        self._programs = Programs(self._compile)

    @api_boundary
    def __call__(self, *args: Tree, **kwargs: Tree) -> Tree:
        """Run all processes on their arguments."""
        args, kwargs, static = self._statics.split(args, kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        names = Names(tree, self._statics)
        forms = tuple(form_of(leaf, names, index) for index, leaf in enumerate(leaves))
        if settings.is_jit_disabled():
            return self._op_by_op(leaves, tree, static, forms, names)
        own = list(forms) if self.axes is None else _of_a_process(leaves, forms, names, self.axes)
        program = self._programs.of(tuple(own), tree, static, self.axes or (), names)
        return program.call(leaves, program.arrays(leaves, forms, names))

    def _op_by_op(
        self, leaves: Sequence[Tree], tree: Tree, static: tuple[Tree, ...], forms: Forms, names: Sequence[str]
    ) -> Tree:
        """Call the function under jax_disable_jit: in Python, each op for all processes at once."""
        refuse_shardings(self._function)
        axes = self.axes
        if axes is None:
            refuse_global_view("a function of spmd.jax.simulate without axes")
        own = _of_a_process(leaves, forms, names, axes)
        values, stacked = [], []
        for leaf, whole, form in zip(leaves, forms, own, strict=True):
            value = as_value(leaf, whole)
            is_same = whole.shape == form.shape or whole.shape[0] == 1
            values.append(value.reshape(form.shape) if is_same else value)
            stacked.append(not is_same)

        def compile(function: UserFunction) -> UserFunction:
            return Simulated(function, axes, Statics(function), self._options)

        function = self._statics.of_leaves(self._function, static, tree)
        return run_op_by_op(function, axes, compile, values, stacked)

    @api_boundary
    def shard(self, tree: Tree) -> Tree:
        """Return the stacked blocks of whole arrays: of arguments or results, all or some. See JittedFunction.shard."""
        return self._programs.apply("shard", tree)

    @api_boundary
    def unshard(self, tree: Tree) -> Tree:
        """Return the whole arrays of stacked blocks: of results or arguments, all or some."""
        return self._programs.apply("unshard", tree)

    def __repr__(self) -> str:
        return described("spmd.jax.simulate", self._function, self.axes)

    def _compile(self, forms: Forms, tree: Tree, static: tuple[Tree, ...]) -> _Stacked:
        insert = functools.partial(self._statics.insert, static)
        lowered = lower(self._function, self.axes or (("processes", 1),), insert, tree, forms)
        refuse_axes(self._function, self.axes, lowered.is_global, "spmd.jax.simulate")
        if not lowered.is_global and self.axes is None:
            raise UsageError('spmd.jax.simulate needs the axes of the view of one process, such as axes={"data": 4}')
        if lowered.outside:
            raise UsageError(
                "spmd.jax.simulate runs all processes, and the function closes over a jax.Ref that they would share: "
                "give one with a leading axis of them as an argument"
            )
        return _Stacked(lowered, tree, static, forms, False, self._options)


def _of_a_process(
    leaves: Sequence[Tree], forms: Sequence[AbstractLeaf], names: Sequence[str], axes: Axes
) -> list[AbstractLeaf]:
    """Return the forms of one process's leaves, given stacked ones of `forms`."""
    size = math.prod(size for _, size in axes)
    own = []
    for index, (leaf, form) in enumerate(zip(leaves, forms, strict=True)):
        if np.isscalar(leaf):
            own.append(form)
            continue
        if not form.shape or form.shape[0] not in (1, size):
            raise UsageError(f"{names[index]} is {form}: it needs a leading axis of all {size} processes, or of size 1")
        if form.is_ref and form.shape[0] != size:
            raise UsageError(f"{names[index]} is a jax.Ref of {form}: it needs a leading axis of all {size} processes")
        own.append(replace(form, shape=form.shape[1:]))
    return own


class _Stacked(Compiled):
    """The program of all processes, whose arrays have a leading axis of processes."""

    @functools.cached_property
    def simulation(self) -> Simulation:
        """The compiled stacked program, compiled on first use."""
        return simulate_module(self.module, self.grid, **self.running_options)

    @property
    def execute(self) -> Callable[..., Sequence[Array]]:
        return self.simulation

    @property
    def shardings_of_program(self) -> tuple[Sequence[Tree] | None, Sequence[Tree] | None]:
        return self.simulation.in_shardings, self.simulation.out_shardings

    @functools.cached_property
    def cuts(self) -> Cuts:
        return replace(super().cuts, stacked=self.processes)

    def arrays(self, leaves: Sequence[Tree], forms: Sequence[AbstractLeaf], names: Sequence[str]) -> list[Array]:
        """Return the stacked arrays of the leaves; in the global view whole arrays are cut to blocks."""
        for leaf, name in zip(leaves, names, strict=True):
            if isinstance(leaf, ProcessLocalArray):
                raise UsageError(
                    f"{name} is the block of one process, and here are all: spmd.jax.jit takes it, on ranks"
                )
        arrays = [to_array(leaf, form) for leaf, form in zip(leaves, forms, strict=True)]
        if self.is_global:
            return self.shard(arrays, self.cuts.arguments)
        return [array[None] if np.isscalar(leaf) else array for leaf, array in zip(leaves, arrays, strict=True)]

    def shard(self, leaves: Sequence[Tree], side: Leaves) -> list[Tree]:
        def cut(layout: ShardedType | None, array: Array) -> Array:
            return array[None] if layout is None else shard_stacked(array, layout, self.processes)

        return self._changed(leaves, side, cut, of_wholes=True)

    def unshard(self, leaves: Sequence[Tree], side: Leaves) -> list[Tree]:
        def join(layout: ShardedType | None, array: Array) -> Array:
            return array[0] if layout is None else unshard_stacked(array, layout)

        return self._changed(leaves, side, join, of_wholes=False)

    def _changed(
        self,
        leaves: Sequence[Tree],
        side: Leaves,
        change: Callable[[ShardedType | None, Array], Array],
        of_wholes: bool,
    ) -> list[Tree]:
        """Return `leaves` with `change` applied to whole arrays, or to blocks; written for one process,
        all are blocks.
        """
        if not self.is_global:
            return list(leaves)
        return [
            with_data(leaf, functools.partial(change, layout))
            if (data_shape(leaf) == form.data_shape) == of_wholes
            else leaf
            for leaf, form, layout in zip(leaves, side.forms, side.layouts, strict=True)
        ]
