"""Programs: compiled, run, and what a frontend asks about them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from collectives.grid import ProcessGrid
from collectives.threads import single_process
from spmd.compiler.plan.donation import donated_arguments
from spmd.io.reading import parse
from spmd.ir import Module
from spmd.ir.attributes import Attribute, StringAttr
from spmd.pjrt import callbacks
from spmd.pjrt.buffers import Buffer, dense
from spmd.pjrt.devices import MEMORY_KINDS, Client, Device, Memory
from spmd.pjrt.element_types import TOKEN, described
from spmd.pjrt.entries import entry
from spmd.pjrt.errors import Code, PjrtError, unimplemented
from spmd.pjrt.events import READY
from spmd.pjrt.handles import Handle, find, find_or_none
from spmd.pjrt.layouts import layout_of
from spmd.pjrt.protobuf import BuildOptions, build_options, device_assignment
from spmd.pjrt.structs import struct
from spmd.runtime.compile import compile
from spmd.runtime.process import Process
from spmd.support.arrays import Array
from spmd.types import TensorType, Type

_FORMAT = b"mlir"
#: What a serialized executable begins with; the program and its options follow, to be compiled where it is read.
_MAGIC = b"spmd program 1\n"
_MEMORY_KIND, _LAYOUT_MODE = "mhlo.memory_kind", "mhlo.layout_mode"


class Program:
    """A compiled program, and the facts that handles of it give."""

    def __init__(self, client: Client, code: bytes, options: bytes) -> None:
        self.client = client
        self.code = code
        self.options = options
        self.build = build_options(options)
        self.device = _device(client, self.build)
        module = parse(code, "<jax>", verify=False)
        self.calls_back = callbacks.connect(module)
        function = module.function("main")
        self.executable = compile(module, ProcessGrid(1, 1), donate="attributes")
        self.donated = donated_arguments(function, "attributes")
        self.inputs = [described(type) for type in self.executable.in_types]
        self.outputs = [described(type) for type in self.executable.out_types]
        self.input_kinds = [_memory_kind(entries) for entries in function.argument_attributes]
        self.output_kinds = [_memory_kind(entries) for entries in function.result_attributes]
        self.name = module.symbol or "main"
        self.process = Process(ProcessGrid(1, 1), single_process())

    @property
    def module(self) -> Module:
        """The program as it is run by one process."""
        return self.executable.module

    def run(self, arrays: Sequence[Array | None], context: int) -> Sequence[Any]:
        """Return the results on the program's device; functions of `context` are what it may call back."""
        with callbacks.available(context) if self.calls_back else nullcontext():
            return self.executable.run(self.process, arrays)

    def serialized(self) -> bytes:
        """Return what `deserialized` compiles again."""
        return _MAGIC + len(self.options).to_bytes(8, "little") + self.options + self.code


def deserialized(client: Client, data: bytes, options: bytes | None) -> Program:
    """Return the program of `serialized`; `options` take the place of its own."""
    if not data.startswith(_MAGIC):
        raise PjrtError(Code.INVALID_ARGUMENT, "this is no program that this version of spmd serialized")
    start = len(_MAGIC) + 8
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    return Program(client, data[end:], data[start:end] if options is None else options)


def _device(client: Client, build: BuildOptions) -> Device:
    """The device of a program for one; PjrtError for other programs."""
    if build.replicas * build.partitions > 1:
        raise unimplemented(f"programs for {build.replicas * build.partitions} devices are not supported yet")
    if not build.assignment:
        return client.local[0]
    device = client.by_id.get(build.assignment[0][0])
    if device is None or not device.is_addressable:
        raise PjrtError(Code.INVALID_ARGUMENT, f"this process has no device {build.assignment[0][0]}")
    return device


def _memory_kind(attributes: Any) -> str:
    layout: Attribute | None = attributes.get(_LAYOUT_MODE)
    if isinstance(layout, StringAttr) and layout.value not in ("default", "auto"):
        order = layout.value.strip("{}").split(":")[0]
        if order and order != ",".join(map(str, reversed(range(order.count(",") + 1)))):
            raise unimplemented(f"an argument or a result lies as {layout.value}: arrays lie in C order here")
    kind = attributes.get(_MEMORY_KIND)
    return kind.value if isinstance(kind, StringAttr) and kind.value in MEMORY_KINDS else MEMORY_KINDS[0]


class Executable(Handle):
    """A program as it is asked about."""

    KIND = "Executable"

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        record, outputs = self.record, program.outputs
        self.put_text("executable_name", program.name)
        self.put_text("executable_fingerprint", b"")
        record.num_replicas, record.num_partitions = program.build.replicas, program.build.partitions
        record.num_outputs, record.num_parameters = len(outputs), len(program.inputs)
        self.put_words("output_types", [number for number, _ in outputs], ctypes.c_int32)
        self.put_words("dims", [size for _, shape in outputs for size in shape], ctypes.c_int64)
        self.put_words("dim_sizes", [len(shape) for _, shape in outputs])
        self.put_words("output_layouts", [layout_of(len(shape)).address for _, shape in outputs])
        self.put_words("parameter_layouts", [layout_of(len(shape)).address for _, shape in program.inputs])
        self.put_texts("output_kinds", "output_kind_sizes", program.output_kinds)
        self.put_texts("parameter_kinds", "parameter_kind_sizes", program.input_kinds)


class Loaded(Handle):
    """A program as it is run."""

    KIND = "Loaded"

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.put_words("addressable_devices", [program.device.address])
        self.put_words("logical_ids", [0, 0], ctypes.c_int32)
        self.put_text("executable_fingerprint", b"")
        self.record.num_addressable_devices = 1
        self.memories: list[Memory] = [program.device.memory(kind) for kind in program.output_kinds]

    def run(self, buffers: Sequence[Buffer], kept: frozenset[int], context: int) -> list[Buffer]:
        """Run the program; buffers that it may write over are gone then, but for those at the places `kept`."""
        if self.record.is_deleted:
            raise PjrtError(Code.FAILED_PRECONDITION, f"the executable {self.program.name} has been deleted")
        arrays = self._arrays(buffers, kept)
        results = self.program.run(arrays, context)
        del arrays
        return [self._buffer(result, index) for index, result in enumerate(results)]

    def _arrays(self, buffers: Sequence[Buffer], kept: frozenset[int]) -> list[Array | None]:
        program = self.program
        if len(buffers) != len(program.inputs):
            raise PjrtError(
                Code.INVALID_ARGUMENT, f"{program.name} takes {len(program.inputs)} arguments, got {len(buffers)}"
            )
        values = [buffer.value() for buffer in buffers]
        for index, (value, (number, shape)) in enumerate(zip(values, program.inputs, strict=True)):
            if number == TOKEN:  # frontends give any array at all for one
                values[index] = None
            elif buffers[index].record.type != number or (value is not None and value.shape != shape):
                raise PjrtError(
                    Code.INVALID_ARGUMENT,
                    f"argument {index} of {program.name} is an array of shape {shape}, got "
                    f"{'a token' if value is None else f'{value.dtype} of shape {value.shape}'}",
                )
        for index in program.donated:
            if index in kept:
                value = values[index]
                values[index] = None if value is None else value.copy()
                continue
            if buffers.count(buffers[index]) > 1:
                raise PjrtError(
                    Code.INVALID_ARGUMENT, f"argument {index} of {program.name} is donated, and is given twice"
                )
        for index in program.donated - kept:
            values[index] = None
            values[index] = buffers[index].donate()
        return values

    def _buffer(self, result: Any, index: int) -> Buffer:
        return Buffer(None if result is None else dense(np.asarray(result)), self.memories[index])


def _bytes_at(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size) if address and size else b""


@entry("Client_Compile")
def _(args: Any) -> None:
    client = find(Client, args.client)
    if not args.program:
        raise PjrtError(Code.INVALID_ARGUMENT, "there is no program to compile")
    given = struct("Program").from_address(args.program)
    format = _bytes_at(given.format, given.format_size)
    if format != _FORMAT:
        raise unimplemented(f"programs in the format {format.decode(errors='replace')!r} are not supported")
    options = _bytes_at(args.compile_options, args.compile_options_size)
    args.executable = Loaded(Program(client, _bytes_at(given.code, given.code_size), options)).address


@entry("Executable_DeserializeAndLoad")
def _(args: Any) -> None:
    options: bytes | None = None
    if args.overridden_serialized_compile_options:
        options = _bytes_at(args.overridden_serialized_compile_options, args.overridden_serialized_compile_options_size)
    data = _bytes_at(args.serialized_executable, args.serialized_executable_size)
    args.loaded_executable = Loaded(deserialized(find(Client, args.client), data, options)).address


@entry("LoadedExecutable_GetExecutable", fails=False)
def _(args: Any) -> None:
    args.executable = Executable(find(Loaded, args.loaded_executable).program).address


@entry("LoadedExecutable_GetDeviceAssignment", fails=False)
def _(args: Any) -> None:
    args.serialized_bytes, args.serialized_bytes_size = 0, 0
    args.serialized_device_assignment, args.serialized_device_assignment_deleter = 0, layout_of(0).deleter
    loaded = find(Loaded, args.executable)
    rows = loaded.program.build.assignment
    if rows:
        data = device_assignment(rows)
        args.serialized_bytes = loaded.keep(ctypes.create_string_buffer(data))
        args.serialized_bytes_size = len(data)


@entry("LoadedExecutable_Execute")
def _(args: Any) -> None:
    loaded = find(Loaded, args.executable)
    if args.num_devices != 1:
        raise PjrtError(Code.INVALID_ARGUMENT, f"{loaded.program.name} runs on one device, got {args.num_devices}")
    if args.execute_device and find(Device, args.execute_device) is not loaded.program.device:
        raise PjrtError(Code.INVALID_ARGUMENT, f"{loaded.program.name} was compiled for another device")
    kept, context = _options(args.options)
    addresses = _words(_words(args.argument_lists, 1)[0], args.num_args) if args.num_args else []
    results = loaded.run([find(Buffer, address) for address in addresses], kept, context)
    place = _words(args.output_lists, 1)[0] if results else 0
    if results:
        (ctypes.c_size_t * len(results)).from_address(place)[:] = [buffer.address for buffer in results]
    if args.device_complete_events:
        ctypes.c_size_t.from_address(args.device_complete_events).value = READY.address


def _options(address: int) -> tuple[frozenset[int], int]:
    """Which arguments are not to be written over, and the context of a run."""
    if not address:
        return frozenset(), 0
    options = struct("ExecuteOptions").from_address(address)
    if options.num_send_ops or options.num_recv_ops:
        raise unimplemented("programs that send to their host and receive from it are not supported")
    count = options.num_non_donatable_input_indices
    kept = (ctypes.c_int64 * count).from_address(options.non_donatable_input_indices) if count else ()
    return frozenset(kept), options.context


def _words(address: int, count: int) -> list[int]:
    if not address:
        raise PjrtError(Code.INVALID_ARGUMENT, f"{count} handles lie nowhere")
    return list((ctypes.c_size_t * count).from_address(address))


@entry("LoadedExecutable_Delete", fails=False)
def _(args: Any) -> None:
    find(Loaded, args.executable).record.is_deleted = True


@entry("LoadedExecutable_Destroy", fails=False)
def _(args: Any) -> None:
    loaded = find_or_none(Loaded, args.executable)
    if loaded is not None:
        loaded.release()


@entry("Executable_Destroy", fails=False)
def _(args: Any) -> None:
    executable = find_or_none(Executable, args.executable)
    if executable is not None:
        executable.release()


@entry("Executable_OptimizedProgram")
def _(args: Any) -> None:
    executable = find(Executable, args.executable)
    if not args.program:
        raise PjrtError(Code.INVALID_ARGUMENT, "there is no place for the program")
    text = executable.program.module.to_string(generic=True).encode()
    given = struct("Program").from_address(args.program)
    if given.code:
        if given.code_size < len(text):
            raise PjrtError(Code.INVALID_ARGUMENT, f"{len(text)} bytes do not fit into {given.code_size}")
        ctypes.memmove(given.code, text, len(text))
    given.code_size = len(text)
    given.format = executable.keep(ctypes.create_string_buffer(_FORMAT))
    given.format_size = len(_FORMAT)


@entry("Executable_Serialize")
def _(args: Any) -> None:
    executable = find(Executable, args.executable)
    if executable.program.calls_back:
        raise unimplemented("a program that calls functions of Python cannot be serialized")
    _give(args, "serialized_executable", executable, executable.program.serialized())


@entry("Executable_GetCompileOptions")
def _(args: Any) -> None:
    executable = find(Executable, args.executable)
    _give(args, "serialized_compile_options", executable, executable.program.options)


def _give(args: Any, field: str, executable: Executable, data: bytes) -> None:
    args.serialized_bytes = executable.keep(ctypes.create_string_buffer(data))
    args.serialized_bytes_size = len(data)
    setattr(args, field, 0)
    setattr(args, f"{field}_deleter", layout_of(0).deleter)


@entry("Executable_GetCompiledMemoryStats")
def _(args: Any) -> None:
    program = find(Executable, args.executable).program
    inputs, outputs = program.executable.in_types, program.executable.out_types
    args.argument_size_in_bytes, args.output_size_in_bytes = _size(inputs), _size(outputs)
    args.alias_size_in_bytes = _size([inputs[index] for index in program.donated])


def _size(types: Sequence[Type]) -> int:
    return sum(type.nbytes for type in types if isinstance(type, TensorType))
