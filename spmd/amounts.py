"""Large numbers for people."""

from __future__ import annotations


def amount(number: float, unit: str = "B") -> str:
    """`number` of `unit` with three digits and an SI prefix: `18 B`, `1.5 MB`."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}"
