"""Texts on several processes: the state of each, and mismatched calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def short_list(items: Sequence[object], most: int = 16) -> str:
    """Return ``[0, 1, 2]``, cut off after ``most`` items."""
    rest = f", ... {len(items)} in all" if len(items) > most else ""
    return f"[{', '.join(map(str, items[:most]))}{rest}]"


def ranges_text(numbers: Sequence[int]) -> str:
    """Return ``3`` or ``0-3, 7``."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ``process 3`` or ``processes 0-3, 7``."""
    return f"process{'es' if len(ranks) > 1 else ''} {ranges_text(ranks)}"


def states_text(states: Mapping[int, str]) -> str:
    """Return one line per distinct state, with its processes, in the order of their first process."""
    ranks: dict[str, list[int]] = {}
    for rank, state in sorted(states.items()):
        ranks.setdefault(state, []).append(rank)
    return "\n".join(f"  {ranks_text(same)}: {state}" for state, same in ranks.items())


def mismatch_text(calls: Mapping[int, str]) -> str:
    """Return the text for processes of one group that call different collectives."""
    return "processes of one group call different collectives:\n" + states_text(calls)
