"""Reads files of `jax.export`: a module in VHLO, and JAX's description of the function.

Source: JAX's export/serialization.fbs (slots in the order of the schema), and "Module calling convention" in JAX's
documentation of jax.export. Fields have only been added at the end, so that all versions are read alike; the version
field is 3 in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from spmd import types as t
from spmd.artifacts.bytecode import read_bytecode
from spmd.artifacts.flatbuffer import FlatTable
from spmd.artifacts.signature import put_constants, set_arguments, unused_argument
from spmd.artifacts.stream import Buffer
from spmd.dialects.func import function_fault
from spmd.errors import ByteLocation, ParseError, UsageError
from spmd.ir import Function, Module, Value

#: The type of the platform index of a module for several platforms.
_PLATFORM = t.TensorType((), t.I32)
_LEAF, _NONE, _TUPLE, _LIST, _DICT, _CUSTOM = range(6)
_DTYPES = (
    "i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "f32", "f64", "complex<f32>",
    "complex<f64>", "bf16", "i4", "ui4", "f8E4M3B11FNUZ", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f0",
    "f8E4M3", "f8E3M4", "f8E8M0FNU", "f4E2M1FN", "key<fry>", "key<rbg>", "key<unsafe_rbg>",
)  # fmt: skip
#: The representation of arrays that no tensor type fits: float0 has no values, keys are words.
_STAND_INS = {
    "f0": ("i1", ()),
    "key<fry>": ("ui32", (2,)),
    "key<rbg>": ("ui32", (4,)),
    "key<unsafe_rbg>": ("ui32", (4,)),
}
_CHECKS = ("platform", "custom_call", "shape_assertions")


@dataclass(frozen=True)
class Tree:
    """A pytree: a leaf, or children with their keys in the node (`.x`, `['x']`, `[0]`)."""

    kind: str
    children: tuple[Tree, ...] = ()
    names: tuple[str, ...] = ()

    def leaves(self, path: str) -> Iterator[str]:
        """Yield the path of each leaf, as JAX prints it."""
        if self.kind == "leaf":
            yield path
        for name, child in zip(self.names, self.children, strict=True):
            yield from child.leaves(path + name)

    def __str__(self) -> str:
        inside = [str(child) for child in self.children]
        if self.kind == "dict":
            return "{" + ", ".join(f"{name[1:-1]}: {text}" for name, text in zip(self.names, inside, strict=True)) + "}"
        if self.kind == "tuple":
            return f"({', '.join(inside)}{',' if len(inside) == 1 else ''})"
        if self.kind == "list":
            return f"[{', '.join(inside)}]"
        return {"leaf": "*", "none": "None"}.get(self.kind) or f"{self.kind}({', '.join(inside)})"


@dataclass(frozen=True)
class Array:
    """An argument or result: its element type, and its sizes, which are expressions if symbolic."""

    shape: tuple[str, ...]
    element: str
    memory: int = 0

    def __str__(self) -> str:
        return f"{self.element}[{','.join(self.shape)}]"

    @property
    def type(self) -> t.Type:
        """The type of the module's argument or result."""
        element, more = _STAND_INS.get(self.element, (self.element, ()))
        shape = tuple(int(size) if size.isdecimal() else None for size in self.shape)
        return t.TensorType((*shape, *more), t.ELEMENT_TYPES[element])


@dataclass(frozen=True)
class ExportedSharding:
    """A sharding by names of mesh axes; `text` is its printed form."""

    text: str


@dataclass
class Exported:
    """The contents of a file of `jax.export`. `vjp` is the exported gradient, if there is one."""

    function_name: str
    in_tree: Tree
    out_tree: Tree
    in_avals: tuple[Array | None, ...]
    out_avals: tuple[Array | None, ...]
    devices: int
    platforms: tuple[str, ...]
    effects: tuple[str, ...]
    disabled_checks: tuple[str, ...]
    calling_convention: int
    kept: tuple[int, ...]
    bytecode: Buffer = field(repr=False)
    in_shardings: tuple[ExportedSharding | None, ...] = ()
    out_shardings: tuple[ExportedSharding | None, ...] = ()
    vjp: Exported | None = None
    file: str = "<bytes>"

    @property
    def argument_names(self) -> list[str]:
        """The path of each argument in `(args, kwargs)`: `args[0]['w']`, `k`."""
        children = self.in_tree.children
        if self.in_tree.kind == "tuple" and len(children) == 2 and children[1].kind == "dict":
            named = zip(children[1].names, children[1].children, strict=True)
            return [
                *children[0].leaves("args"),
                *(path for name, child in named for path in child.leaves(name[2:-2])),
            ]
        return list(self.in_tree.leaves("args"))

    @property
    def result_names(self) -> list[str]:
        """The path of each result."""
        return list(self.out_tree.leaves("result"))

    def gradient(self, order: int) -> Exported:
        """Return the exported gradient of that order, 0 being the function; raises UsageError if there is none."""
        export = self
        for _ in range(order):
            if export.vjp is None:
                raise UsageError(f"{self.file} holds no gradient of order {order}: exported.serialize(vjp_order=...)")
            export = export.vjp
        return export

    def module(self) -> Module:
        """Return the module as it was exported."""
        return read_bytecode(self.bytecode, self.file)


def looks_exported(head: Buffer) -> bool:
    """Return whether a file that starts with `head` may be one of `jax.export`: a root table with valid offsets."""
    try:
        root = int.from_bytes(head[:4], "little")
        back = int.from_bytes(head[root : root + 4], "little", signed=True)
        vtable = root - back
        size = int.from_bytes(head[vtable : vtable + 2], "little")
    except (OverflowError, IndexError):
        return False
    inside = 4 <= root <= len(head) - 4 and 0 <= vtable <= len(head) - 4
    return inside and 32 <= size <= 256 and size % 2 == 0 and bytes(head[:2]) != b"PK"


def read_exported(data: Buffer, file: str = "<bytes>") -> Exported:
    """Return the contents of the file; raises ParseError, with a position, if it is not one of `jax.export`."""
    return _exported(FlatTable.root(data, file), file)


#: The slots of the schema's table Exported.
(
    _VERSION, _FUNCTION_NAME, _IN_TREE, _IN_AVALS, _OUT_TREE, _OUT_AVALS, _DEVICES_SHORT, _IN_SHARDINGS, _OUT_SHARDINGS,
    _PLATFORMS, _ORDERED_EFFECTS, _UNORDERED_EFFECTS, _DISABLED_CHECKS, _MODULE, _CALLING_CONVENTION, _KEPT,
    _GLOBAL_CONSTANTS, _VJP, _DEVICES, _UNIQUE_AVALS, _UNIQUE_MESHES, _UNIQUE_SHARDINGS, _IN_AVAL_NUMBERS,
    _OUT_AVAL_NUMBERS, _IN_SHARDING_NUMBERS, _OUT_SHARDING_NUMBERS,
) = range(26)  # fmt: skip


def _exported(table: FlatTable, file: str) -> Exported:
    code = table.bytes(_MODULE)
    in_tree, out_tree = table.table(_IN_TREE), table.table(_OUT_TREE)
    if code is None or in_tree is None or out_tree is None:
        table.fail("a file of jax.export must have a module and the trees of arguments and results")
    unique = [_array(entry) for entry in table.tables(_UNIQUE_AVALS)]
    meshes = [_mesh(entry) for entry in table.tables(_UNIQUE_MESHES)]
    shardings = [_named_sharding(entry, meshes) for entry in table.tables(_UNIQUE_SHARDINGS)]
    vjp = table.table(_VJP)
    effects = [entry.text(0) or "" for slot in (_ORDERED_EFFECTS, _UNORDERED_EFFECTS) for entry in table.tables(slot)]
    return Exported(
        function_name=table.text(_FUNCTION_NAME) or "",
        in_tree=_tree(in_tree),
        out_tree=_tree(out_tree),
        in_avals=_arrays(table, _IN_AVAL_NUMBERS, _IN_AVALS, unique),
        out_avals=_arrays(table, _OUT_AVAL_NUMBERS, _OUT_AVALS, unique),
        devices=table.number(_DEVICES, "I") or table.number(_DEVICES_SHORT, "h"),
        platforms=table.texts(_PLATFORMS),
        effects=tuple(effects),
        disabled_checks=tuple(map(_check, table.tables(_DISABLED_CHECKS))),
        calling_convention=table.number(_CALLING_CONVENTION, "H"),
        kept=table.numbers(_KEPT, "H"),
        bytecode=code,
        in_shardings=_shardings(table, _IN_SHARDING_NUMBERS, _IN_SHARDINGS, shardings, meshes),
        out_shardings=_shardings(table, _OUT_SHARDING_NUMBERS, _OUT_SHARDINGS, shardings, meshes),
        vjp=None if vjp is None else _exported(vjp, file),
        file=file,
    )


def _tree(table: FlatTable) -> Tree:
    kind = table.number(0, "b")
    children = tuple(map(_tree, table.tables(1)))
    names = tuple(f"[{index}]" for index in range(len(children)))
    if kind == _DICT:
        keys = table.texts(2)
        if len(keys) != len(children):
            table.fail(f"a dictionary of {len(children)} entries has {len(keys)} keys")
        return Tree("dict", children, tuple(f"[{key!r}]" for key in keys))
    if kind == _CUSTOM:
        return Tree(table.text(3) or "custom", children, names)
    if kind not in _KINDS:
        table.fail(f"unknown kind {kind} of a tree")
    if kind in (_LEAF, _NONE) and children:
        table.fail("a leaf must have no children")
    return Tree(_KINDS[kind], children, names)


_KINDS = {_LEAF: "leaf", _NONE: "none", _TUPLE: "tuple", _LIST: "list"}


def _array(table: FlatTable) -> Array | None:
    """Return an argument or result; None for a token."""
    if table.number(0, "b") != 0:
        return None
    code = table.number(2, "b")
    if not 0 <= code < len(_DTYPES):
        table.fail(f"unknown dtype {code}")
    return Array(table.texts(1), _DTYPES[code], table.number(3, "b"))


def _arrays(table: FlatTable, numbered: int, spelled: int, unique: list[Array | None]) -> tuple[Array | None, ...]:
    numbers = table.numbers(numbered, "I")
    if not numbers:
        return tuple(map(_array, table.tables(spelled)))
    if max(numbers) >= len(unique):
        table.fail(f"array {max(numbers)} of {len(unique)}")
    return tuple(unique[number] for number in numbers)


def _mesh(table: FlatTable) -> str:
    axes = zip(table.texts(1), table.numbers(0, "I"), strict=False)
    return ", ".join(f"{name}={size}" for name, size in axes)


def _named_sharding(table: FlatTable, meshes: list[str]) -> ExportedSharding:
    mesh, spec = table.table(0), table.table(1)
    number = table.number(3, "I")
    if mesh is None and number >= len(meshes):
        table.fail(f"mesh {number} of {len(meshes)}")
    over = meshes[number] if mesh is None else _mesh(mesh)
    parts = [] if spec is None else ["+".join(part.texts(0)) or "-" for part in spec.tables(0)]
    memory = table.text(2)
    return ExportedSharding(f"[{', '.join(parts)}] over ({over})" + (f" in {memory}" if memory else ""))


def _shardings(
    table: FlatTable, numbered: int, spelled: int, unique: list[ExportedSharding], meshes: list[str]
) -> tuple[ExportedSharding | None, ...]:
    numbers = table.numbers(numbered, "I")
    if numbers:
        if max(numbers) > len(unique):
            table.fail(f"sharding {max(numbers)} of {len(unique)}")
        return tuple(unique[number - 1] if number else None for number in numbers)
    shardings: list[ExportedSharding | None] = []
    for entry in table.tables(spelled):
        named = entry.table(2)
        kind = entry.number(0, "b")
        shardings.append(
            _named_sharding(named, meshes) if named else ExportedSharding("HLO's own form") if kind == 1 else None
        )
    return tuple(shardings)


def _check(table: FlatTable) -> str:
    kind = table.number(0, "b")
    name = _CHECKS[kind] if 0 <= kind < len(_CHECKS) else f"check {kind}"
    target = table.text(1)
    return f"{name} of {target}" if target else name


# --- calling convention ----------------------------------------------------------------------------------------------


def callable_module(exported: Exported, platform: str = "cpu") -> Module:
    """Return the module with the function's calling convention: `main` takes all its flattened arguments, only these.

    The platform index that a module for several platforms takes first becomes a constant; arguments that the function
    does not use, and the module therefore lacks, are added and ignored.
    Source: JAX's documentation of jax.export, "Module calling convention".
    """
    module = exported.module()
    try:
        main = module.function("main")
    except KeyError:
        raise ParseError("the module has no function @main", ByteLocation(exported.file, 0)) from None
    fault = "it has no body" if main.is_declaration else function_fault(main)
    if fault is not None:
        raise ParseError(f"@main: {fault}", ByteLocation(exported.file, 0))
    _check_trees(exported)
    arguments = list(main.arguments)
    first = 0
    if len(exported.platforms) > 1 and len(arguments) > len(exported.kept):
        _put_platform(main, arguments[0], exported, platform)
        first = 1
    start = len(arguments) - len(exported.kept)
    if start < first or any(index >= len(exported.in_avals) for index in exported.kept):
        raise ParseError(
            f"@main takes {len(arguments)} arguments where {len(exported.kept)} are said to be kept",
            ByteLocation(exported.file, 0),
        )
    kept = dict(zip(exported.kept, arguments[start:], strict=True))
    tokens = arguments[first:start]
    taken = [
        kept.get(index) or unused_argument(t.TOKEN if aval is None else aval.type)
        for index, aval in enumerate(exported.in_avals)
    ]
    set_arguments(main, [*tokens, *taken], [*[None] * len(tokens), *exported.argument_names])
    return module


def _put_platform(main: Function, argument: Value, exported: Exported, platform: str) -> None:
    """Replace the argument that takes the platform index, a scalar, by a constant."""
    type = argument.type
    if type is not _PLATFORM:
        raise ParseError(f"the platform index must be a {_PLATFORM}, got {type}", ByteLocation(exported.file, 0))
    index = exported.platforms.index(platform) if platform in exported.platforms else 0
    put_constants(main, [(argument, np.array(index, np.int32))])


def _check_trees(exported: Exported) -> None:
    """Raise ParseError unless the trees have a leaf for each argument and result."""
    for what, names, avals in (
        ("arguments", exported.argument_names, exported.in_avals),
        ("results", exported.result_names, exported.out_avals),
    ):
        if len(names) != len(avals):
            message = f"the tree of {what} has {len(names)} leaves for {len(avals)} {what}"
            raise ParseError(message, ByteLocation(exported.file, 0))
