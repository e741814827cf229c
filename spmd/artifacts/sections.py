"""The layout of an MLIR bytecode file: header and sections. Source: MLIR's bytecode format, "Sections".

Format versions: 1 adds versions of dialects, 2 sections of isolated regions, 3 the order of uses, 4 omits unknown
locations of block arguments, 5 and 6 store inherent attributes as properties.
"""

from __future__ import annotations

from dataclasses import dataclass

from spmd.artifacts.stream import Buffer, ByteReader, ByteWriter
from spmd.errors import ByteLocation, ParseError

MAGIC = b"ML\xefR"
NEWEST = 6
#: The newest version that is independent of declarations of ops: later ones write properties in declaration order, and
#: readers reject ops whose declaration has more or fewer attributes.
DURABLE = 4
DIALECT_VERSIONS, LAZY_REGIONS, USE_ORDERS, NO_UNKNOWN_LOCATIONS, PROPERTIES_APART = 1, 2, 3, 4, 5
SEGMENTS_AS_PROPERTIES = 6

STRINGS, DIALECTS, ATTRIBUTES, ATTRIBUTE_OFFSETS, IR, RESOURCES, RESOURCE_OFFSETS, VERSIONS, PROPERTIES = range(9)
SECTIONS = (
    "strings", "dialects", "attributes and types", "offsets of attributes and types", "IR", "resources",
    "offsets of resources", "dialect version", "properties",
)  # fmt: skip
_PLACES = tuple(f"section of {name}" for name in SECTIONS)
_NEEDED = (STRINGS, DIALECTS, ATTRIBUTES, ATTRIBUTE_OFFSETS, IR)
_PADDING = 0xCB
_LARGEST_ALIGNMENT = 1 << 30


@dataclass(frozen=True)
class Container:
    """A bytecode file as unread sections."""

    version: int
    producer: str
    sections: dict[int, ByteReader]

    def section(self, number: int) -> ByteReader:
        return self.sections[number]


def read_section(reader: ByteReader) -> tuple[int, ByteReader]:
    """Return the number of the next section, and a reader of its contents."""
    position = reader.position
    tag = reader.byte()
    number = tag & 0x7F
    if number >= len(SECTIONS):
        reader.fail(f"unknown section {number}", position)
    length = reader.varint()
    if tag != number:
        alignment = reader.varint()
        if alignment & (alignment - 1) or not 0 < alignment <= _LARGEST_ALIGNMENT:
            reader.fail(f"the alignment must be a power of two, got {alignment}")
        while reader.position % alignment:
            if reader.byte() != _PADDING:
                reader.fail("padding bytes must be 0xcb", reader.position - 1)
    if length > reader.left:
        reader.fail(f"the section of {SECTIONS[number]} has {length} bytes, of which {reader.left} are there", position)
    return number, reader.within(length, _PLACES[number])


def read_container(data: Buffer, file: str) -> Container:
    """Return the header and sections of `data`; raises ParseError if it is not bytecode."""
    reader = ByteReader(data, file, "header")
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise ParseError("no MLIR bytecode: it begins with ML\\xefR", ByteLocation(file, 0))
    reader.skip(len(MAGIC))
    version = reader.varint()
    if version > NEWEST:
        reader.fail(f"version {version} of the format is newer than {NEWEST}")
    head = bytes(data[reader.position : reader.position + 4096])
    if 0 not in head:
        reader.fail("the producer's name must be terminated")
    producer = head[: head.index(0)].decode("utf-8", "replace")
    reader.skip(head.index(0) + 1)
    sections: dict[int, ByteReader] = {}
    while reader.left:
        position = reader.position
        number, inside = read_section(reader)
        if number in sections:
            reader.fail(f"a second section of {SECTIONS[number]}", position)
        sections[number] = inside
    for number in _NEEDED:
        if number not in sections:
            reader.fail(f"there is no section of {SECTIONS[number]}")
    if (RESOURCES in sections) != (RESOURCE_OFFSETS in sections):
        reader.fail("resources and their offsets must both be present")
    return Container(version, producer, sections)


def read_strings(reader: ByteReader) -> list[bytes]:
    """Return the strings of the section; their lengths come first, in reverse order."""
    lengths = reader.varints(reader.count("strings"))
    if sum(lengths) != reader.left or 0 in lengths:
        reader.fail(f"the strings have {sum(lengths)} bytes with their zeros, of which {reader.left} are there")
    data, start = bytes(reader.bytes(reader.left)), 0
    strings = []
    for length in reversed(lengths):
        strings.append(data[start : start + length - 1])
        start += length
    return strings


# --- writing ---------------------------------------------------------------------------------------------------------


def write_section(writer: ByteWriter, number: int, data: bytes | bytearray) -> None:
    """Write a section without alignment."""
    writer.byte(number)
    writer.varint(len(data))
    writer.bytes(data)


def write_strings(strings: list[bytes]) -> bytearray:
    """Return the section of `strings`."""
    writer = ByteWriter()
    writer.varint(len(strings))
    for string in reversed(strings):
        writer.varint(len(string) + 1)
    writer.bytes(b"".join(string + b"\0" for string in strings))
    return writer.data
