"""A function compiled for one tree of arguments and their forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from collectives.grid import ProcessGrid
from partitioner import ShardedType, shard_array, unshard_array
from spmd.arrays import Array
from spmd.errors import UsageError
from spmd.ir import Module
from spmd.jax.leaves import AbstractLeaf, form_of, from_array, to_array
from spmd.jax.tracing import Lowered
from spmd.runtime.compile import compile
from spmd.runtime.executable import Executable
from spmd.types import TensorType

if TYPE_CHECKING:
    from spmd.predict.prediction import Prediction

Layouts = Sequence[ShardedType | None]


class Compiled:
    """The program, and what lies between it and trees of (args, kwargs) and of results."""

    def __init__(
        self,
        lowered: Lowered,
        tree: Any,
        static: tuple[Any, ...],
        forms: tuple[AbstractLeaf, ...],
        as_jax: bool,
        options: Mapping[str, Any],
    ) -> None:
        self.module: Module = lowered.module
        self.grid = ProcessGrid(num_replicas=1, num_partitions=lowered.processes)
        self.processes = lowered.processes
        self.is_global = lowered.is_global
        self.tree = tree
        self.static = static
        self.forms = forms
        self.out_tree = lowered.out_tree
        self.out_forms = lowered.results
        self.kept = lowered.kept
        self.tokens = lowered.tokens
        self._options = options
        self._finish = [_finisher(form, as_jax) for form in lowered.results]

    @cached_property
    def executable(self) -> Executable:
        return compile(self.module, self.grid, partition=self.is_global, **self._options)

    def cost(self) -> Prediction:
        """What a step takes on $SPMD_MACHINE and $SPMD_TOPOLOGY."""
        from spmd.compiler.prepare import prepare
        from spmd.predict.machine import default_machine
        from spmd.predict.prediction import predict
        from spmd.predict.topology import default_network

        machine = default_machine()
        prepared = prepare(self.module, self.grid, partition=self.is_global, **self._options)
        return predict(prepared, machine, default_network(machine))

    @cached_property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """Runs the program on this process's arrays of the leaves, and gives the tree of its results."""
        executable, unflatten, tokens = self.executable, self.out_tree.unflatten, self.tokens
        plain = all(finish is None for finish in self._finish)
        if plain and not tokens and self.kept == tuple(range(len(self.forms))):
            return lambda arrays: unflatten(executable(*arrays))
        kept, before = self.kept, (None,) * tokens

        def run(arrays: Sequence[Any]) -> Any:
            results = executable(*before, *[arrays[index] for index in kept])
            return unflatten(self.finished(results[tokens:]))

        return run

    def finished(self, results: Sequence[Array]) -> list[Any]:
        """Leaves of the results from their arrays."""
        pairs = zip(self._finish, results, strict=True)
        return [result if finish is None else finish(result) for finish, result in pairs]

    # --- arguments ---

    def arrays(self, leaves: Sequence[Any], forms: Sequence[AbstractLeaf], names: Sequence[str]) -> list[Array]:
        """This process's arrays of the leaves: of the global view, whole ones are cut."""
        arrays = [to_array(leaf, form) for leaf, form in zip(leaves, forms, strict=True)]
        if not self.is_global:
            return arrays
        return self.shard(arrays, self.layouts)

    def with_arrays(self, leaves: list[Any], others: Sequence[int]) -> list[Any] | None:
        """`leaves` with an array for each of `others`; None when one has not the form that this was compiled for."""
        arrays = list(leaves)
        for index in others:
            try:
                form = form_of(leaves[index], ("",), 0)
            except UsageError:
                return None
            if form != self.forms[index] or self.layouts[index] is not None:
                return None
            arrays[index] = to_array(leaves[index], form)
        return arrays

    def is_for(self, leaves: Sequence[Any]) -> bool:
        """Whether the NumPy arrays among `leaves` are what `run` takes."""
        return all(
            leaf.shape == (form.shape if layout is None else _block(layout)) and leaf.dtype == form.dtype
            for leaf, form, layout in zip(leaves, self.forms, self.layouts, strict=True)
            if leaf.__class__ is np.ndarray
        )

    @cached_property
    def layouts(self) -> Layouts:
        """How each leaf of the arguments is cut: None where it is not."""
        layouts: list[ShardedType | None] = [None] * len(self.forms)
        if self.is_global and self.executable.in_shardings is not None:
            for index, layout in zip(self.kept, self.executable.in_shardings, strict=True):
                layouts[index] = layout if _is_cut(layout) else None
        return layouts

    @cached_property
    def out_layouts(self) -> Layouts:
        shardings = self.executable.out_shardings if self.is_global else None
        return [layout if _is_cut(layout) else None for layout in shardings or [None] * len(self.out_forms)]

    def fits(self, forms: Sequence[AbstractLeaf], names: Sequence[str]) -> bool:
        """Whether arguments of these forms are, leaf by leaf, whole arrays or blocks of what this was compiled for.

        UsageError when some are certainly blocks of it, and others are neither.
        """
        wholes = [form == known for form, known in zip(forms, self.forms, strict=True)]
        blocks = [
            layout is not None and form.data_shape == _block(layout) and form.dtype == known.dtype
            for form, known, layout in zip(forms, self.forms, self.layouts, strict=True)
        ]
        wrong = [index for index, fitting in enumerate(zip(wholes, blocks, strict=True)) if not any(fitting)]
        if wrong and any(blocks):
            index = wrong[0]
            layout = self.layouts[index]
            block = "" if layout is None else f" nor this process's block of it, of shape {_block(layout)}"
            raise UsageError(f"{names[index]} is {forms[index]}: neither the global {self.forms[index]}{block}")
        return not wrong

    # --- blocks and whole arrays ---

    def layouts_of(self, tree: Any, of_arguments: bool) -> Layouts | None:
        """The layouts of `tree`, if it is the arguments, the results, one of either, or some of these; else None.

        `of_arguments`: which of them to think of first, where it could be both.
        """
        layouts = self._part(tree, of_arguments)
        if layouts is not None:
            return layouts
        children = jax.tree.leaves(tree, is_leaf=lambda part: part is not tree)
        parts = [self._part(child, of_arguments) for child in children if child is not tree]
        known = [part for part in parts if part is not None]
        return [layout for part in known for layout in part] if known and len(known) == len(parts) else None

    def _part(self, tree: Any, of_arguments: bool) -> Layouts | None:
        leaves, structure = jax.tree.flatten(tree)
        shapes = [tuple(leaf.shape) if hasattr(leaf, "shape") else np.shape(leaf) for leaf in leaves]
        for known, forms, layouts in self._parts(of_arguments):
            if known == structure and all(map(_is_whole_or_block, shapes, forms, layouts)):
                return layouts
        return None

    def _parts(self, of_arguments: bool) -> Iterator[tuple[Any, Sequence[AbstractLeaf], Layouts]]:
        sides = [(self.out_tree, self.out_forms, self.out_layouts), (self.tree.children()[0], self.forms, self.layouts)]
        for side in reversed(sides) if of_arguments else sides:
            yield from _with_children(*side)

    def shard(self, leaves: Sequence[Any], layouts: Layouts) -> list[Array]:
        rank = self.executable.process.rank

        def block(leaf: Any, layout: ShardedType | None) -> Any:
            if layout is None or np.shape(leaf) == _block(layout):
                return leaf
            return shard_array(np.asarray(leaf), layout, rank)

        return list(map(block, leaves, layouts))

    def unshard(self, leaves: Sequence[Any], layouts: Layouts) -> list[Array]:
        communicator = self.executable.process.communicator
        return [
            leaf
            if layout is None or np.shape(leaf) != _block(layout)
            else unshard_array(np.asarray(leaf), layout, communicator)
            for leaf, layout in zip(leaves, layouts, strict=True)
        ]

    def shardings(self, leaves: Sequence[Any], layouts: Layouts) -> list[Any]:
        return list(layouts)


def _finisher(form: AbstractLeaf, as_jax: bool) -> Callable[[Array], Any] | None:
    """What makes the leaf of a result's array; None where it is that array."""
    if form.is_key or form.dtype == jax.dtypes.float0 or as_jax:
        return partial(from_array, form=form, as_jax=as_jax)
    return None


def _with_children(
    tree: Any, forms: Sequence[AbstractLeaf], layouts: Layouts
) -> Iterator[tuple[Any, Sequence[AbstractLeaf], Layouts]]:
    yield tree, forms, layouts
    start = 0
    for child in tree.children():
        part = slice(start, start + child.num_leaves)
        yield child, forms[part], layouts[part]
        start = part.stop


def _is_whole_or_block(shape: tuple[int, ...], form: AbstractLeaf, layout: ShardedType | None) -> bool:
    return shape in (form.shape, form.shape if layout is None else _block(layout))


def _is_cut(layout: Any) -> bool:
    return isinstance(layout, ShardedType) and layout.sharding is not None and not layout.sharding.is_replicated


def _block(layout: ShardedType) -> tuple[int, ...]:
    local = layout.local_type
    assert isinstance(local, TensorType)
    return local.static_shape
