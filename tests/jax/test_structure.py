"""Code of a tree's own takes it apart as JAX does, and knows every other tree."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest

jax = pytest.importorskip("jax")

from spmd.jax.structure import OTHER_STRUCTURE, flattener  # noqa: E402


class Pair(NamedTuple):
    first: Any
    second: Any


@jax.tree_util.register_pytree_node_class
class Turned(tuple[Any, ...]):
    """A tuple whose children are not its elements as they come."""

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return self[::-1], None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any, ...]) -> Turned:
        return cls(children[::-1])


TREES: list[Any] = [
    1, None, (), [], {}, (1,), [1], (1, 2), {"a": 1}, {"a": 1, "b": 2}, {"b": 1, "a": (2, 3)}, {"a": None}, {"a": {}},
    {2: 1, 10: 3}, {-1: 1}, {"quote's \\": 1, "\ud800\n": 2}, {True: 1}, {1.5: 1}, {(1, 2): 3}, [[[], [1]], {}],
    Pair(1, 2), Pair(None, Pair(1, {"a": [2]})), Turned((1, 2)), Turned((1, (2, 3))),
    OrderedDict(b=1, a=2), OrderedDict(a=2, b=1), defaultdict(int, a=1), defaultdict(list, a=1),
    jax.tree_util.Partial(max, 1, key=2), jax.tree_util.Partial(min, 1, key=2),
]  # fmt: skip
RUNS = range(len(TREES))


@pytest.mark.parametrize("index", RUNS)
def test_leaves_come_as_jax_gives_them(index: int) -> None:
    leaves, structure = jax.tree.flatten(TREES[index])
    assert flattener(structure)(TREES[index]) == leaves


@pytest.mark.parametrize("index", RUNS)
def test_trees_are_of_the_structure_for_which_jax_says_so(index: int) -> None:
    structure = jax.tree.structure(TREES[index])
    flatten = flattener(structure)
    for other in TREES:
        if _fits(structure.flatten_up_to, other):
            assert flatten(other) == structure.flatten_up_to(other)
        else:
            with pytest.raises(OTHER_STRUCTURE):
                flatten(other)


def _fits(flatten: Any, tree: Any) -> bool:
    try:
        flatten(tree)
    except ValueError:
        return False
    return True


def test_a_key_that_is_not_there_is_another_tree() -> None:
    """And one more that JAX would not notice by the number of its entries."""
    flatten = flattener(jax.tree.structure({"a": 1, "b": [2]}))
    for other in ({"a": 1, "c": [2]}, {"a": 1}, {"a": 1, "b": [2], "c": 3}, {"a": 1, "b": (2,)}, {"a": 1, "b": [2, 3]}):
        with pytest.raises(OTHER_STRUCTURE):
            flatten(other)


def test_trees_may_be_deep() -> None:
    tree: Any = 7
    for depth in range(150):
        tree = [tree] if depth % 2 else {"a": tree}
    flatten = flattener(jax.tree.structure(tree))
    assert flatten(tree) == [7]
