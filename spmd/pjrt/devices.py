"""The client, its devices, their memories, and the topology that describes them.

A process of JAX has one device of its own, or several, which compute in the memory of the host. There are three kinds
of memory, as of XLA's client for CPUs; all of them are the host's.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Any

from spmd.pjrt.entries import destroys, entry
from spmd.pjrt.errors import Code, PjrtError
from spmd.pjrt.handles import Handle, find
from spmd.pjrt.named_values import INT64
from spmd.pjrt.runs import QUEUE
from spmd.pjrt.structs import struct
from spmd.runtime import world
from spmd.version import __version__

#: Programs are lowered by platform, and those for the CPU are what this client runs.
PLATFORM = "cpu"
_VERSION = f"spmd {__version__}"
#: How many devices each process has: a variable of the environment; an option of the frontend goes before it.
_VARIABLE, _OPTION = "SPMD_NUM_DEVICES", "num_devices"
_MOST_DEVICES = 65536
#: The kinds of memory, the default one first, by their numbers.
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")


class Description(Handle):
    """What a device is, wherever it is."""

    KIND = "Description"

    def __init__(self, id: int, process: int) -> None:
        super().__init__()
        self.record.id, self.record.process_index = id, process
        self.put_text("device_kind", "cpu")
        self.put_text("to_string", f"CpuDevice(id={id})")
        self.put_text("debug_string", f"spmd:{id}")


class Memory(Handle):
    """A kind of memory of a device."""

    KIND = "Memory"

    def __init__(self, device: Device, kind: int) -> None:
        super().__init__()
        self.device = device
        self.kind = MEMORY_KINDS[kind]
        self.record.id, self.record.kind_id = len(MEMORY_KINDS) * device.id + kind, kind
        self.put_text("kind_text", self.kind)
        self.put_text("to_string", f"{self.kind} memory of device {device.id}")
        self.put_text("debug_string", f"{self.kind}:{device.id}")
        self.put_words("devices", [device.address])
        self.record.num_devices = 1


class Device(Handle):
    """A device: this process's own, which has memories, or another process's."""

    KIND = "Device"

    def __init__(self, id: int, process: int, local: int | None) -> None:
        super().__init__()
        self.id, self.process = id, process
        self.description = Description(id, process)
        self.is_addressable = local is not None
        self.memories = [Memory(self, kind) for kind in range(len(MEMORY_KINDS))] if self.is_addressable else []
        self.record.device_description = self.description.address
        self.record.is_addressable = self.is_addressable
        self.record.local_hardware_id = -1 if local is None else local
        self.put_words("memories", [memory.address for memory in self.memories])
        self.record.num_memories = len(self.memories)
        self.record.memory = self.memories[0].address if self.memories else 0

    def memory(self, kind: str) -> Memory:
        """Return the memory of a kind; PjrtError where there is none."""
        for memory in self.memories:
            if memory.kind == kind:
                return memory
        raise PjrtError(Code.INVALID_ARGUMENT, f"device {self.id} has no memory of kind {kind!r}")


class Topology(Handle):
    """The devices of a client, described."""

    KIND = "Topology"

    def __init__(self, devices: list[Device]) -> None:
        super().__init__()
        self.put_text("platform_name", PLATFORM)
        self.put_text("platform_version", _VERSION)
        self.put_words("descriptions", [device.description.address for device in devices])
        self.record.num_descriptions = self.record.fingerprint = len(devices)


class Client(Handle):
    """This process of a job: its devices, and those of the others."""

    KIND = "Client"

    def __init__(self, count: int = 1) -> None:
        """`count`: how many devices each process has."""
        super().__init__()
        ranks, self.process = _ranks(count)
        self.devices = [
            Device(count * rank + place, rank, place if rank == self.process else None)
            for rank in range(ranks)
            for place in range(count)
        ]
        self.by_id = {device.id: device for device in self.devices}
        self.local = [device for device in self.devices if device.is_addressable]
        self.topology = Topology(self.devices)
        memories = [memory for device in self.local for memory in device.memories]
        self.put_text("platform_name", PLATFORM)
        self.put_text("platform_version", _VERSION)
        self.record.process_index = self.process
        self.record.topology = self.topology.address
        for field, members in (
            ("devices", self.devices),
            ("addressable_devices", self.local),
            ("addressable_memories", memories),
        ):
            self.put_words(field, [member.address for member in members])
            setattr(self.record, f"num_{field}", len(members))

    def default_assignment(self, count: int) -> list[int]:
        """Return the devices that a program for `count` of them runs on; PjrtError where there are fewer."""
        ids = [self.local[0].id] if count == 1 else list(self.by_id)[:count]
        if len(ids) < count:
            raise PjrtError(Code.INVALID_ARGUMENT, f"{count} devices are needed, and there are {len(ids)}")
        return ids

    def destroy(self) -> None:
        """Give up all handles that are the client's own, once no program is under way."""
        QUEUE.drain()
        for device in self.devices:
            for memory in device.memories:
                memory.release()
            device.description.release()
            device.release()
        self.topology.release()
        self.release()


def _ranks(count: int) -> tuple[int, int]:
    """How many processes there are, and which of them this is. Collective: all come together, with `count` devices."""
    if not world.under_mpi():
        return 1, 0
    try:
        communicator = world.ranks("JAX's client")
    except (ImportError, RuntimeError) as error:
        raise PjrtError(
            Code.FAILED_PRECONDITION, f"this process is an MPI rank, and no MPI can be loaded: {error}"
        ) from error
    counts = communicator.allgather_object(count, "JAX's client")
    if len(set(counts)) > 1:
        raise PjrtError(
            Code.INVALID_ARGUMENT, f"processes have one number of devices, got {counts}: set {_VARIABLE} alike on all"
        )
    return communicator.size, communicator.rank


def devices_wanted(name: str, text: str) -> int:
    """Return a number of devices; PjrtError for a text that is none, the value of `name`."""
    if not text.isdigit() or not 1 <= int(text) <= _MOST_DEVICES:
        raise PjrtError(Code.INVALID_ARGUMENT, f"{name} must be a number from 1 to {_MOST_DEVICES:,}, got {text!r}")
    return int(text)


@entry("Client_Create")
def _(args: Any) -> None:
    count = devices_wanted(_VARIABLE, os.environ.get(_VARIABLE) or "1")
    kind = struct("NamedValue")
    for place in range(args.num_options if args.create_options else 0):
        option = kind.from_address(args.create_options + place * ctypes.sizeof(kind))
        if ctypes.string_at(option.name, option.name_size) == _OPTION.encode() and option.type == INT64:
            count = devices_wanted(_OPTION, str(option.value))
    client = Client(count)
    QUEUE.is_open = world.has_threads()
    atexit.register(QUEUE.drain)  # before MPI ends, which the client may just have started
    args.client = client.address


destroys("Client_Destroy", Client, "client")


@entry("Client_LookupDevice")
def _(args: Any) -> None:
    device = find(Client, args.client).by_id.get(args.id)
    if device is None:
        raise PjrtError(Code.INVALID_ARGUMENT, f"there is no device {args.id}")
    args.device = device.address


@entry("Client_LookupAddressableDevice")
def _(args: Any) -> None:
    local = find(Client, args.client).local
    if not 0 <= args.local_hardware_id < len(local):
        raise PjrtError(Code.INVALID_ARGUMENT, f"this process has no device {args.local_hardware_id}")
    args.addressable_device = local[args.local_hardware_id].address


@entry("Client_DefaultDeviceAssignment")
def _(args: Any) -> None:
    client = find(Client, args.client)
    count = args.num_replicas * args.num_partitions
    if args.num_replicas < 1 or args.num_partitions < 1 or args.default_assignment_size < count:
        raise PjrtError(
            Code.INVALID_ARGUMENT,
            f"{args.num_replicas} by {args.num_partitions} devices in {args.default_assignment_size} places",
        )
    ids = client.default_assignment(count)
    (ctypes.c_int32 * count).from_address(args.default_assignment)[:] = ids


@entry("Client_UpdateGlobalProcessInfo")
def _(args: Any) -> None:
    """What becomes of other processes is the launcher's to say."""


@entry("Device_MemoryStats")
def _(args: Any) -> None:
    record = find(Device, args.device).record
    args.bytes_in_use = record.bytes
    args.peak_bytes_in_use, args.peak_bytes_in_use_is_set = record.peak, True
    args.num_allocs, args.num_allocs_is_set = record.allocations, True
    args.largest_alloc_size, args.largest_alloc_size_is_set = record.largest, True


@entry("Device_ClearMemoryStats")
def _(args: Any) -> None:
    record = find(Device, args.device).record
    record.peak, record.largest, record.allocations = record.bytes, 0, 0


@entry("TopologyDescription_Destroy", fails=False)
def _(args: Any) -> None:
    """A topology is its client's."""
