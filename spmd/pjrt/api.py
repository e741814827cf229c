"""The struct PJRT_Api of this client, and its extensions."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from spmd.pjrt import buffers, callbacks, devices, events, executables, layouts
from spmd.pjrt.entries import CROSSINGS, FAILED, INTERRUPTED, entry
from spmd.pjrt.errors import unimplemented
from spmd.pjrt.events import READY
from spmd.pjrt.getters import GETTERS
from spmd.pjrt.named_values import named_values
from spmd.pjrt.native import load
from spmd.pjrt.records import immortal
from spmd.pjrt.structs import ENTRIES, MAJOR, MINOR, Api, struct

#: The modules whose entries there are.
_MODULES = (buffers, callbacks, devices, events, executables, layouts)

#: Extensions by their number (PJRT_Extension_Type): the entries in the order of their struct.
_EXTENSIONS = {
    2: ("Register_Custom_Partitioner", "Register_Batch_Partitionable"),
    4: (
        "Layouts_MemoryLayout_Destroy",
        "Layouts_MemoryLayout_Serialize",
        "Layouts_PJRT_Client_GetDefaultLayout",
        "Layouts_PJRT_Buffer_MemoryLayout",
        "Layouts_PJRT_Topology_GetDefaultLayout",
        "Layouts_PJRT_Executable_GetOutputLayouts",
        "Layouts_PJRT_Executable_GetParameterLayouts",
    ),
    5: ("FFI_Type_Register", "FFI_UserData_Add", "FFI_Register_Handler"),
    19: ("Shardings_PJRT_Executable_ParameterShardings", "Shardings_PJRT_Executable_OutputShardings"),
}
#: What the frontend may know of the client: the versions of StableHLO's portable format that it reads.
_ATTRIBUTES = {"stablehlo_minimum_version": (0, 9, 0), "stablehlo_current_version": (1, 13, 0)}
#: An extension's struct begins with its size, its number, and the next one.
_EXTENSION_HEAD = ctypes.sizeof(struct("Extension"))


@entry("Plugin_Initialize")
def _(args: Any) -> None:
    """There is nothing to set up."""


@entry("Plugin_Attributes")
def _(args: Any) -> None:
    array = _attributes()
    args.attributes, args.num_attributes = ctypes.addressof(array), len(array)


@entry("Device_GetAttributes", fails=False)
def _(args: Any) -> None:
    args.attributes = args.num_attributes = args.device_attributes = 0
    args.attributes_deleter = layouts.Layout.deleter


@cache
def _attributes() -> Any:
    return immortal(named_values(_ATTRIBUTES))[0]


def _not_there(name: str) -> None:
    """File an entry that says it is not supported; what cannot be made is destroyed without an error."""
    is_end = name.endswith("_Destroy")

    @entry(name, fails=not is_end)
    def _(args: Any) -> None:
        raise unimplemented(f"PJRT_{name} is not supported")


@cache
def api() -> Api:
    """Return the struct, made once: it lives as long as the process."""
    copied = {getter.name for getter in GETTERS}
    for name in ENTRIES:
        if name not in copied and name not in CROSSINGS:
            _not_there(name)
    library = load(CROSSINGS, {"failed": FAILED.address, "interrupted": INTERRUPTED.address, "ready": READY.address})
    layouts.Layout.deleter = library.address("nothing")
    kind = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)  # the GIL is let go of meanwhile
    executables.Loaded.run_if_native = staticmethod(kind(library.address("run_if_native")))
    following = 0
    for number, names in _EXTENSIONS.items():
        following = _extension(number, [library.address(name) for name in names], following)
    entries = (ctypes.c_size_t * len(ENTRIES))(*[library.address(name) for name in ENTRIES])
    table = Api(ctypes.sizeof(Api), following, 24, 0, MAJOR, MINOR, entries)
    made: Api = immortal(table)
    return made


def _extension(number: int, addresses: list[int], following: int) -> int:
    """The address of an extension's struct, behind which `following` stands."""
    size = _EXTENSION_HEAD + 8 * len(addresses)
    memory = immortal(ctypes.create_string_buffer(size))
    head = struct("Extension").from_buffer(memory)
    head.struct_size, head.type, head.next = size, number, following
    table = (ctypes.c_size_t * len(addresses)).from_buffer(memory, _EXTENSION_HEAD)
    for place, address in enumerate(addresses):
        table[place] = address
    return ctypes.addressof(memory)


def capsule() -> Any:
    """Return the struct as a frontend of Python takes it."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(api()), _CAPSULE, None)


#: The name of the capsule; the interpreter keeps its address.
_CAPSULE = immortal(b"pjrt_c_api")
