"""Module -> object file: what runs where there is no interpreter.

Source: XLA framework, "Much improved mobile footprint": a program becomes an object file and a header.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from collectives.grid import ProcessGrid
from spmd.backends.c_header import header
from spmd.backends.native import native_backend
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import CompileOptions
from spmd.compiler.pipeline.prepare import prepare
from spmd.errors import CompileError, UsageError
from spmd.ir import Module
from spmd.runtime.arguments import argument_names
from spmd.support.c_names import why_taken
from spmd.support.recursion_guard import within_stack


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
    if (reason := why_taken(name)) is not None:
        raise UsageError(f"name is what a function of C can be called, and {name!r} {reason}")
    prepared = prepare(module, grid, function, **options)
    backend = native_backend(prepared.options.backends)
    if backend is None:
        raise UsageError("an object file is native code: `backends` begins with a back end that compiles, as llvm does")
    entry = prepared.function
    with within_stack(CompileError, entry.location, f"@{entry.symbol}"):
        body = ModuleLowering(prepared.module, prepared.options).flatten(entry).body
        code = backend.object_file(body, name, prepared.options.processor)
    arguments = [value.tensor for value in body.arguments]
    results = [value.tensor for value in body.terminator.operands]
    named = list(zip(arguments, argument_names(entry), strict=True))
    source = f"@{entry.symbol} of {module.location.file}" if module.location.file else f"@{entry.symbol}"
    return AheadOfTime(code.image, header(name, code, named, results, source))
