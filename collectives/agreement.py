"""What the processes of a group must have in common before they go on: by digest, or in full where it differs.

The digests travel as the checks of collectives do (``collectives.mpi_check``), so that a process that is to agree and
one that is in a collective find each other out. Facts are exchanged only where digests differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from collectives.states import ranks_text, states_text

#: Facts that differ, and characters of each, that are told.
_MOST_FACTS = 8
_MOST_CHARACTERS = 160
_ABSENT = "(nothing)"


@dataclass(frozen=True)
class Agreement:
    """``what`` a process has come to, in words; a ``digest`` of all that is compared; and the facts behind it by name,
    of one line or many. ``advice`` says what to do where they are meant to differ."""

    what: str
    digest: bytes
    facts: Callable[[], Mapping[str, str]]
    advice: str = ""


@dataclass(frozen=True)
class Side:
    """What one process has come to, as the others hear of it."""

    what: str
    facts: Mapping[str, str]


def difference_text(members: Sequence[int], sides: Sequence[Side], advice: str = "") -> str:
    """Where the processes ``members`` differ: what each has come to, then the facts, each by its first line that is
    not the same everywhere."""
    lines = ["processes differ in what they must have in common:"]
    lines.append(states_text({rank: side.what for rank, side in zip(members, sides, strict=True)}))
    names = list(dict.fromkeys(name for side in sides for name in side.facts))
    different = [name for name in names if len({side.facts.get(name) for side in sides}) > 1]
    for name in different[:_MOST_FACTS]:
        number, said = _first_difference([side.facts.get(name, _ABSENT) for side in sides])
        place = f", line {number}" if any("\n" in side.facts.get(name, "") for side in sides) else ""
        ranks: dict[str, list[int]] = {}
        for rank, text in zip(members, said, strict=True):
            ranks.setdefault(text, []).append(rank)
        lines.append(f"  {name}{place}:")
        lines += [f"    {ranks_text(same)}: {text}" for text, same in ranks.items()]
    if len(different) > _MOST_FACTS:
        lines.append(f"  and {len(different) - _MOST_FACTS} more")
    return "\n".join([*lines, *([advice] if advice else [])])


def _first_difference(texts: Sequence[str]) -> tuple[int, list[str]]:
    """The number of the first line that is not the same in all, and what stands there, shortened."""
    rows = zip_longest(*[text.split("\n") for text in texts], fillvalue=_ABSENT)
    number, row = next((number, row) for number, row in enumerate(rows, 1) if len(set(row)) > 1)
    return number, [_shortened(text.strip()) for text in row]


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."
