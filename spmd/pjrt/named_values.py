"""Lists of named values, as the interface hands them over.

Source: pjrt_c_api.h, PJRT_NamedValue.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from spmd.pjrt.structs import place, struct

#: Numbers of PJRT_NamedValue_Type.
INT64, INT64_LIST, FLOAT = 1, 2, 3
_VALUE_AT = place("NamedValue", "value")[0]


def named_values(values: Mapping[str, tuple[int, ...] | float]) -> tuple[Any, list[Any]]:
    """Return an array of PJRT_NamedValue, lists of integers and floats by their names, and the memory it points to."""
    kind = struct("NamedValue")
    table = (kind * len(values))()
    memory: list[Any] = []
    for entry, (name, value) in zip(table, values.items(), strict=True):
        text = ctypes.create_string_buffer(name.encode())
        memory.append(text)
        entry.struct_size, entry.name, entry.name_size = ctypes.sizeof(kind), ctypes.addressof(text), len(name)
        if isinstance(value, tuple):
            numbers = (ctypes.c_int64 * len(value))(*value)
            memory.append(numbers)
            entry.type, entry.value, entry.value_size = INT64_LIST, ctypes.addressof(numbers), len(value)
        else:
            entry.type, entry.value_size = FLOAT, 1
            ctypes.c_float.from_buffer(entry, _VALUE_AT).value = value
    return table, memory
