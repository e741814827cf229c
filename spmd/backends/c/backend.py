"""The back end that writes C, and runs it by the system's compiler."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np

from spmd.backends.c.source import ALONE, RegionSource
from spmd.backends.c_header import parameters
from spmd.backends.native import CompiledRegion, LoadedRegion, MakeCallback, ObjectFile, Source, SourceBackend
from spmd.backends.refusals import check_types, refuse
from spmd.compiler.schedule.fusion import VIEWS, fuse
from spmd.compiler.schedule.schedule import NativeRegion, plan_region
from spmd.compiler.schedule.target import LibraryPlan
from spmd.errors import CompileError
from spmd.ir import Block, Op, Value
from spmd.support.arrays import Array, DType, Results
from spmd.support.compiled_cache import user_cache
from spmd.support.processor import Processor

#: A language without vendors' extensions, in which products and sums are not contracted.
_FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC")
_GENERIC = Processor("generic", "", "C99")


@dataclass(frozen=True)
class CTarget:
    """C of one thread: loop nests and what is seen in another shape."""

    threads: int = 1
    processor: Processor = _GENERIC

    def supports(self, op: Op) -> bool:
        return op.name in VIEWS

    def plan(self, op: Op, image_bytes: int | None) -> LibraryPlan:
        refuse(op, ALONE)

    def product(self, op: Op) -> None:
        return None


@dataclass(frozen=True, slots=True)
class CCode:
    """The source of the function `region`, with shapes and dtypes of its arrays; `over`: inputs that results take."""

    source: str
    inputs: tuple[tuple[tuple[int, ...], DType], ...]
    results: tuple[tuple[tuple[int, ...], DType], ...]
    over: tuple[tuple[int, int], ...]
    arena: int


class CBackend:
    """Regions as C."""

    name = "c"

    def processor(self, name: str | None = None) -> Processor:
        return _GENERIC

    def target(self, threads: int, processor: Processor) -> CTarget:
        return CTarget()

    def compile(self, region: NativeRegion, make_callback: MakeCallback, *, clocked: bool) -> CompiledRegion:
        source = RegionSource(region, "region")
        inputs, results = map(_array_types, (region.inputs, region.outputs))
        over = [
            (place, list(region.inputs).index(region.overwrites[value]))
            for place, value in enumerate(region.outputs)
            if value in region.overwrites
        ]
        return CompiledRegion(CCode(_text(source), inputs, results, tuple(over), source.scratch))

    def load(self, compiled: CompiledRegion) -> LoadedRegion:
        code = cast(CCode, compiled.code)
        return LoadedRegion(_call(code, _library(code.source)), False, (), True)

    def source(self, block: Block, name: str) -> Source:
        source = RegionSource(_whole(block), name)
        return Source(source.text, source.scratch)

    def object_file(self, block: Block, name: str, processor: str | None) -> ObjectFile:
        source = RegionSource(_whole(block), name)
        return ObjectFile(_compiled(_text(source), "-c"), source.scratch, (), _version())

    def made_by(self, processor: Processor) -> str:
        return f"{_version()} {' '.join(_FLAGS)}"


def _array_types(values: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
    return tuple((value.tensor.static_shape, value.tensor.dtype) for value in values)


def _text(source: RegionSource) -> str:
    region = source.region
    arguments = [(value.tensor, None) for value in region.inputs]
    return source.text(parameters(arguments, [value.tensor for value in region.outputs]))


def _whole(block: Block) -> NativeRegion:
    """`block` as one region; CompileError for what is no loop nest."""
    inputs, outputs = list(block.arguments), list(block.terminator.operands)
    check_types(inputs, outputs, block)
    target, units = CTarget(), fuse(block, outputs)
    for unit in units:
        if not unit.fused and not target.supports(unit.outputs[0]):
            refuse(unit.outputs[0], ALONE)
    return plan_region(units, inputs, outputs, target)


# --- the system's compiler -------------------------------------------------------------------------------------------


@cache
def _compiler() -> str:
    """The compiler that $CC names, or the system's. CompileError where there is none."""
    name = os.environ.get("CC") or "cc"
    found = shutil.which(name)
    if found is None:
        raise CompileError(f"the back end c needs a compiler of C: there is no {name!r}; $CC names another")
    return found


@cache
def _version() -> str:
    told = subprocess.run([_compiler(), "--version"], capture_output=True, text=True, check=False)
    return told.stdout.partition("\n")[0]


def _compiled(source: str, *how: str) -> bytes:
    """What the compiler makes of `source`, kept between runs."""
    flags = (*_FLAGS, *how)
    key = "c-" + hashlib.sha256("\n".join([_version(), *flags, source]).encode()).hexdigest()
    kept = user_cache()
    image = kept.get(key) if kept is not None else None
    if image is not None:
        return image
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder, "region.c"), Path(folder, "region.o")
        file.write_text(source)
        command = [_compiler(), *flags, str(file), "-o", str(output), "-lm"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise CompileError(f"the compiler of C failed: {ran.stderr.strip()[-500:]}")
        image = output.read_bytes()
    if kept is not None:
        kept.put(key, image)
    return image


@cache
def _library(source: str) -> Callable[..., None]:
    """The function of `source`, loaded."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(_compiled(source, "-shared"))
        file.flush()
        return cast(Callable[..., None], ctypes.CDLL(file.name).region)


def _call(code: CCode, function: Callable[..., None]) -> Callable[..., Results]:
    """`function` on arrays. An array that a result takes over is copied: nobody else's memory is written to."""
    over = dict(code.over)

    def call(*arrays: Array) -> Results:
        inputs = [_dense(array, *type) for array, type in zip(arrays, code.inputs, strict=True)]
        for place in over.values():
            inputs[place] = inputs[place].copy()
        results = [
            inputs[over[place]].view(dtype).reshape(shape) if place in over else np.empty(shape, dtype)
            for place, (shape, dtype) in enumerate(code.results)
        ]
        scratch = np.empty(code.arena, np.uint8)
        function(*(ctypes.c_void_p(array.ctypes.data) for array in (*inputs, *results, scratch)))
        return results[0] if len(results) == 1 else tuple(results)

    return call


def _dense(array: Array, shape: Sequence[int], dtype: DType) -> Array:
    return np.require(np.asarray(array), dtype, ("C", "A")).reshape(shape)


BACKEND: SourceBackend = CBackend()
