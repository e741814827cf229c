"""What entries were decoded to before, in this file or another: programs say the same things again and again.

The meaning of an entry follows from its bytes and from what it refers to, nothing else. So a value is filed by the
bytes and, below them, by the strings, attributes and types that the numbers in them stand for in the file at hand.
Values are never changed, so files share them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from spmd.artifacts.encodings.fields import FieldValue

#: What an entry refers to: one of the file's types, attributes or strings.
TYPE, ATTRIBUTE, STRING = range(3)
Reference = tuple[int, int]
_MOST = 1 << 13


class Referred(Protocol):
    """Looks up what the file at hand has under a number; None where it has nothing."""

    def referred(self, what: int, index: int) -> FieldValue: ...


class Memo:
    """The values of one kind of entries."""

    def __init__(self) -> None:
        #: By an entry's bytes: what it refers to, in the order of reading; its values by these things' identities,
        #: each beside the things themselves, which thus keep their identities.
        self._entries: dict[
            Hashable, tuple[tuple[Reference, ...], dict[Hashable, tuple[FieldValue, list[FieldValue]]]]
        ] = {}
        self._count = 0

    def recall(self, data: Hashable, file: Referred) -> FieldValue:
        """Return the value of the entry `data` of a file; None where it is not known."""
        entry = self._entries.get(data)
        if entry is None:
            return None
        references, values = entry
        identities: list[Hashable] = []
        for what, index in references:
            thing = file.referred(what, index)
            if thing is None:
                return None
            identities.append(thing if what == STRING else id(thing))
        kept = values.get(tuple(identities))
        return None if kept is None else kept[0]

    def keep(self, data: Hashable, references: list[Reference], things: list[FieldValue], value: FieldValue) -> None:
        """File the value that `data` was decoded to, where it referred to `references`, which were `things`."""
        if self._count >= _MOST:
            self._entries.clear()
            self._count = 0
        entry = self._entries.get(data)
        if entry is None:
            entry = self._entries[data] = tuple(references), {}
        elif list(entry[0]) != references:
            return
        entry[1][tuple([thing if type(thing) is bytes else id(thing) for thing in things])] = value, things
        self._count += 1
