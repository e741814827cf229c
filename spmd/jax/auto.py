"""What stands for a layout that is searched for."""

from __future__ import annotations


class Auto:
    """The type of `AUTO`."""

    def __repr__(self) -> str:
        return "AUTO"


#: In place of a leaf's sharding: it is searched for.
AUTO = Auto()


def is_auto(part: object) -> bool:
    """Whether `part` leaves a layout to the search: AUTO, or "auto"."""
    return part is AUTO or (isinstance(part, str) and part == "auto")
