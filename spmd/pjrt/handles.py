"""Handles: what a frontend holds of this client's objects, addresses of records in one stretch of memory.

The stretch is never given back, and a record that is free has no kind: machine code finds out without Python whether an
address is a handle, whatever it is given.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from spmd.pjrt.errors import Code, PjrtError
from spmd.pjrt.structs import KINDS, struct

#: The bytes of a record, a power of two, and the most records there are at a time.
SLOT = 256
_COUNT = 1 << 20
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: pages are there once they are used

T = TypeVar("T", bound="Handle")


def immortal(thing: Any) -> Any:
    """Return `thing`, which is never freed: C++ calls in until the process has ended."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def _stretch() -> Any:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    memory = immortal(mmap.mmap(-1, SLOT * _COUNT, flags=flags))
    return immortal((ctypes.c_char * (SLOT * _COUNT)).from_buffer(memory))


_MEMORY = _stretch()
#: Where records begin and end.
START = ctypes.addressof(_MEMORY)
END = START + SLOT * _COUNT

_unused = iter(range(START, END, SLOT))
_freed: deque[int] = deque()
_objects: dict[int, Handle] = {}


class Handle:
    """An object that a frontend has a handle of; `record` is what the handle points to."""

    KIND: ClassVar[str]

    def __init__(self) -> None:
        """Take a free record; PjrtError where there is none."""
        address = _freed.popleft() if len(_freed) > 1024 else next(_unused, 0) or (_freed and _freed.popleft())
        if not address:
            raise PjrtError(Code.RESOURCE_EXHAUSTED, f"there are {_COUNT:,} live objects, and no more can be made")
        self.address: int = address
        ctypes.memset(address, 0, SLOT)
        self.record = struct(f"{self.KIND}Record").from_address(address)
        self.record.kind = KINDS.index(self.KIND) + 1
        self._kept: list[Any] = []
        _objects[address] = self

    def release(self) -> None:
        """Give the record back; nothing happens the second time."""
        if _objects.get(self.address) is self:
            del _objects[self.address]
            self.record.kind = 0
            self.record = type(self.record)()  # an object that outlives its handle writes to no other's record
            _freed.append(self.address)

    def destroy(self) -> None:
        """Give up what the object holds, and its record: the frontend has no use for it any more."""
        self.release()

    def put_text(self, field: str, text: str | bytes) -> None:
        """Set `field` and `field_size` to a text that lives as long as the handle."""
        data = text.encode() if isinstance(text, str) else text
        setattr(self.record, field, self.keep(ctypes.create_string_buffer(data)))
        setattr(self.record, f"{field}_size", len(data))

    def put_words(self, field: str, words: Sequence[int], kind: Any = ctypes.c_size_t) -> None:
        """Set `field` to an array of numbers that lives as long as the handle."""
        setattr(self.record, field, self.keep((kind * max(len(words), 1))(*words)))

    def put_texts(self, field: str, sizes: str, texts: Sequence[str | bytes]) -> None:
        """Set `field` to an array of texts, and `sizes` to their lengths."""
        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
        self.put_words(field, [self.keep(ctypes.create_string_buffer(text)) for text in encoded])
        self.put_words(sizes, [len(text) for text in encoded])

    def keep(self, memory: Any, *others: Any) -> int:
        """Return the address of `memory` of ctypes, which lives as long as the handle, as does what it points to."""
        self._kept += [memory, *others]
        return ctypes.addressof(memory)


def find(kind: type[T], address: int) -> T:
    """Return the object that a handle stands for; PjrtError where it is none of this kind."""
    found = _objects.get(address)
    if not isinstance(found, kind):
        raise PjrtError(Code.INVALID_ARGUMENT, f"{address:#x} is no handle of a {kind.KIND.lower()}")
    return found


def find_or_none(kind: type[T], address: int) -> T | None:
    """Return the object that a handle stands for; None where it is none of this kind."""
    found = _objects.get(address)
    return found if isinstance(found, kind) else None
