"""Handles of programs: of one that is compiled, its facts, and of one that is loaded, its runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spmd.pjrt.buffers import Buffer, Facts, Take, when_done
from spmd.pjrt.callbacks import functions_of
from spmd.pjrt.devices import Client, Device
from spmd.pjrt.element_types import TOKEN, dtype_of
from spmd.pjrt.entries import destroys, entry
from spmd.pjrt.errors import Code, PjrtError, unimplemented
from spmd.pjrt.handles import Handle, find
from spmd.pjrt.hot import FOUND_LONG, KNOWN_LONG
from spmd.pjrt.layouts import Order, laid, layout_of
from spmd.pjrt.named_values import named_values
from spmd.pjrt.native_programs import NativeCall
from spmd.pjrt.programs import Program, deserialized
from spmd.pjrt.protobuf import device_assignment
from spmd.pjrt.runs import QUEUE, Run
from spmd.pjrt.structs import struct
from spmd.support.arrays import Array
from spmd.types import TensorType

_FORMAT = b"mlir"
#: How many fields of its struct an entry does not write: the size, the extensions and the handle.
_HEAD = 3
#: What `Loaded.run_if_native` returns, and 0 where nothing was begun.
_DONE, _INTERRUPTED = 1, 2


class Executable(Handle):
    """The facts of a program: its types, layouts, shardings and memory kinds."""

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
        self.put_words("output_layouts", _layouts(outputs, program.output_orders))
        self.put_words("parameter_layouts", _layouts(program.inputs, program.input_orders))
        if len(program.devices) > 1:
            if outputs:  # null says that nothing is known: a list of none is an error of jaxlib
                self.put_texts("output_shardings", "output_sharding_sizes", program.output_shardings)
            self.put_texts("parameter_shardings", "parameter_sharding_sizes", program.input_shardings)
        self.put_texts("output_kinds", "output_kind_sizes", program.output_kinds)
        self.put_texts("parameter_kinds", "parameter_kind_sizes", program.input_kinds)


def _layouts(described: Sequence[tuple[int, tuple[int, ...]]], orders: Sequence[Order]) -> list[int]:
    """The handles of layouts of arguments or results, by their shapes and orders."""
    return [layout_of(len(shape), order).address for (_, shape), order in zip(described, orders, strict=True)]


class Loaded(Handle):
    """A program as it is run."""

    KIND = "Loaded"
    #: Machine code that runs a program, by its handle and the address of the arguments of Execute.
    run_if_native: Callable[[int, int], int]

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        places = [divmod(place, program.grid.num_partitions) for place, _ in program.local]
        self.put_words("addressable_devices", [device.address for _, device in program.local])
        self.put_words("logical_ids", [number for place in places for number in place], ctypes.c_int32)
        self.put_text("executable_fingerprint", b"")
        self.record.num_addressable_devices = len(program.local)
        self._native: NativeCall | None = None

    def run_by_machine_code(self, args: Any) -> bool:
        """Have machine code do what `args` of Execute say; return whether it has.

        Buffers that the program may write over are left to it before.
        """
        if not self._is_for_machine_code():
            return False
        assert self._native is not None
        (buffers,) = _arguments(args)
        self._check(buffers, frozenset())
        if any(buffer.run is not None for buffer in buffers):
            if not QUEUE.is_soon_idle:
                return False
            QUEUE.drain()
        donated = [buffers[index] for index in self._native.donated]
        if not all(buffer.can_be_left for buffer in donated):
            return False
        for buffer in donated:
            buffer.leave_to_machine_code()
        done = self.run_if_native(self.address, ctypes.addressof(args))
        if done == _INTERRUPTED:
            raise KeyboardInterrupt
        return done == _DONE

    def _is_for_machine_code(self) -> bool:
        """Whether machine code runs the program: where it is one native function, and short."""
        program, native = self.program, self._native
        if native is None:
            if not program.is_short or len(program.local) != 1 or self.record.is_deleted:
                return False
            native = self._native = program.native_call()
            self.record.native = native.address if native else 0
        elif native.struct.is_long == FOUND_LONG:
            program.found_long()
            native.struct.is_long = KNOWN_LONG
        elif native.struct.is_long == KNOWN_LONG and program.is_short:
            native.struct.is_long = 0
        return native is not None and bool(native.struct.is_enabled) and not native.struct.is_long

    def run(
        self, lists: Sequence[Sequence[Buffer]], devices: Sequence[Device], kept: frozenset[int], context: int
    ) -> tuple[list[list[Buffer]], Run | None]:
        """Run the program on `devices`, each with its list of arguments.

        Returns the buffers of its results, and the run that gives their values, None where they are there already.
        Buffers that it may write over are gone then, but for those at the places `kept`.
        """
        program = self.program
        if self.record.is_deleted:
            raise PjrtError(Code.FAILED_PRECONDITION, f"the executable {program.name} has been deleted")
        for buffers in lists:
            self._check(buffers, kept)
        functions = functions_of(context) if program.calls_back else ()
        is_here = QUEUE.is_here or not QUEUE.is_open or (program.is_short and QUEUE.is_soon_idle)
        if is_here:
            QUEUE.drain()
        takes = [self._taken(buffers, kept, is_here) for buffers in lists]
        places = list(zip(program.outputs, program.output_kinds, program.output_orders, strict=True))

        def compute() -> list[list[Array | None]]:
            results = program.run([[take() for take in of_device] for of_device in takes], functions)
            takes.clear()
            return [
                [
                    None if value is None else laid(np.asarray(value), order)
                    for value, (_, _, order) in zip(values, places, strict=True)
                ]
                for values in results
            ]

        if is_here:
            pairs = zip(compute(), devices, strict=True)
            return [
                [
                    Buffer(value, device.memory(kind), order)
                    for value, (_, kind, order) in zip(values, places, strict=True)
                ]
                for values, device in pairs
            ], None

        def arrive() -> None:
            for values, buffers in zip(compute(), outputs, strict=True):
                for value, buffer in zip(values, buffers, strict=True):
                    buffer.arrive(value)
            outputs.clear()

        run = Run(arrive, lambda: program.is_short)
        outputs = [
            [Buffer.of_run(facts, device.memory(kind), order, run) for facts, kind, order in places]
            for device in devices
        ]
        results = list(outputs)
        for buffer in [buffer for buffers in lists for buffer in buffers]:
            buffer.read_by(run)
        QUEUE.put(run)
        return results, run

    def _check(self, buffers: Sequence[Buffer], kept: frozenset[int]) -> None:
        """PjrtError for buffers that are not the program's arguments."""
        program = self.program
        if len(buffers) != len(program.inputs):
            raise PjrtError(
                Code.INVALID_ARGUMENT, f"{program.name} takes {len(program.inputs)} arguments, got {len(buffers)}"
            )
        for index, (buffer, (number, shape)) in enumerate(zip(buffers, program.inputs, strict=True)):
            buffer.check()
            if number == TOKEN:  # frontends give any array at all for one
                continue
            if buffer.facts != (number, shape):
                raise PjrtError(
                    Code.INVALID_ARGUMENT,
                    f"argument {index} of {program.name} is an array of shape {shape}, got {_named(buffer.facts)}",
                )
            if index in program.donated and index not in kept and buffers.count(buffer) > 1:
                raise PjrtError(
                    Code.INVALID_ARGUMENT, f"argument {index} of {program.name} is donated, and is given twice"
                )

    def _taken(self, buffers: Sequence[Buffer], kept: frozenset[int], is_here: bool) -> list[Take]:
        """What gives the arguments once they are there."""
        program = self.program
        takes: list[Take] = []
        for index, (buffer, (number, _)) in enumerate(zip(buffers, program.inputs, strict=True)):
            if number == TOKEN:
                takes.append(lambda: None)
            elif index in program.donated:
                takes.append(_copying(buffer.lend()) if index in kept else buffer.donate(is_here))
            else:
                takes.append(buffer.lend())
        return takes


def _copying(take: Take) -> Take:
    def copy() -> Array | None:
        array = take()
        return None if array is None else array.copy(order="C")

    return copy


def _named(facts: Facts) -> str:
    number, shape = facts
    return "a token" if number == TOKEN else f"{dtype_of(number)} of shape {shape}"


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
    devices = [device for _, device in loaded.program.local]
    if args.execute_device and len(devices) == 1:
        devices = [find(Device, args.execute_device)]
    if args.num_devices != len(devices) or not all(device.is_addressable for device in devices):
        raise PjrtError(
            Code.INVALID_ARGUMENT, f"{loaded.program.name} runs on {len(devices)} devices here, got {args.num_devices}"
        )
    kept, context = _options(args.options)
    if not kept and loaded.run_by_machine_code(args):
        return
    results, run = loaded.run(_arguments(args), devices, kept, context)
    if any(results):
        for place, buffers in zip(_words(args.output_lists, len(devices)), results, strict=True):
            (ctypes.c_size_t * len(buffers)).from_address(place)[:] = [buffer.address for buffer in buffers]
    if args.device_complete_events and devices:
        events = (ctypes.c_size_t * len(devices)).from_address(args.device_complete_events)
        events[:] = [when_done(run) for _ in devices]


def _arguments(args: Any) -> list[list[Buffer]]:
    """The arguments of each device."""
    if not args.num_args:
        return [[] for _ in range(args.num_devices)]
    places = _words(args.argument_lists, args.num_devices)
    return [[find(Buffer, address) for address in _words(place, args.num_args)] for place in places]


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


destroys("LoadedExecutable_Destroy", Loaded, "executable")


destroys("Executable_Destroy", Executable, "executable")


@entry("Executable_OptimizedProgram")
def _(args: Any) -> None:
    executable = find(Executable, args.executable)
    if not args.program:
        raise PjrtError(Code.INVALID_ARGUMENT, "there is no place for the program")
    text = executable.program.module.to_string(generic=True, debug_info=True).encode()
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
    types, memory = program.prepared.function.type.inputs, program.costs.memory
    for field, _ in args._fields_[_HEAD:]:  # callers leave them as they find them
        setattr(args, field, 0)
    args.argument_size_in_bytes, args.output_size_in_bytes = memory.arguments, memory.results
    given = [types[index] for index in program.donated]
    args.alias_size_in_bytes = sum(type.nbytes for type in given if isinstance(type, TensorType))
    args.temp_size_in_bytes = memory.temporaries
    args.peak_memory_in_bytes = memory.total - args.alias_size_in_bytes


@entry("Executable_GetCostAnalysis")
def _(args: Any) -> None:
    executable = find(Executable, args.executable)
    table, memory = named_values(executable.program.costs.by_name())
    args.properties, args.num_properties = executable.keep(table, *memory), len(table)
