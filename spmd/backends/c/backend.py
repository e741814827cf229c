"""The back end that emits C, and compiles it with the system's compiler."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np

from spmd.backends.c.source import ALONE, RegionSource
from spmd.backends.c_header import parameters
from spmd.backends.c_targets import can_be_linked
from spmd.backends.native import CompiledRegion, FunctionSource, LoadedRegion, MakeCallback, ObjectFile, SourceBackend
from spmd.backends.refusals import whole_region
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.compiler.schedule.target import LibraryPlan
from spmd.dialects.core import Trait, has_trait
from spmd.errors import UsageError
from spmd.ir import Block, Op, Value
from spmd.support.arrays import Array, DType, Results
from spmd.support.c_compiler import FLAGS, compiled, version
from spmd.support.processor import HOST, Processor

_GENERIC = Processor("generic", "", "C99")


@dataclass(frozen=True)
class CTarget:
    """Single-threaded C: loop nests and views.

    `is_linked`: it is a file's, in which C custom-call targets are called by name.
    """

    threads: int = 1
    processor: Processor = _GENERIC
    in_fixed_order: bool = True
    is_linked: bool = False

    def supports(self, op: Op) -> bool:
        return has_trait(op, Trait.VIEW) or (self.is_linked and can_be_linked(op))

    def plan(self, op: Op, image_bytes: int | None) -> LibraryPlan:
        return LibraryPlan()

    def product(self, op: Op) -> None:
        return None


@dataclass(frozen=True, slots=True)
class CCode:
    """The source of the function `region`, its array types, and by result the input that it overwrites."""

    source: str
    inputs: Sequence[tuple[tuple[int, ...], DType]]
    results: Sequence[tuple[tuple[int, ...], DType]]
    over: Mapping[int, int]
    arena: int


class CBackend:
    """Native regions as C."""

    name = "c"

    def processor(self, name: str | None = None) -> Processor:
        return _GENERIC

    def agree_on(self, processor: Processor) -> None:
        """Do nothing: the code is generic."""

    def target(self, threads: int, processor: Processor, *, in_fixed_order: bool = False) -> CTarget:
        return CTarget()

    def compile(self, region: NativeRegion, make_callback: MakeCallback, *, clocked: bool) -> CompiledRegion:
        source = RegionSource(region, "region")
        inputs, outputs, over = list(region.inputs), region.outputs, region.overwrites
        taken = {place: inputs.index(over[value]) for place, value in enumerate(outputs) if value in over}
        return CompiledRegion(CCode(_text(source), _types(inputs), _types(outputs), taken, source.scratch))

    def load(self, compiled: CompiledRegion) -> LoadedRegion:
        code = cast(CCode, compiled.code)
        return LoadedRegion(_call(code, _library(code.source)), False, (), True)

    def source(self, block: Block, name: str) -> FunctionSource:
        source = RegionSource(whole_region(block, CTarget(is_linked=True), ALONE), name)
        return FunctionSource(source.text, source.scratch)

    def object_file(self, block: Block, name: str, processor: str | None) -> ObjectFile:
        if processor not in (None, HOST):
            raise UsageError(f"cannot compile C for {processor} here: emit C and compile it there")
        source = RegionSource(whole_region(block, CTarget(is_linked=True), ALONE), name)
        return ObjectFile(compiled(_text(source), "-c"), source.scratch, (), version(), tuple(source.c_targets))

    def made_by(self, processor: Processor) -> str:
        return f"{version()} {' '.join(FLAGS)}"


def _types(values: Sequence[Value]) -> list[tuple[tuple[int, ...], DType]]:
    return [(value.tensor.static_shape, value.tensor.dtype) for value in values]


def _text(source: RegionSource) -> str:
    region = source.region
    arguments = [(value.tensor, None) for value in region.inputs]
    return source.text(parameters(arguments, [value.tensor for value in region.outputs]))


@cache
def _library(source: str) -> Callable[..., None]:
    """Return the compiled and loaded function of `source`."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(compiled(source, "-shared"))
        file.flush()
        return cast(Callable[..., None], ctypes.CDLL(file.name).region)


def _call(code: CCode, function: Callable[..., None]) -> Callable[..., Results]:
    """Return `function` as a function on arrays. Overwritten inputs are copied, so that the caller's memory is not
    modified.
    """

    def call(*arrays: Array) -> Results:
        inputs = [
            np.require(array, None, ("C", "A")).reshape(shape)
            for array, (shape, _) in zip(arrays, code.inputs, strict=True)
        ]
        results = [np.empty(shape, dtype) for shape, dtype in code.results]
        for place, number in code.over.items():
            results[place][...] = inputs[number].view(results[place].dtype).reshape(results[place].shape)
            inputs[number] = results[place]
        scratch = np.empty(code.arena, np.uint8)
        function(*(ctypes.c_void_p(array.ctypes.data) for array in (*inputs, *results, scratch)))
        return results[0] if len(results) == 1 else tuple(results)

    return call


BACKEND: SourceBackend = CBackend()
