"""Caches decoded entries across files, since programs repeat them.

A decoded value depends only on the entry's bytes and on the strings, attributes and types that its references resolve
to. So values are cached by the bytes and then by the resolved references. Values are immutable, so that files can
share them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from spmd.artifacts.encodings.fields import FieldValue

#: The kinds of references: types, attributes and strings of the file.
TYPE, ATTRIBUTE, STRING = range(3)
Reference = tuple[int, int]
_MOST = 1 << 13


class ReferenceTable(Protocol):
    """Resolves references in a file; None for numbers out of range."""

    def referred(self, what: int, index: int) -> FieldValue: ...


class Memo:
    """The cache of one kind of entries."""

    def __init__(self) -> None:
        #: By an entry's bytes: its references in reading order, and its values by the identities of the resolved
        #: references, which are stored with them so that identities stay unique.
        self._entries: dict[
            Hashable, tuple[tuple[Reference, ...], dict[Hashable, tuple[FieldValue, list[FieldValue]]]]
        ] = {}
        self._count = 0

    def recall(self, data: Hashable, file: ReferenceTable) -> FieldValue:
        """Return the value of entry `data` in a file; None if it is not cached."""
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

    def keep(self, data: Hashable, references: list[Reference], resolved: list[FieldValue], value: FieldValue) -> None:
        """Cache the value that `data` was decoded to, by its `references` and the `resolved` values."""
        if self._count >= _MOST:
            self._entries.clear()
            self._count = 0
        entry = self._entries.get(data)
        if entry is None:
            entry = self._entries[data] = tuple(references), {}
        elif list(entry[0]) != references:
            return
        entry[1][tuple([thing if type(thing) is bytes else id(thing) for thing in resolved])] = value, resolved
        self._count += 1
