"""The structs of PJRT's C interface are laid out as its header has them."""

import ctypes

import pytest

from spmd.pjrt.api import api
from spmd.pjrt.getters import GETTERS
from spmd.pjrt.records import SLOT
from spmd.pjrt.structs import ENTRIES, KINDS, Api, place, size_of, struct

#: What a compiler of C says of version 0.112: the end of the last field.
SIZES = {
    "Error_Message": 40,
    "Event_OnReady": 40,
    "Client_Create": 88,
    "Client_Compile": 56,
    "Client_BufferFromHostBuffer": 120,
    "DeviceDescription_Id": 28,
    "Device_MemoryStats": 185,
    "LoadedExecutable_Execute": 80,
    "Buffer_IsDeleted": 25,
    "Buffer_ToHostBuffer": 56,
    "Executable_OutputDimensions": 48,
    "Client_CreateViewOfDeviceBuffer": 112,
    "Executable_GetCompiledMemoryStats": 144,
    "Device_PoisonExecution": 72,
    "Layouts_MemoryLayout_Serialize": 56,
    "FFI_UserData_Add": 40,
    "Register_Custom_Partitioner": 32,
    "Program": 48,
    "NamedValue": 56,
}


@pytest.mark.parametrize("name", SIZES)
def test_a_struct_has_the_size_that_the_header_gives_it(name: str) -> None:
    assert size_of(name) == SIZES[name]


def test_all_structs_together_have_their_size() -> None:
    """A compiler has 6062 bytes: the 4 that pad the struct within Buffer_GetMemoryLayout are not written."""
    assert (len(ENTRIES), ctypes.sizeof(Api)) == (138, 1144)
    assert sum(map(size_of, ENTRIES)) == 6062 - 4


def test_fields_behind_a_bool_are_aligned() -> None:
    assert place("Device_MemoryStats", "num_allocs") == (48, 8)
    assert place("ExecuteOptions", "context") == (72, 8)


def test_records_fit_into_their_slots() -> None:
    assert all(ctypes.sizeof(struct(f"{kind}Record")) <= SLOT for kind in KINDS)


def test_every_entry_has_an_address() -> None:
    table = api()
    assert table.struct_size == ctypes.sizeof(Api)
    assert all(table.entries) and len(set(table.entries)) == len(ENTRIES)


def test_getters_name_entries_and_fields() -> None:
    assert len({getter.name for getter in GETTERS}) == len(GETTERS)
    for getter in GETTERS:
        assert place(getter.name, getter.handle)[1] == 8
