"""Which results take the memory of which operands, or of arguments: `{ {1}: (0, {}, may-alias) }`.

Source: XLA's HloInputOutputAliasConfig and output_to_operand_aliasing.
"""

from __future__ import annotations

import re

#: A place in a tuple of results, and an operand with a place in it.
Alias = tuple[tuple[int, ...], tuple[int, tuple[int, ...]]]

_ALIAS = re.compile(r"\{([\d,\s]*)\}\s*:\s*\((\d{1,9}),\s*\{([\d,\s]*)\}")


def read_aliases(text: str) -> list[Alias]:
    """Return the aliases that `text` lists."""
    return [(_place(result), (int(operand), _place(part))) for result, operand, part in _ALIAS.findall(text)]


def _place(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number.strip())


def alias_text(alias: Alias, kind: str = "") -> str:
    """Return `{1}: (0, {})`, with `kind` behind where it is given."""
    result, (operand, part) = alias
    places = ["{" + ",".join(map(str, place)) + "}" for place in (result, part)]
    return f"{places[0]}: ({operand}, {places[1]}{f', {kind}' if kind else ''})"
