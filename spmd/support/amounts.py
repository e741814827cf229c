"""Large numbers for people."""

from __future__ import annotations

#: From here on three digits round up to 1,000 of a unit.
_THOUSAND = 999.5


def amount(number: float, unit: str = "B") -> str:
    """`number` of `unit` with three digits and an SI prefix: `18 B`, `1.5 MB`."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= _THOUSAND * size / 1e3:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}"
