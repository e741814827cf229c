"""Summary of a program's file: format, producer, versions, signature, ops by count, constants by size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path

from spmd import types as t
from spmd.artifacts.formats import BYTECODE, EXPORTED, HEAD, format_of, looks_saved
from spmd.artifacts.jax_export import Exported, read_exported
from spmd.artifacts.sections import Container, read_container
from spmd.artifacts.tables import Tables
from spmd.io.reading import load, read_file
from spmd.ir import Function, Module
from spmd.ir.attributes import DenseAttr
from spmd.syntax.attribute_printer import format_attribute

_MOST_OPS, _MOST_CONSTANTS, _MOST_VALUES = 24, 8, 64

Row = tuple[str, str]


def describe(path: str | PathLike[str]) -> list[Row]:
    """Labelled lines about the program in the file at `path`. Raises what `spmd.load` does."""
    if looks_saved(Path(path)):
        rows = [("folder", fspath(path)), ("format", "a model saved by PyTorch/XLA, its weights bound")]
        return rows + list(_module_rows(load(path, verify=False)))
    data = read_file(path)
    format = format_of(data[:HEAD])
    module = load(path, verify=False)
    rows = [("file", f"{fspath(path)}, {len(data):,} bytes")]
    if format == EXPORTED:
        exported = read_exported(data, fspath(path))
        rows += [("format", "file of jax.export"), *_export_rows(exported)]
        rows += _bytecode_rows(read_container(exported.bytecode, fspath(path)))
    elif format == BYTECODE:
        rows += [("format", "MLIR bytecode"), *_bytecode_rows(read_container(data, fspath(path)))]
    else:
        hlo = b"HloModule" in bytes(data[:HEAD])
        rows.append(("format", "XLA's HLO text" if hlo else "StableHLO text"))
    return rows + list(_module_rows(module))


def _bytecode_rows(container: Container) -> list[Row]:
    rows = [("bytecode", f"version {container.version}"), ("producer", container.producer)]
    _, mark, rest = container.producer.partition("StableHLO_v")
    if mark:
        rows.append(("VHLO", f"version {rest.partition('+')[0]}"))
    versions = [
        f"{dialect.name} {'.'.join(map(str, dialect.version))}".strip() for dialect in Tables(container).dialects
    ]
    return [*rows, ("dialects", ", ".join(versions))]


def _export_rows(exported: Exported) -> Iterator[Row]:
    yield "function", exported.function_name
    yield "platforms", ", ".join(exported.platforms)
    yield "devices", str(exported.devices)
    yield "calling convention", f"version {exported.calling_convention}"
    for what, tree, names, avals, shardings in (
        ("arguments", exported.in_tree, exported.argument_names, exported.in_avals, exported.in_shardings),
        ("results", exported.out_tree, exported.result_names, exported.out_avals, exported.out_shardings),
    ):
        yield what, str(tree)
        placed = [*shardings, *[None] * len(avals)]
        for index, (name, aval) in enumerate(zip(names[:_MOST_VALUES], avals, strict=False)):
            unused = "" if what == "results" or index in exported.kept else "  (not used)"
            sharding = placed[index]
            yield "", f"{name}: {aval or 'token'}{f'  sharded {sharding.text}' if sharding else ''}{unused}"
    for label, entries in (("effects", exported.effects), ("disabled checks", exported.disabled_checks)):
        if entries:
            yield label, ", ".join(entries)
    order, gradient = 0, exported.vjp
    while gradient is not None:
        order, gradient = order + 1, gradient.vjp
    if order:
        yield "gradients", f"of order 1 to {order}" if order > 1 else "of order 1"


def _module_rows(module: Module) -> Iterator[Row]:
    yield "module", f"@{module.symbol}" if module.symbol else "without a name"
    for name, value in sorted(module.discardable.items()):
        yield "", f"{name} = {format_attribute(value)[:100]}"
    for function in module.functions:
        yield from _function_rows(function)
    ops = Counter(op.name for op in module.walk() if not isinstance(op, Function | Module))
    yield "ops", f"{sum(ops.values()):,}"
    yield from (("", f"{count:,} {name}") for name, count in ops.most_common(_MOST_OPS))
    if len(ops) > _MOST_OPS:
        yield "", f"and {len(ops) - _MOST_OPS} more kinds"
    constants = [op["value"] for op in module.walk() if op.name == "stablehlo.constant"]
    dense = sorted((value for value in constants if isinstance(value, DenseAttr)), key=_size, reverse=True)
    yield "constants", f"{len(constants):,}, {sum(map(_size, dense)):,} bytes"
    yield from (("", f"{_size(value):,} bytes  {value.type}") for value in dense[:_MOST_CONSTANTS] if _size(value) > 64)


def _size(value: DenseAttr) -> int:
    """Bytes of the elements; a splat counts as one element."""
    array = value.array
    return array.itemsize if array.size and not any(array.strides) else array.nbytes


def _function_rows(function: Function) -> Iterator[Row]:
    results = t.format_results(function.type.results)
    takes = ", ".join(map(str, function.type.inputs[:_MOST_VALUES]))
    yield "function", f"@{function.symbol}({takes}) -> {results}"
    for what, dictionaries in (("argument", function.argument_attributes), ("result", function.result_attributes)):
        for index, entries in enumerate(dictionaries[:_MOST_VALUES]):
            for name in ("sdy.sharding", "mhlo.sharding"):
                if name in entries:
                    yield "", f"{what} {index}: {format_attribute(entries[name])}"
