"""Layouts of the leaves of a function's arguments and results, and the recognition of trees of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax

from partitioner import ShardedType
from spmd.errors import UsageError
from spmd.jax.leaves import AbstractLeaf, data_shape
from spmd.support.arrays import Tree
from spmd.types import TensorType

#: A layout per leaf; None for a whole array.
Layouts = Sequence[ShardedType | None]


@dataclass(frozen=True)
class Leaves:
    """The arguments of a function, its results, or some of them: a tree, and the form and the layout of each leaf."""

    tree: Tree
    forms: Sequence[AbstractLeaf]
    layouts: Layouts

    def parts(self) -> Iterator[Leaves]:
        """Yield this side, and its children."""
        yield self
        start = 0
        for child in self.tree.children():
            part = slice(start, start + child.num_leaves)
            yield Leaves(child, self.forms[part], self.layouts[part])
            start = part.stop


@dataclass(frozen=True)
class Cuts:
    """The arguments and results of a function; `stacked` is the number of processes whose blocks are
    stacked, if any.
    """

    arguments: Leaves
    results: Leaves
    stacked: int | None = None

    def is_block(self, shape: tuple[int, ...], form: AbstractLeaf, layout: ShardedType | None) -> bool:
        """Return whether `shape` is that of a leaf's block, or of the stacked blocks of all processes."""
        block = form.data_shape if layout is None else local_shape(layout)
        if self.stacked is None:
            return shape == block
        return shape[1:] == block and shape[:1] in ((self.stacked,), (1,))

    def fits(self, forms: Sequence[AbstractLeaf], names: Sequence[str]) -> bool:
        """Return whether arguments of these forms are whole arrays or blocks of them, leaf by leaf.

        Raises UsageError if some are certainly blocks of them, and others are neither.
        """
        misfit = self.misfit(forms, names)
        if misfit is not None and any(self._blocks(forms)):
            raise UsageError(misfit)
        return misfit is None

    def misfit(self, forms: Sequence[AbstractLeaf], names: Sequence[str]) -> str | None:
        """Return a message on the first argument that is neither a whole array nor a block; None if there is none."""
        known = zip(forms, self.arguments.forms, self.arguments.layouts, self._blocks(forms), strict=True)
        for index, (form, whole, layout, is_block) in enumerate(known):
            if form != whole and not is_block:
                block = (
                    "" if layout is None else f" nor {self._of_a_process} block of it, of shape {local_shape(layout)}"
                )
                return f"{names[index]} is {form}: neither the global {whole}{block}"
        return None

    def _blocks(self, forms: Sequence[AbstractLeaf]) -> list[bool]:
        """Return which arguments of these forms are certainly blocks."""
        return [
            (layout is not None or self.stacked is not None)
            and self.is_block(form.data_shape, whole, layout)
            and form.dtype == whole.dtype
            for form, whole, layout in zip(forms, self.arguments.forms, self.arguments.layouts, strict=True)
        ]

    @property
    def _of_a_process(self) -> str:
        return "this process's" if self.stacked is None else f"each of {self.stacked} processes'"

    def of(self, tree: Tree, arguments_first: bool) -> Leaves | None:
        """Return the side that `tree` belongs to: arguments, results, one of either, or some; None if neither.

        `arguments_first` decides if it could be both.
        """
        whole = self._part(tree, arguments_first)
        if whole is not None:
            return whole
        children = jax.tree.leaves(tree, is_leaf=lambda part: part is not tree)
        parts = [self._part(child, arguments_first) for child in children if child is not tree]
        known = [part for part in parts if part is not None]
        if not known or len(known) != len(parts):
            return None
        forms = [form for part in known for form in part.forms]
        return Leaves(jax.tree.structure(tree), forms, [layout for part in known for layout in part.layouts])

    def _part(self, tree: Tree, arguments_first: bool) -> Leaves | None:
        leaves, structure = jax.tree.flatten(tree)
        shapes = list(map(data_shape, leaves))
        sides = (self.arguments, self.results) if arguments_first else (self.results, self.arguments)
        for side in sides:
            for part in side.parts():
                if part.tree == structure and all(map(self._is_whole_or_block, shapes, part.forms, part.layouts)):
                    return part
        return None

    def _is_whole_or_block(self, shape: tuple[int, ...], form: AbstractLeaf, layout: ShardedType | None) -> bool:
        return shape == form.data_shape or self.is_block(shape, form, layout)


def layouts_of(shardings: Sequence[Tree]) -> list[ShardedType | None]:
    """Return the layouts of arrays with these shardings."""
    return [layout if _is_cut(layout) else None for layout in shardings]


def _is_cut(layout: object) -> bool:
    return isinstance(layout, ShardedType) and layout.sharding is not None and not layout.sharding.is_replicated


def local_shape(layout: ShardedType) -> tuple[int, ...]:
    """Return the shape of a block."""
    local = layout.local_type
    assert isinstance(local, TensorType)
    return local.static_shape
