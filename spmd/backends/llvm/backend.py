"""Entry points of the LLVM back end.

The code generator is imported on first use: programs found in the cache are only loaded.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from spmd.backends.llvm.jit.jit import made_by
from spmd.backends.llvm.jit.loading import load_region
from spmd.backends.llvm.jit.processor import agree_on, chosen, host
from spmd.backends.llvm.matmul.blas import library
from spmd.backends.native import CompiledRegion, LoadedRegion, MakeCallback, NativeBackend, ObjectFile
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.ir import Block
from spmd.support.processor import Processor, for_linking

if TYPE_CHECKING:
    from spmd.backends.llvm.target import LlvmTarget


class LlvmBackend:
    """Native regions as LLVM functions, which call BLAS and LAPACK."""

    name = "llvm"

    def processor(self, name: str | None = None) -> Processor:
        return chosen(name)

    def agree_on(self, processor: Processor) -> None:
        agree_on(processor)

    def target(self, threads: int, processor: Processor, *, in_fixed_order: bool = False) -> LlvmTarget:
        from spmd.backends.llvm.target import LlvmTarget  # late: it loads what writes code

        return LlvmTarget(threads, processor, in_fixed_order)

    def compile(self, region: NativeRegion, make_callback: MakeCallback, *, clocked: bool) -> CompiledRegion:
        from spmd.backends.llvm.native_region import compile_region  # late, as above

        return compile_region(region, make_callback, clocked=clocked)

    def load(self, compiled: CompiledRegion) -> LoadedRegion:
        return load_region(compiled)

    def object_file(self, block: Block, name: str, processor: str | None) -> ObjectFile:
        from spmd.backends.llvm.jit.ahead import object_file  # late, as above

        made_for = chosen() if processor is None else for_linking(processor, host())
        return object_file(block, name, made_for)

    def made_by(self, processor: Processor) -> str:
        return f"{made_by(processor)} {blas_file()}"


@cache
def blas_file() -> str:
    """Return the path, size and modification time of the BLAS library, a key of its integer width; "" if there
    is none.
    """
    file = library()
    return "" if file is None else f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}"


BACKEND: NativeBackend = LlvmBackend()
