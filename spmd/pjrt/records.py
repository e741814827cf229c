"""Records: what handles point to, in one stretch of memory that is never given back.

A record that is free has no kind: machine code finds out without Python whether an address is a handle, whatever it is
given. Records are taken and given back by any thread, whether or not it holds the interpreter's lock: the free ones are
a list whose head is swapped at once, with a count that grows each time.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

from spmd.backends.machine_code import compile_ir
from spmd.pjrt.machine import llvm_of

#: The bytes of a record, a power of two, and the most records there are at a time.
SLOT = 256
COUNT = 1 << 20
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: pages are there once they are used

_TEXT = """
def take_record():
    head = load(pool)
    while head % LIMIT != 0:
        record = records + (head % LIMIT - 1) * SLOT
        if swap(pool, head, (head // LIMIT + 1) * LIMIT + record[2]):
            memset(record, 0, SLOT)
            return record
        head = load(pool)
    number = add(pool + 8, 1)
    if number < COUNT:
        return records + number * SLOT
    add(pool + 8, 0 - 1)
    return 0

def give_record(record):
    record[1] = 0
    number = (record - records) // SLOT + 1
    head = load(pool)
    record[2] = head % LIMIT
    while not swap(pool, head, (head // LIMIT + 1) * LIMIT + number):
        head = load(pool)
        record[2] = head % LIMIT

def count_up(address, size):
    device: DeviceRecord = address
    greatest(place(device.peak), add(place(device.bytes), size) + size)
    greatest(place(device.largest), size)
    add(place(device.allocations), 1)

def count_down(address, size):
    device: DeviceRecord = address
    add(place(device.bytes), 0 - size)
"""


def immortal(thing: Any) -> Any:
    """Return `thing`, which is never freed: C++ calls in until the process has ended."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def _stretch() -> Any:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    memory = immortal(mmap.mmap(-1, SLOT * COUNT, flags=flags))
    return immortal((ctypes.c_char * (SLOT * COUNT)).from_buffer(memory))


#: Where records begin and end.
START = ctypes.addressof(_stretch())
END = START + SLOT * COUNT
#: The head of the list of free records, and how many records were ever taken anew.
_POOL = immortal((ctypes.c_int64 * 2)())

_symbols = {"records": START, "pool": ctypes.addressof(_POOL)}
_library = immortal(compile_ir(llvm_of(_TEXT, {"SLOT": SLOT, "COUNT": COUNT, "LIMIT": 2 * COUNT}, _symbols), _symbols))
#: The functions as machine code calls them, by name.
FUNCTIONS = {name: _library.address(name) for name in ("take_record", "give_record", "count_up", "count_down")}


def python_function(address: int, count: int) -> Callable[..., int]:
    """Return the function of machine code at an address, of `count` integers, for Python; it keeps the GIL."""
    function: Callable[..., int] = immortal(ctypes.PYFUNCTYPE(ctypes.c_size_t, *[ctypes.c_size_t] * count)(address))
    return function


def _of_c(name: str, result: Any) -> Callable[[int], int]:
    function = getattr(ctypes.PyDLL(None), name)
    function.restype, function.argtypes = result, [ctypes.c_size_t]
    return immortal(function)  # type: ignore[no-any-return]


#: Returns the address of a free record, filled with zeros; 0 where there is none.
take_record = python_function(FUNCTIONS["take_record"], 0)
#: Gives a record back.
give_record = python_function(FUNCTIONS["give_record"], 1)
#: Counts a buffer of a device, by its record's address and the buffer's bytes, and counts it no more.
count_up = python_function(FUNCTIONS["count_up"], 2)
count_down = python_function(FUNCTIONS["count_down"], 2)
#: The C library's malloc and free, of which machine code has the memory of buffers.
allocate = _of_c("malloc", ctypes.c_size_t)
release = _of_c("free", None)


def is_record(address: int) -> bool:
    """Return whether a record begins at an address."""
    return START <= address < END and (address - START) % SLOT == 0
