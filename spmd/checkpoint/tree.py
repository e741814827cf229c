"""Trees as a structure in JSON and a list of leaves.

Trees are built of dictionaries (any Mapping), lists, tuples, named tuples, dataclasses and None. A static field of a
dataclass (metadata ``static=True``, or flax's ``pytree_node=False``) is not part of the tree. Leaves are arrays;
Python's scalars and strings are stored in the structure. Other kinds of nodes are registered by `register`, or with
JAX, if the program has imported it.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from spmd.errors import CheckpointError
from spmd.support.arrays import Tree

#: Maximum depth of a tree: JSON's reader and writer, and the functions here, recurse.
MOST_LEVELS = 128
_MOST_DIGITS = 4300  # maximum digits of an integer that Python converts
_LONGEST_NAME = 200  # maximum length in an error
#: The key of a child: a key of a dictionary, an index, a field's name.
Key = Any
Json = Any


@dataclasses.dataclass(frozen=True)
class Node:
    """An inner node: its kind, class name, children by key, and a function that builds one of new children."""

    kind: str
    name: str
    entries: Sequence[tuple[Key, Tree]]
    rebuild: Callable[[list[Tree]], Tree]


#: Returns the Node of a value of a registered kind, or None.
Recognizer = Callable[[Tree], Node | None]
_registered: dict[str, tuple[Recognizer, Callable[[dict[Key, Tree]], Tree] | None]] = {}
#: A package that registers kinds of nodes, and the module that does so.
_PACKAGE, _REGISTERS = "spmd.jax", "spmd.jax.trees"


def register(kind: str, recognize: Recognizer, make: Callable[[dict[Key, Tree]], Tree] | None = None) -> None:
    """Register a kind of node. `make` builds one of its children, for when no tree like it is given."""
    _registered[kind] = recognize, make


def node_of(tree: Tree) -> Node | None:
    """Return `tree` as an inner node; None for a leaf."""
    if isinstance(tree, Mapping):
        return _mapping_node(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        entries = list(zip(tree._fields, tree, strict=True))
        return Node("namedtuple", type(tree).__name__, entries, lambda parts: tuple.__new__(type(tree), parts))
    if type(tree) in (list, tuple):
        return Node(type(tree).__name__, "", list(enumerate(tree)), type(tree))
    node = _recognized(tree)
    if node is not None:
        return node
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree) if not _is_static(field)]
        return Node(
            "dataclass",
            type(tree).__name__,
            [(name, getattr(tree, name)) for name in names],
            lambda parts: _with_fields(tree, dict(zip(names, parts, strict=True))),
        )
    return _node_of_jax(tree)


def _recognized(tree: Tree) -> Node | None:
    return next(filter(None, (recognize(tree) for recognize, _ in _kinds().values())), None)


def _kinds() -> Mapping[str, tuple[Recognizer, Callable[[dict[Key, Tree]], Tree] | None]]:
    """Return the registered kinds, including those of a package that the program has imported."""
    if _PACKAGE in sys.modules and _REGISTERS not in sys.modules:
        import_module(_REGISTERS)
    return _registered


def _mapping_node(tree: Mapping[Key, Tree]) -> Node:
    """Return a mapping as a node.

    A registered class contributes the children stored in it, which its mapping interface may show differently (flax's
    State shows nested dicts as States).
    """
    keys = list(tree)
    known = None if isinstance(tree, dict) else _recognized(tree) or _node_of_jax(tree)
    if known is not None and {key for key, _ in known.entries} == set(keys):
        return dataclasses.replace(known, kind="dict", name="")
    return Node("dict", "", [(key, tree[key]) for key in keys], lambda parts: _mapping(tree, keys, parts))


def _node_of_jax(tree: Tree) -> Node | None:
    """Return `tree` as a node registered with JAX, if JAX has been imported."""
    tree_util = sys.modules.get("jax.tree_util")
    return None if tree_util is None else registered_node(tree, tree_util)


def registered_node(tree: Tree, tree_util: Any) -> Node | None:
    """Return `tree` as a node registered with `jax.tree_util`, with children by their keys; None for a leaf."""
    if tree_util.all_leaves([tree]):
        return None
    paths, structure = tree_util.tree_flatten_with_path(tree, is_leaf=lambda other: other is not tree)
    return Node("pytree", type(tree).__name__, [(_plain(path[0]), child) for path, child in paths], structure.unflatten)


def _plain(entry: object) -> Key:
    """Return the key in an entry of a JAX path."""
    return next((getattr(entry, name) for name in ("key", "name", "idx") if hasattr(entry, name)), str(entry))


def _mapping(like: Mapping[Key, Tree], keys: list[Key], parts: list[Tree]) -> Tree:
    entries = dict(zip(keys, parts, strict=True))
    if type(like) is dict:
        return entries
    if not isinstance(like, dict):
        try:
            return type(like)(entries)  # type: ignore[call-arg]
        except TypeError as error:
            raise CheckpointError(f"no {type(like).__name__} is made of its entries alone: {error}") from error
    made = copy.copy(like)  # what else it holds, such as the factory of a defaultdict
    for key, part in entries.items():  # a Counter's update would add them to what it has
        made[key] = part
    return made


def _is_static(field: dataclasses.Field[Any]) -> bool:
    return bool(field.metadata.get("static", False)) or not field.metadata.get("pytree_node", True)


def _with_fields(tree: Tree, values: dict[str, Tree]) -> Tree:
    """Return a dataclass like `tree` with other values, without calling its __init__."""
    instance = object.__new__(type(tree))
    for field in dataclasses.fields(tree):
        object.__setattr__(instance, field.name, values.get(field.name, getattr(tree, field.name)))
    return instance


# --- flattening ------------------------------------------------------------------------------------------------------


def flatten(tree: Tree) -> tuple[Json, list[tuple[str, Tree]]]:
    """Return the structure of `tree`, and its array leaves with their names (JSON Pointers, RFC 6901).

    In the structure an array is ``{"array": index}``. Raises CheckpointError for what could not be read back: keys and
    values that a structure cannot hold, trees deeper than `MOST_LEVELS` levels or containing themselves.
    """
    leaves: list[tuple[str, Tree]] = []
    return _flatten(tree, "", leaves, 0), leaves


def _flatten(tree: object, path: str, leaves: list[tuple[str, Tree]], level: int) -> Json:
    if tree is None:
        return None
    try:
        if type(tree) in _SCALARS:
            return {type(tree).__name__: _SCALARS[type(tree)][0](tree)}
        node = node_of(tree)
        if node is None:
            leaves.append((path, tree))
            return {"array": len(leaves) - 1}
        if level == MOST_LEVELS:
            raise ValueError(f"the tree is deeper than {MOST_LEVELS} levels, or contains itself")
        if node.kind == "namedtuple":
            _named_tuple(node.name, [key for key, _ in node.entries])
        keys = [_key(key) for key, _ in node.entries]
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path[:_LONGEST_NAME] or 'the tree'}: {error}") from error
    children = [_flatten(child, pointer(path, key), leaves, level + 1) for key, child in node.entries]
    entries = [[key, child] for key, child in zip(keys, children, strict=True)]
    return {"kind": node.kind, "name": node.name, "entries": entries}


def _named_tuple(name: str, fields: Sequence[str]) -> type[tuple[Tree, ...]]:
    """Return a new named tuple class; ValueError if Python does not allow the name or the fields."""
    made = namedtuple(name, fields, rename=True)  # type: ignore[misc]  # names such as _1 are given to fields, and may not be asked for
    if list(made._fields) != list(fields):
        raise ValueError(f"Python has no named tuple with the fields {', '.join(map(str, fields))}")
    return made


def pointer(path: str, key: Key) -> str:
    """Return the name of the child at `key` of the node named `path`."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _integer(value: int) -> str:
    # log10(2) is below 0.30103: an integer of so many bits has fewer digits.
    if value.bit_length() * 0.30103 >= _MOST_DIGITS:
        raise ValueError(f"an integer of more than {_MOST_DIGITS} digits cannot be saved in a checkpoint")
    return str(value)


def _float(text: str) -> float:
    return float.fromhex(text)


#: Python's scalars: how each is written to a structure and read back. JSON has no NaN.
_SCALARS: dict[type, tuple[Callable[[Tree], Json], Callable[[Tree], Tree]]] = {
    bool: (bool, bool),
    int: (_integer, int),
    float: (float.hex, _float),
    complex: (lambda value: [value.real.hex(), value.imag.hex()], lambda parts: complex(*map(_float, parts))),
    str: (str, str),
    bytes: (bytes.hex, bytes.fromhex),
}
_READERS = {type.__name__: read for type, (_, read) in _SCALARS.items()}


def _key(key: Key, level: int = 0) -> Json:
    if type(key) is int:
        _integer(key)
    if key is None or type(key) in (str, bool, int):
        return key
    if type(key) is float:
        if key != key:
            raise ValueError("a key that is NaN equals none that is read back")
        return {"float": key.hex()}
    if type(key) is tuple:
        if level == MOST_LEVELS:
            raise ValueError(f"a key nests deeper than {MOST_LEVELS} levels")
        return [_key(part, level + 1) for part in key]
    raise TypeError(f"a key of type {type(key).__name__} cannot be saved in a checkpoint")


def read_key(key: Json) -> Key:
    if isinstance(key, list):
        return tuple(read_key(part) for part in key)
    return _float(key["float"]) if isinstance(key, dict) else key


# --- unflattening ----------------------------------------------------------------------------------------------------


def unflatten(structure: Json, arrays: Sequence[Tree]) -> Tree:
    """Return the tree of a structure; named tuples are new classes of the same name, dataclasses SimpleNamespaces."""
    if structure is None:
        return None
    if "array" in structure:
        return arrays[structure["array"]]
    if "kind" not in structure:
        return _scalar(structure)
    parts = {read_key(key): unflatten(child, arrays) for key, child in structure["entries"]}
    match structure["kind"]:
        case "dict":
            return parts
        case "list":
            return list(parts.values())
        case "tuple":
            return tuple(parts.values())
        case "namedtuple":
            return _named_tuple(structure["name"], list(parts))(*parts.values())
        case "dataclass":
            return SimpleNamespace(**parts)
    _, make = _kinds().get(structure["kind"], (None, None))
    if make is None:
        raise CheckpointError(f"the tree has a {structure['name']}, which is only restored with like=, a tree like it")
    return make(parts)


def unflatten_like(structure: Json, like: object, take: Callable[[int, Tree], Tree], path: str = "") -> Tree:
    """Return the tree of a structure, built of the classes of `like`; CheckpointError names where they differ.

    `take(index, leaf)` returns the array `index`, given the corresponding leaf of `like`.
    """
    node = None if like is None or type(like) in _SCALARS else node_of(like)
    kind = None if structure is None else structure.get("kind")
    if (structure is None) != (like is None) or kind != (node.kind if node is not None else None):
        raise CheckpointError(
            f"{path or 'the tree'} is {_described(structure)} in the checkpoint, {_described_tree(like)} here"
        )
    if structure is None:
        return None
    if node is None:
        return take(structure["array"], like) if "array" in structure else _scalar(structure)
    children = {read_key(key): child for key, child in structure["entries"]}
    keys = [key for key, _ in node.entries]
    if set(keys) != set(children):
        raise CheckpointError(f"{path or 'the tree'}: {_difference(list(children), keys)}")
    return node.rebuild([unflatten_like(children[key], child, take, pointer(path, key)) for key, child in node.entries])


def _scalar(structure: Json) -> Tree:
    ((name, text),) = structure.items()
    return _READERS[name](text)


def _described(structure: Json) -> str:
    if structure is None:
        return "None"
    if "kind" in structure:
        return f"a {structure['name'] or structure['kind']}"
    return "an array" if "array" in structure else f"a value of type {next(iter(structure))}"


def _described_tree(tree: object) -> str:
    return "None" if tree is None else f"a {type(tree).__name__}"


def _difference(saved: list[Key], expected: list[Key]) -> str:
    had, wanted = set(saved), set(expected)
    missing = [str(key) for key in expected if key not in had]
    unknown = [str(key) for key in saved if key not in wanted]
    said = [f"the checkpoint has no {', '.join(missing)}"] if missing else []
    said += [f"the checkpoint's {', '.join(unknown)} is not in the tree here"] if unknown else []
    return " and ".join(said)


def check_structure(structure: Json, arrays: int, per_rank: int) -> None:
    """Raise ValueError, or an error of wrong types, unless `structure` is a result of `flatten`.

    Its arrays must be numbered from 0 to `arrays`, its per-rank scalars from 0 to `per_rank`.
    """
    found: dict[str, list[int]] = {"array": [], "per_rank": []}
    pending = [structure]
    while pending:
        node = pending.pop()
        if node is None:
            continue
        if "kind" in node:
            if not isinstance(node["kind"], str) or not isinstance(node["name"], str):
                raise ValueError("a node of its tree has no kind")
            keys = [read_key(key) for key, _ in node["entries"]]
            if len(set(keys)) != len(keys):
                raise ValueError("a node of its tree has a key twice")
            if node["kind"] == "namedtuple":
                _named_tuple(node["name"], keys)
            pending += [child for _, child in node["entries"]]
            continue
        ((name, value),) = node.items()
        if name in found:
            found[name].append(value)
        else:
            _scalar(node)
    for name, count in (("array", arrays), ("per_rank", per_rank)):
        if sorted(found[name]) != list(range(count)):
            raise ValueError(f"its tree does not have each {name} once")


def match(structure: Json, other: object, is_leaf: Callable[[Tree], bool], path: str = "") -> Iterator[Tree]:
    """Yield the entry of `other`, a tree with the same keys, for each array of a structure, in order.

    A part of `other` for which `is_leaf` holds applies to all arrays below. Raises CheckpointError if keys differ.
    """
    if structure is None or not {"array", "kind"} & structure.keys():
        return
    if "array" in structure:
        yield other
        return
    beside = None if is_leaf(other) else node_of(other)
    parts = dict(beside.entries) if beside is not None else {}
    for key, child in structure["entries"]:
        if is_leaf(other):
            yield from match(child, other, is_leaf)
            continue
        name = pointer(path, read_key(key))
        if read_key(key) not in parts:
            raise CheckpointError(f"the shardings have nothing for {name}")
        yield from match(child, parts[read_key(key)], is_leaf, name)
