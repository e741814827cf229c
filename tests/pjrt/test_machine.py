"""The language of machine code: what its functions compute, and what is no part of it."""

import ctypes

import numpy as np
import pytest

from spmd.backends.machine_code import compile_ir
from spmd.pjrt.machine import llvm_of
from spmd.pjrt.structs import struct

TEXT = """
def fibonacci(count):
    last = 0
    this = 1
    while count > 0 and last < MOST:
        next = last + this
        last = this
        this = next
        count = count - 1
    if count == 0 or not last:
        return last
    else:
        return NONE

def grown(buffer: BufferRecord, table):
    buffer.type = 12
    buffer.size = buffer.size + table[1]
    mine = words(4)
    mine[3] = buffer.type
    before = add(place(buffer.size), 5)
    greatest(place(buffer.references), before)
    if swap(place(buffer.size), before, 0):
        return 1
    if not swap(place(buffer.size), before + 5, 9):
        return 2
    return mine[3] * 100 + strlen(word)
"""
WORD = ctypes.create_string_buffer(b"seven77")


@pytest.fixture(scope="module")
def functions() -> dict:
    symbols = {"word": ctypes.addressof(WORD)}
    library = compile_ir(llvm_of(TEXT, {"MOST": 1000, "NONE": 2**64 - 1}, symbols), symbols)
    made = {}
    for name, count in (("fibonacci", 1), ("grown", 2)):
        kind = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * count)
        made[name] = kind(library.address(name))
        made[name].library = library
    return made


def test_loops_and_conditions(functions: dict) -> None:
    assert [functions["fibonacci"](count) for count in range(9)] == [0, 1, 1, 2, 3, 5, 8, 13, 21]
    assert functions["fibonacci"](100) == 2**64 - 1


def test_fields_words_and_atomic_operations(functions: dict) -> None:
    record, table = struct("BufferRecord")(size=2, is_deleted=True), np.array([0, 40])
    assert functions["grown"](ctypes.addressof(record), table.ctypes.data) == 1207
    assert (record.type, record.size, record.references, record.is_deleted) == (12, 9, 42, True)


@pytest.mark.parametrize("text", ["x", "a.size", "1.5", "[1]", "a if 1 else 2", "-1", "1 < 2 < 3", "f(x=1)", "b.other"])
def test_what_is_no_part_of_it(text: str) -> None:
    with pytest.raises(SyntaxError, match="line 2"):
        llvm_of(f"def f(a, b: BufferRecord):\n    return {text}\n", {}, {})
