"""The marker of a sharding that is searched for."""

from __future__ import annotations


class Auto:
    """The type of `AUTO`."""

    def __repr__(self) -> str:
        return "AUTO"


#: Replaces a leaf's sharding to have it searched for.
AUTO = Auto()


def is_auto(part: object) -> bool:
    """Return whether `part` leaves a layout to the search: AUTO, or "auto"."""
    return part is AUTO or (isinstance(part, str) and part == "auto")
