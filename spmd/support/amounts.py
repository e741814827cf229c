"""Human-readable large numbers."""

from __future__ import annotations

import re

#: From here on three digits round up to 1,000 of a unit.
_THOUSAND = 999.5


def amount(number: float, unit: str = "B") -> str:
    """`number` of `unit` with three digits and an SI prefix: `18 B`, `1.5 MB`."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= _THOUSAND * size / 1e3:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}"


_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,6})?) ?([kKMGTP]?)(i?)B?", re.ASCII)


def read_amount(text: str) -> int | None:
    """The number of bytes in a text such as `500000`, `4GB` or `1.5 GiB`; None for any other text."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    return int(float(found[1]) * (1024 if found[3] else 1000) ** " KMGTP".index(found[2].upper() or " "))
