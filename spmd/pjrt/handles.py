"""Handles: what a frontend holds of this client's objects, the addresses of their records."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from spmd.pjrt.errors import Code, PjrtError
from spmd.pjrt.records import COUNT, give_record, is_record, take_record
from spmd.pjrt.structs import KINDS, struct

T = TypeVar("T", bound="Handle")

_objects: dict[int, Handle] = {}


class Handle:
    """An object that a frontend has a handle of; `record` is what the handle points to."""

    KIND: ClassVar[str]

    def __init__(self, address: int = 0) -> None:
        """Take a free record, or the one at `address`; PjrtError where there is none."""
        self.address: int = address or take_record()
        if not self.address:
            raise PjrtError(Code.RESOURCE_EXHAUSTED, f"there are {COUNT:,} live objects, and no more can be made")
        self.record = struct(f"{self.KIND}Record").from_address(self.address)
        self.record.kind = number_of_kind(self.KIND)
        self._kept: list[Any] = []
        _objects[self.address] = self

    @classmethod
    def of_record(cls, address: int) -> Handle | None:
        """Return the object of a record that machine code has made; None where there is none of this kind."""
        return None

    def forget(self) -> None:
        """Leave the record to machine code: this object does not stand for it any more."""
        del _objects[self.address]
        self.record = type(self.record)()  # an object that outlives its handle writes to no other's record

    def release(self) -> None:
        """Give the record back; nothing happens the second time."""
        if _objects.get(self.address) is self:
            self.forget()
            give_record(self.address)

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


def number_of_kind(name: str) -> int:
    """Return what records of handles of this kind have in their field `kind`."""
    return KINDS.index(name) + 1


def find(kind: type[T], address: int) -> T:
    """Return the object that a handle stands for; PjrtError where it is none of this kind."""
    found = find_or_none(kind, address)
    if found is None:
        raise PjrtError(Code.INVALID_ARGUMENT, f"{address:#x} is no handle of a {kind.KIND.lower()}")
    return found


def find_or_none(kind: type[T], address: int) -> T | None:
    """Return the object that a handle stands for; None where it is none of this kind."""
    found = _objects.get(address)
    if found is None and is_record(address):
        found = kind.of_record(address)
    return found if isinstance(found, kind) else None
