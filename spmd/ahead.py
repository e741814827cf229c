"""Module -> object file, or source of C: what runs where there is no interpreter.

Source: XLA framework, "Much improved mobile footprint": a program becomes an object file and a header.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from collectives.grid import ProcessGrid
from spmd.backends.c_header import header, parameters
from spmd.backends.native import NUMPY, native_backend, source_backend
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import CompileOptions
from spmd.compiler.pipeline.prepare import prepare
from spmd.errors import CompileError, UsageError
from spmd.ir import Block, Function, Module
from spmd.runtime.arguments import argument_names
from spmd.support.c_names import why_taken
from spmd.support.recursion_guard import within_stack
from spmd.types import TensorType


@dataclass(frozen=True)
class AheadOfTime:
    """An object file's bytes, and the text of the header of C that declares its function."""

    object: bytes
    header: str


def compile_ahead(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    name: str,
    **options: Unpack[CompileOptions],
) -> AheadOfTime:
    """`function` of `module` as the function `name` of C, for the processor at hand, or the one that the option
    `processor` names.
    Its parameters are the arguments, the results, and memory to work in, whose size the header tells. It computes what
    `compile`'s Executable does, to the bit where it calls no BLAS. Raises CompileError, which names the op and its
    place, for one that has no native form (a collective, a callback), or whose types do not lie in memory as
    C's do; UsageError where no function of C can have that `name`, or `backends` begins with NumPy's.
    """
    _check_name(name)
    prepared = prepare(module, grid, function, **options)
    backend = native_backend(prepared.options.backends)
    if backend is None:
        raise UsageError("an object file is native code: `backends` begins with a back end that compiles, as llvm does")
    entry = prepared.function
    with within_stack(CompileError, entry.location, f"@{entry.symbol}"):
        body = ModuleLowering(prepared.module, prepared.options).flatten(entry).body
        code = backend.object_file(body, name, prepared.options.processor)
    return AheadOfTime(code.image, header(name, code, *_signature(entry, body), _origin(module, entry)))


def compile_source(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    name: str,
    language: str = "c",
    **options: Unpack[CompileOptions],
) -> str:
    """`function` of `module` as the text of the function `name` in C99, which any compiler of it takes.

    Its parameters are those of `compile_ahead`. Raises CompileError, which names the op and its place, for what is no
    loop nest: elementwise ops, reductions, windows, gathers, scatters, and what moves elements, are. UsageError as
    `compile_ahead`.
    """
    _check_name(name)
    options["backends"] = (language, NUMPY)
    prepared = prepare(module, grid, function, **options)
    entry = prepared.function
    with within_stack(CompileError, entry.location, f"@{entry.symbol}"):
        body = ModuleLowering(prepared.module, prepared.options).flatten(entry).body
        source = source_backend(language).source(body, name)
        text = source.text(parameters(*_signature(entry, body)))
    size = f"{name.upper()}_SCRATCH_BYTES"
    return f"""/* {_origin(module, entry)}, in C99. Link with the mathematical library (-lm).
   Products and sums must not be contracted (-ffp-contract=off). Arrays are dense, the last dimension contiguous; no
   result overlaps another array. `scratch` has {size} bytes, aligned to 64; calls at one time need one each. */
#define {size} {source.scratch}

{text}"""


def _check_name(name: str) -> None:
    if (reason := why_taken(name)) is not None:
        raise UsageError(f"name is what a function of C can be called, and {name!r} {reason}")


def _signature(entry: Function, body: Block) -> tuple[list[tuple[TensorType, str | None]], list[TensorType]]:
    """The types of arguments, with their names, and of results."""
    arguments = [value.tensor for value in body.arguments]
    return list(zip(arguments, argument_names(entry), strict=True)), [v.tensor for v in body.terminator.operands]


def _origin(module: Module, entry: Function) -> str:
    return f"@{entry.symbol} of {module.location.file}" if module.location.file else f"@{entry.symbol}"
