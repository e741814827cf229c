"""A function compiled for one tree of arguments and their forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.ref import Ref

from collectives.grid import ProcessGrid
from partitioner import ShardedType, shard_array, unshard_array
from spmd.errors import UsageError
from spmd.ir import Module
from spmd.jax import settings
from spmd.jax.layouts import Cuts, Leaves, layouts_of, local_shape
from spmd.jax.leaves import AbstractLeaf, Taker, data_shape, from_array, refuse, taker_of, to_array, with_data
from spmd.jax.local_arrays import ProcessLocalArray, part_of
from spmd.jax.special_values import SpecialValues
from spmd.jax.structure import flattener
from spmd.jax.tracing import Lowered
from spmd.jax.whole_values import check_whole_values
from spmd.runtime.compile import compile
from spmd.runtime.executable import Executable
from spmd.support.arrays import Array, Tree

if TYPE_CHECKING:
    from spmd.predict.prediction import Prediction
    from spmd.viewing.view import View


class Compiled:
    """A program, and the conversions between its arrays and the trees of (args, kwargs) and results."""

    def __init__(
        self,
        lowered: Lowered,
        tree: Tree,
        static: tuple[Tree, ...],
        forms: tuple[AbstractLeaf, ...],
        as_jax: bool,
        options: Mapping[str, Tree],
    ) -> None:
        self.module: Module = lowered.module
        self.grid = ProcessGrid(num_replicas=1, num_partitions=lowered.processes)
        self.processes = lowered.processes
        self.is_global = lowered.is_global
        self.tree = tree
        self.static = static
        self.settings = settings.current()
        self.forms = forms
        self.out_tree = lowered.out_tree
        self.unflatten = partial(lowered.given.unflatten, lowered.out_tree)
        self.out_forms = lowered.results
        self.kept = lowered.kept
        self.tokens = lowered.tokens
        self.outside = lowered.outside
        self.updates = lowered.updates
        self._options = options
        is_searched = self.settings.nans or self.settings.infs
        self._special_values = SpecialValues(self.settings, options.get("watch")) if is_searched else None
        self._compared = self.processes == 1  # whether the whole arrays of all ranks have been compared
        self._finish = [_finisher(form, as_jax) for form in lowered.results]

    @cached_property
    def executable(self) -> Executable:
        """The compiled program, compiled on first use."""
        return compile(self.module, self.grid, partition=self.is_global, **self.running_options)

    @property
    def running_options(self) -> Mapping[str, Tree]:
        """The options of compilation, with a watcher if JAX's settings check for NaN or infinity."""
        watched = {} if self._special_values is None else {"watch": self._special_values}
        return {**self._options, **watched}

    def cost(self) -> Prediction:
        """Return the predicted cost of a step on $SPMD_MACHINE and $SPMD_TOPOLOGY."""
        from spmd.compiler.pipeline.prepare import prepare  # imported late: needed for costs only
        from spmd.predict.machine import default_machine
        from spmd.predict.prediction import predict
        from spmd.predict.topology import default_network

        machine = default_machine()
        prepared = prepare(self.module, self.grid, partition=self.is_global, **self._options)
        return predict(prepared, machine, default_network(machine))

    def view(self, title: str) -> View:
        """Return a page that shows the program."""
        from spmd.viewing.view import view  # imported late: needed for views only

        return view(self.module, grid=self.grid, partition=self.is_global, title=title, **self._options)

    @cached_property
    def run(self) -> Callable[[Sequence[Tree]], Tree]:
        """A function that runs the program on this process's arrays of the leaves, and returns the tree
        of its results.
        """
        execute, unflatten, tokens = self.execute, self.unflatten, self.tokens
        plain = all(finish is None for finish in self._finish) and self._special_values is None
        if plain and not tokens and self.kept == tuple(range(len(self.forms))):
            return lambda arrays: unflatten(execute(*arrays))
        kept, before = self.kept, (None,) * tokens

        def run(arrays: Sequence[Tree]) -> Tree:
            results = execute(*before, *[arrays[index] for index in kept])
            return unflatten(self.finished(results[tokens:]))

        return run

    @property
    def execute(self) -> Callable[..., Sequence[Array]]:
        """The function that runs the program on its arrays."""
        return self.executable

    def call(self, leaves: Sequence[Tree], arrays: Sequence[Array]) -> Tree:
        """Run the program on the arrays of `leaves`, and update the refs among these and from outside.

        Raises UsageError if a ref is passed twice.
        """
        if not self.updates:
            return self.run(arrays)
        refs = [leaf for leaf in leaves if isinstance(leaf, Ref)] + list(self.outside)
        if len(set(map(id, refs))) < len(refs):
            raise UsageError("a jax.Ref is given twice, or is closed over, too: a function takes each once")
        forms = self.updates[len(refs) - len(self.outside) :]
        values = [*arrays, *map(to_array, self.outside, forms)]
        results = self.execute(*(None,) * self.tokens, *[values[index] for index in self.kept])[self.tokens :]
        count = len(self.out_forms)
        self._look_through(results)
        given = self.unflatten(self.finished(results[:count]))
        for ref, update, form in zip(refs, results[count:], self.updates, strict=True):
            ref[...] = from_array(np.array(update), form, as_jax=True)
        return given

    def finished(self, results: Sequence[Array]) -> list[Tree]:
        """Return the leaves of results; FloatingPointError for values that JAX's settings forbid."""
        self._look_through(results)
        pairs = zip(self._finish, results, strict=True)
        return [result if finish is None else finish(result) for finish, result in pairs]

    def _look_through(self, results: Sequence[Array]) -> None:
        """Raise FloatingPointError for values that JAX's settings forbid."""
        if self._special_values is not None:
            self._special_values.check(results, (self.module.symbol or "the function").removeprefix("jit_"))

    # --- arguments ---

    @cached_property
    def flatten(self) -> Callable[[Tree], list[Tree]]:
        """A function that returns the leaves of (args, kwargs); raises OTHER_STRUCTURE unless they have
        this structure.
        """
        return flattener(self.tree)

    def arrays(self, leaves: Sequence[Tree], forms: Sequence[AbstractLeaf], names: Sequence[str]) -> list[Array]:
        """Return this process's arrays of the leaves; in the global view whole arrays are cut to blocks."""
        arrays = [to_array(leaf, form) for leaf, form in zip(leaves, forms, strict=True)]
        if not self.is_global:
            return arrays
        for index, leaf in enumerate(leaves):
            if isinstance(leaf, ProcessLocalArray):
                self._check_parts(leaf, index, names)
        if not self._compared:
            self._compared = True
            wholes = [
                None if isinstance(leaf, ProcessLocalArray) or array.shape != form.data_shape else array
                for leaf, array, form in zip(leaves, arrays, self.forms, strict=True)
            ]
            check_whole_values(wholes, names, self.executable.process.communicator, self.processes)
        return self.shard(arrays, self.cuts.arguments)

    def _check_parts(self, leaf: ProcessLocalArray, index: int, names: Sequence[str]) -> None:
        """Raise UsageError, on all ranks, if a rank holds another part of `leaf` than the program's
        argument `index`.
        """
        layout = self.cuts.arguments.layouts[index]
        for rank in range(self.processes):
            held = part_of(leaf.sharding, leaf.shape, rank)
            taken = tuple(slice(0, size) for size in leaf.shape) if layout is None else layout.index(rank)
            if held != taken:
                cut = "whole" if layout is None else f"cut as {layout.sharding}"
                raise UsageError(
                    f"{names[index]} is given cut as {leaf.sharding.spec}, so that rank {rank} holds {_shown(held)} of "
                    f"it, and the function takes it {cut}, of which rank {rank} has {_shown(taken)}"
                )

    def takers(self, leaves: Sequence[Tree]) -> list[tuple[int, Taker]]:
        """Return the numbers of the leaves that are no NumPy arrays, with what makes arrays of such leaves."""
        layouts = self.cuts.arguments.layouts
        return [
            (index, taker_of(leaf, form) if layout is None else refuse)
            for index, (leaf, form, layout) in enumerate(zip(leaves, self.forms, layouts, strict=True))
            if leaf.__class__ is not np.ndarray
        ]

    def is_for(self, leaves: Sequence[Tree]) -> bool:
        """Return whether the NumPy arrays among `leaves` fit `run`."""
        return all(
            self.cuts.is_block(leaf.shape, form, layout) and leaf.dtype == form.dtype
            for leaf, form, layout in zip(leaves, self.forms, self.cuts.arguments.layouts, strict=True)
            if leaf.__class__ is np.ndarray
        )

    @cached_property
    def cuts(self) -> Cuts:
        """The layouts of its arguments and results."""
        inputs, outputs = self.shardings_of_program if self.is_global else (None, None)
        layouts: list[ShardedType | None] = [None] * len(self.forms)
        if inputs is not None:
            for index, layout in zip(self.kept, layouts_of(inputs[self.tokens :]), strict=True):
                layouts[index] = layout
        out_layouts = [None] * len(self.out_forms) if outputs is None else layouts_of(outputs[self.tokens :])
        return Cuts(
            Leaves(self.tree.children()[0], self.forms, layouts), Leaves(self.out_tree, self.out_forms, out_layouts)
        )

    @property
    def shardings_of_program(self) -> tuple[Sequence[Tree] | None, Sequence[Tree] | None]:
        """The shardings of the arguments and of the results of the program; None if it has none."""
        return self.executable.in_shardings, self.executable.out_shardings

    # --- blocks and whole arrays ---

    def shard(self, leaves: Sequence[Tree], side: Leaves) -> list[Tree]:
        """Return blocks of `leaves`, which belong to `side`."""
        rank = self.executable.process.rank
        return [
            leaf
            if layout is None or data_shape(leaf) == local_shape(layout)
            else with_data(leaf, partial(shard_array, layout=layout, rank=rank))
            for leaf, layout in zip(leaves, side.layouts, strict=True)
        ]

    def unshard(self, leaves: Sequence[Tree], side: Leaves) -> list[Tree]:
        """Return whole arrays of `leaves`, which belong to `side`."""
        communicator = self.executable.process.communicator
        return [
            leaf
            if layout is None or data_shape(leaf) != local_shape(layout)
            else with_data(leaf, partial(unshard_array, layout=layout, communicator=communicator))
            for leaf, layout in zip(leaves, side.layouts, strict=True)
        ]

    def shardings(self, leaves: Sequence[Tree], side: Leaves) -> list[Tree]:
        """Return the layouts of `leaves`, which belong to `side`."""
        return list(side.layouts)


def _shown(part: Sequence[slice]) -> str:
    return f"[{', '.join(f'{each.start}:{each.stop}' for each in part)}]"


def _finisher(form: AbstractLeaf, as_jax: bool) -> Callable[[Array], Tree] | None:
    """Return a function that makes the leaf of a result's array; None if it is that array."""
    if form.is_key or form.dtype == jax.dtypes.float0 or as_jax:
        return partial(from_array, form=form, as_jax=as_jax)
    return None
