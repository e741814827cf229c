"""The table of values by name.

A program names about as many values as it has ops, and nearly all names are numbered: `%12`, `%cst_3`, `%arg0`,
`%v7a`. Names that differ only in their number are a family, whose values are a list by number, so that most names
need not be stored.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

from spmd.ir import Value

#: The text before the first number, that number, the text after it.
_NUMBERED = re.compile(r"(%\D*+)(0|[1-9]\d{0,8}+)(\D.*)?", re.ASCII)
#: How many numbers may be missing between the last number of a family and the next.
_GAP = 16
#: How many names are cached.
_RECENT = 256


class _Family:
    """Values by number, from the first number that was used."""

    __slots__ = ("first", "values")

    def __init__(self, first: int) -> None:
        self.first = first
        self.values: list[Value | None] = []

    def get(self, number: int) -> Value | None:
        index = number - self.first
        return self.values[index] if 0 <= index < len(self.values) else None

    def set(self, number: int, value: Value) -> bool:
        """Store `value` and return True, if the number is close to the others."""
        values = self.values
        gap = number - self.first - len(values)
        if gap > _GAP + len(values) or number < self.first:
            return False
        if gap < 0:
            values[gap] = value
        else:
            values += [None] * gap
            values.append(value)
        return True


class Scope:
    """Names that are visible in a region: its own, and those of the regions around it."""

    __slots__ = ("_families", "_others", "_outer", "recent")

    def __init__(self, outer: Scope | None = None) -> None:
        self._outer = outer
        self._families: dict[Hashable, _Family] = {}
        self._others: dict[str, Value] = {}
        #: Cache of values by name: most are used again soon.
        self.recent: dict[str, Value] = {}

    def get(self, name: str) -> Value | None:
        """Return the value named `name`, its `%` included; None when there is none."""
        value = self.recent.get(name)
        if value is None:
            value = self._find(name, *_split(name))
            if value is not None and len(self.recent) <= _RECENT:
                self.recent[name] = value
        return value

    def _find(self, name: str, family_name: Hashable, number: int) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            family = scope._families.get(family_name)
            value = family.get(number) if family is not None else None
            if value is None and scope._others:
                value = scope._others.get(name)
            if value is not None:
                return value
            scope = scope._outer
        return None

    def add(self, name: str, value: Value) -> bool:
        """Name `value`; False when a visible value has the name."""
        recent = self.recent
        if name in recent:
            return False
        family_name, number = _split(name)
        family = self._families.get(family_name)
        if family is not None and number == family.first + len(family.values) and not (self._outer or self._others):
            family.values.append(value)  # the usual case: next of its family, and no other scope to search
        elif self._find(name, family_name, number) is not None:
            return False
        else:
            if family is None and number >= 0:
                family = self._families[family_name] = _Family(number)
            if family is None or not family.set(number, value):
                self._others[name] = value
        if len(recent) > _RECENT:
            recent.clear()
        recent[name] = value
        return True


def _split(name: str) -> tuple[Hashable, int]:
    """Return the name's family and its number there; -1 for a name of no family."""
    digits = name[1:]
    if digits.isdecimal() and len(digits) < 10 and (digits[0] != "0" or digits == "0"):
        return "%", int(digits)
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return name, -1
    before, number, behind = match.groups()
    return (before, behind), int(number)
