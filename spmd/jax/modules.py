"""Tree nodes with other values than arrays, such as equinox modules: arrays are leaves, the rest is static.

As in equinox.filter_jit. This applies to nodes of registered classes with a leaf that is neither array nor scalar, such
as a function or a string, which jax.jit rejects; for equinox's own classes scalars are always static. Nodes within such
a node are treated as part of it.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from spmd.support.arrays import Tree

_PLAIN = (dict, list, tuple, type(None), OrderedDict, defaultdict)
_SCALARS = (bool, int, float, complex)


def static_places(tree: Tree, leaves: Sequence[Tree]) -> list[int]:
    """Return the indices of the static ones among `leaves`, the leaves of a tree of structure `tree`."""
    places: list[int] = []
    for node, of_equinox in _registered(tree):
        others = [at for at in node if not _is_array(leaves[at])]
        if of_equinox or not all(isinstance(leaves[at], _SCALARS) for at in others):
            places += others
    return places


def without(tree: Tree, leaves: Sequence[Tree], places: Sequence[int]) -> Tree:
    """Return the tree of `leaves` with None for the static ones, those at `places`."""
    others = list(leaves)
    for place in places:
        others[place] = None
    return tree.unflatten(others)


def restored(tree: Tree, leaves: Sequence[Tree], static: Sequence[tuple[int, Tree]]) -> Tree:
    """Return the tree with the static leaves `static`, by index, and the others from `leaves`."""
    complete = list(leaves)
    for place, value in static:
        complete.insert(place, value)
    return tree.unflatten(complete)


class Results:
    """The results of a function during tracing: keeps the static leaves."""

    def __init__(self) -> None:
        self._tree: Tree = None
        self._static: list[tuple[int, Tree]] = []

    def arrays(self, results: Tree) -> Tree:
        """Return `results` with None for static leaves."""
        leaves, self._tree = jax.tree.flatten(results)
        places = static_places(self._tree, leaves)
        self._static = [(place, leaves[place]) for place in places]
        return without(self._tree, leaves, places) if places else results

    def unflatten(self, tree: Tree, leaves: Sequence[Tree]) -> Tree:
        """Return the results with arrays `leaves`; `tree` is their structure without static leaves."""
        return restored(self._tree, leaves, self._static) if self._static else tree.unflatten(leaves)


@functools.lru_cache(maxsize=1024)
def _registered(tree: Tree) -> list[tuple[range, bool]]:
    """Return the leaves of each outermost node of a registered class, and whether it is equinox's."""
    return list(_visit(tree, 0))


def _visit(node: Any, start: int) -> Iterator[tuple[range, bool]]:
    data = node.node_data()
    if data is None:  # a leaf, or None
        return
    kind = data[0]
    if kind not in _PLAIN and not issubclass(kind, tuple):
        of_equinox = any(base.__module__.partition(".")[0] == "equinox" for base in kind.__mro__)
        yield range(start, start + node.num_leaves), of_equinox
        return
    for child in node.children():
        yield from _visit(child, start)
        start += child.num_leaves


def _is_array(leaf: Tree) -> bool:
    return not isinstance(leaf, type) and hasattr(leaf, "dtype") and hasattr(leaf, "shape")
