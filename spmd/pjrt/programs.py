"""Programs of a frontend: compiled, and run on this process's devices.

A program for one device runs alone, whichever rank has it. One for several devices is partitioned; it runs on ranks
that have one device each, through MPI, on devices of one process, stacked: all of them in one program, or on several
devices of each of several ranks, whose devices are threads then.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.grid import ProcessGrid
from spmd.compiler.pipeline.options import CompileOptions
from spmd.compiler.pipeline.prepare import prepare
from spmd.compiler.plan.donation import donated_arguments
from spmd.io.reading import parse
from spmd.ir import Module
from spmd.ir.attributes import Attribute, IntegerAttr, StringAttr
from spmd.pjrt import callbacks, ffi
from spmd.pjrt.devices import MEMORY_KINDS, Client, Device
from spmd.pjrt.element_types import described
from spmd.pjrt.errors import Code, PjrtError
from spmd.pjrt.hot import SHORT
from spmd.pjrt.layouts import declared_orders
from spmd.pjrt.native_programs import NativeCall, can_be_native
from spmd.pjrt.protobuf import BuildOptions, build_options
from spmd.pjrt.runs import QUEUE
from spmd.pjrt.shardings import op_shardings
from spmd.runtime.compile import executable_of
from spmd.runtime.executable import Executable
from spmd.runtime.process import Process
from spmd.runtime.world import process_among, ranks_among
from spmd.support.arrays import Array
from spmd.types import I32, TokenType

if TYPE_CHECKING:
    from spmd.pjrt.costs import Costs

#: What a serialized program begins with; its options and the program as it came follow, compiled where it is read.
_MAGIC = b"spmd program 1\n"
_MEMORY_KIND = "mhlo.memory_kind"
#: A device's arguments or results: arrays, and None for tokens.
Values = Sequence[Any]
#: The results on each of this process's devices from its arguments there.
Run = Callable[[Sequence[Values]], Sequence[Values]]


class Program:
    """A compiled program, and the facts that handles of it give."""

    def __init__(self, client: Client, code: bytes, options: bytes) -> None:
        self.client = client
        self.code = code
        self.options = options
        self.build = build_options(options)
        self.grid = ProcessGrid(self.build.replicas, self.build.partitions)
        self.devices = _devices(client, self.build)
        #: This process's devices that take part, in the program's order, with their places in it.
        self.local = [(place, device) for place, device in enumerate(self.devices) if device.is_addressable]
        module = parse(code, "<jax>", verify=False)
        module.discardable = {**module.discardable, **_counts(self.grid)}
        self.calls_back = callbacks.connect(module)
        weakref.finalize(self, ffi.disconnect, ffi.connect(module)).atexit = False
        function = module.function("main")
        self.input_orders = declared_orders(function.argument_attributes, function.arguments)
        self.output_orders = declared_orders(function.result_attributes, function.body.terminator.operands)
        self.prepared = prepare(module, self.grid, even_boundary=True, donate="attributes")
        self.donated = donated_arguments(function, "attributes")
        self.inputs = [described(type) for type in self.prepared.function.type.inputs]
        self.outputs = [described(type) for type in self.prepared.function.type.results]
        self.input_kinds = [_memory_kind(entries) for entries in function.argument_attributes]
        self.output_kinds = [_memory_kind(entries) for entries in function.result_attributes]
        self.input_shardings = op_shardings(self.prepared.in_shardings, len(self.inputs))
        self.output_shardings = op_shardings(self.prepared.out_shardings, len(self.outputs))
        self.name = module.symbol or "main"
        self._executable: Executable | None = None
        #: Nanoseconds that a run took, the quickest of them; none has been run yet.
        self._quickest = math.inf
        self._run = self._runner()

    @property
    def module(self) -> Module:
        """The program as it is run by one process."""
        return self.prepared.module

    @cached_property
    def costs(self) -> Costs:
        """What the program of one process costs."""
        from spmd.pjrt.costs import Costs  # late: few programs are priced, and that takes modules of its own

        return Costs(self.prepared)

    def run(self, values: Sequence[Values], functions: Sequence[Callable[..., Any]]) -> Sequence[Values]:
        """Return the results on each of this process's devices from its arguments there.

        `functions` are what it may call back.
        """
        since = time.monotonic_ns()
        with callbacks.available(functions) if self.calls_back else nullcontext():
            results = self._run(values)
        self._quickest = min(self._quickest, time.monotonic_ns() - since)
        return results

    @property
    def is_short(self) -> bool:
        """Whether a run takes so little time that its caller does it; functions that it calls may take any."""
        return self._quickest <= SHORT and not self.calls_back

    def found_long(self) -> None:
        """Forget what runs took: one took longer than all before."""
        self._quickest = math.inf

    def native_call(self) -> NativeCall | None:
        """Return how machine code runs the program; None where it does not."""
        executable = self._executable
        native = None if executable is None or not self._has_native_buffers else executable.native
        if executable is None or native is None:
            return None
        (device,) = [device for _, device in self.local]
        memories = [device.memory(kind) for kind in self.output_kinds]
        call = NativeCall(native, self.inputs, self.outputs, memories)
        executable.when_replaced = call.enable
        return call

    @cached_property
    def _has_native_buffers(self) -> bool:
        """Whether machine code can make and compare the buffers of arguments and results."""
        is_ordered = any(self.input_orders) or any(self.output_orders)
        return not is_ordered and all(can_be_native(*each) for each in (*self.inputs, *self.outputs))

    def _runner(self) -> Run:
        """What runs the program on this process's devices, of which there may be none: others run it then."""
        if not self.local:
            return lambda _: []
        processes = {device.process for device in self.devices}
        if len(processes) == len(self.devices):
            return self._alone_or_on_ranks()
        return self._on_devices() if len(processes) == 1 else self._on_devices_of_ranks(sorted(processes))

    def _alone_or_on_ranks(self) -> Run:
        """What runs the program as one process; the first call of several is collective among them."""
        executable = self._executable = executable_of(self.prepared)
        members = [device.process for device in self.devices]
        process: list[Process] = []

        def run(values: Sequence[Values]) -> Sequence[Values]:
            if not process:
                process.append(process_among(self.grid, members, f"@{self.name}"))
            return [executable.run_on(process[0], values[0])]

        return run

    def _on_devices(self) -> Run:
        """What runs the program of all processes at once, one thread at a time."""
        from spmd.runtime.simulation import Simulation, of_process  # loaded late: most processes have one device

        differ = self._differ()
        simulation = Simulation(self.prepared, CompileOptions(donate=()), stacked=differ)
        turn = threading.Lock()

        def run(values: Sequence[Values]) -> Sequence[Values]:
            columns = [
                _column(column, of_all) for column, of_all in zip(zip(*values, strict=True), differ, strict=True)
            ]
            with turn:
                results = simulation(*columns, collapse=True)
            return [[_row(result, place, of_process) for result in results] for place in range(len(values))]

        return run

    def _on_devices_of_ranks(self, processes: Sequence[int]) -> Run:
        """Return a function that runs each device in a thread; its first call is collective among `processes`."""
        from collectives.ranks_of_threads import RankOfThreads  # loaded late, as above

        executable = executable_of(self.prepared)
        owners = [processes.index(device.process) for device in self.devices]
        members: list[tuple[RankOfThreads, list[Process]]] = []

        def run(values: Sequence[Values]) -> Sequence[Values]:
            if not members:
                rank = RankOfThreads(ranks_among(processes, f"@{self.name}"), owners)
                members.append((rank, [Process(self.grid, end) for end in rank.communicators]))
            (rank, own), functions = members[0], callbacks.here()

            def process(place: int) -> Values:
                with QUEUE.started_here(), callbacks.available(functions):
                    return executable.run(own[place], values[place])

            return rank.run(process)

        return run

    def _differ(self) -> tuple[bool, ...]:
        """Which arguments may differ between devices: those that are cut, all of a program without shardings."""
        types, layouts = self.prepared.function.type.inputs, self.prepared.in_shardings
        if layouts is None:
            return (True,) * len(types)
        return tuple(
            isinstance(type, TokenType) or layout.sharding is None or not layout.sharding.is_replicated
            for type, layout in zip(types, layouts, strict=True)
        )

    # --- files -------------------------------------------------------------------------------------------------------

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


def _column(column: Values, differ: bool) -> Any:
    """An argument of all devices, stacked: one row where it is the same on all."""
    if column[0] is None:
        return None
    return np.stack(column) if differ else column[0][None]


def _row(result: Any, place: int, of_process: Callable[[Any, int], Array]) -> Array | None:
    """A device's own array of a stacked result, which has one row alone where it is the same on all."""
    if result is None:
        return None
    return of_process(result, place if len(result) > 1 else 0)


def _counts(grid: ProcessGrid) -> dict[str, Attribute]:
    return {
        "mhlo.num_replicas": IntegerAttr(grid.num_replicas, I32),
        "mhlo.num_partitions": IntegerAttr(grid.num_partitions, I32),
    }


def _devices(client: Client, build: BuildOptions) -> list[Device]:
    """The devices of a program, in the order of replica and partition."""
    count = build.replicas * build.partitions
    ids = [id for row in build.assignment for id in row] or client.default_assignment(count)
    devices = [client.by_id.get(id) for id in ids]
    if None in devices or len(set(ids)) < count:
        raise PjrtError(Code.INVALID_ARGUMENT, f"{ids} are not {count} of the devices {list(client.by_id)}")
    return [device for device in devices if device is not None]


def _memory_kind(attributes: Any) -> str:
    """The kind of memory of an argument or a result."""
    kind = attributes.get(_MEMORY_KIND)
    return kind.value if isinstance(kind, StringAttr) and kind.value in MEMORY_KINDS else MEMORY_KINDS[0]
