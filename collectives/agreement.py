"""Agreement of a group on facts, compared by digest and exchanged in full only where digests differ.

Digests travel like the checks of collectives (``collectives.mpi.check``), so that a process in an agreement and one in
a collective detect each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from collectives.states import ranks_text, states_text

#: Limits on the differing facts that are printed, and on the characters of each.
_MOST_FACTS = 8
_MOST_CHARACTERS = 160
_ABSENT = "(nothing)"


@dataclass(frozen=True)
class Agreement:
    """What a process expects the group to agree on.

    ``what`` describes the process's step; ``digest`` covers everything that is compared; ``facts`` returns it by name,
    as text of one or more lines. ``advice`` says what to do if the difference is intended.
    """

    what: str
    digest: bytes
    facts: Callable[[], Mapping[str, str]]
    advice: str = ""


@dataclass(frozen=True)
class ProcessStep:
    """One process's step and facts, as sent to the others."""

    what: str
    facts: Mapping[str, str]


def difference_text(members: Sequence[int], sides: Sequence[ProcessStep], advice: str = "") -> str:
    """Return the text of the differences between the processes ``members``.

    Lists each process's step, then each differing fact with its first differing line.
    """
    lines = ["processes differ in what they must have in common:"]
    lines.append(states_text({rank: side.what for rank, side in zip(members, sides, strict=True)}))
    names = list(dict.fromkeys(name for side in sides for name in side.facts))
    different = [name for name in names if len({side.facts.get(name) for side in sides}) > 1]
    for name in different[:_MOST_FACTS]:
        number, differing = _first_difference([side.facts.get(name, _ABSENT) for side in sides])
        line = f", line {number}" if any("\n" in side.facts.get(name, "") for side in sides) else ""
        ranks: dict[str, list[int]] = {}
        for rank, text in zip(members, differing, strict=True):
            ranks.setdefault(text, []).append(rank)
        lines.append(f"  {name}{line}:")
        lines += [f"    {ranks_text(same)}: {text}" for text, same in ranks.items()]
    if len(different) > _MOST_FACTS:
        lines.append(f"  and {len(different) - _MOST_FACTS} more")
    return "\n".join([*lines, *([advice] if advice else [])])


def _first_difference(texts: Sequence[str]) -> tuple[int, list[str]]:
    """Return the number of the first line that differs, and that line of each text, shortened."""
    rows = zip_longest(*[text.split("\n") for text in texts], fillvalue=_ABSENT)
    number, row = next((number, row) for number, row in enumerate(rows, 1) if len(set(row)) > 1)
    return number, [_shortened(text.strip()) for text in row]


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."
