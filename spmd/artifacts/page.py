"""Source locations of a file's ops: their offsets, and their debug locations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from spmd.artifacts.stream import ByteReader
from spmd.errors import ByteLocation, Location, SpmdError
from spmd.ir.attributes import LocationAttr
from spmd.ir.traced import TracedLocation

if TYPE_CHECKING:
    from spmd.artifacts.tables import Tables


class FilePage:
    """Data shared by the locations of a file's ops; an op's token is the offset of its first byte."""

    __slots__ = ("_is_file", "_reader", "_tables")

    def __init__(self, tables: Tables, reader: ByteReader) -> None:
        self._tables = tables
        self._reader = reader
        #: Whether there is a file in which bytes can be looked up: else places are those in the producer's source.
        self._is_file = not reader.file.startswith("<")

    def location(self, token: int) -> Location:
        place = ByteLocation(self._reader.file, token, "IR")
        return place if self._is_file else TracedLocation(place, partial(self.debug_location, token))

    def debug_location(self, token: int) -> str | None:
        ir = self._reader
        op = ByteReader(ir.data, ir.file, ir.section, token, ir.end)
        op.varint()  # its name
        op.byte()  # the mask of its parts
        return self.location_text(op.varint())

    def location_text(self, number: int) -> str | None:
        """Return the inside of `loc(...)` of attribute `number`; None if it is no location, or an unknown one."""
        try:
            location = self._tables.attribute(number, self._reader)
        except (SpmdError, RecursionError):
            return None
        return location.text[4:-1] if isinstance(location, LocationAttr) and location.text != "loc(unknown)" else None

    def name_hint(self, token: int) -> str | None:
        return None
