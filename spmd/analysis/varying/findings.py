"""What the analysis reports: the kind of fault, where it is, and why."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from enum import Enum

from spmd.errors import Diagnostic, Location
from spmd.ir import Op


class FindingKind(Enum):
    """The kind of fault. Its value is the name by which a line suppresses it: `spmd: ignore[same-random]`."""

    DIVERGENT_COLLECTIVE = "divergent-collective"  #: processes of a group do not all execute it, or in another order
    GROUPS = "process-groups"  #: groups that do not fit the grid
    REPEATED_SUM = "repeated-sum"  #: a sum of values that are equal on all processes
    VARYING_RESULT = "varying-result"  #: a result that must be replicated, but differs
    SAME_RANDOM = "same-random"  #: the same random numbers for different data
    DIFFERENT_RANDOM = "different-random"  #: different random numbers for the same data
    CHANNEL = "channel"  #: a channel without a sender or receiver, or a wait for one


@dataclass(frozen=True)
class Finding:
    """A fault at `op`, or a suspected one if not `certain`."""

    kind: FindingKind
    certain: bool
    diagnostic: Diagnostic
    op: Op

    def __str__(self) -> str:
        return str(self.diagnostic)


_IGNORED = re.compile(r"(?://|#)\s*spmd:\s*ignore(?:\[([\w, -]*)\])?")


def is_ignored(kind: FindingKind, location: Location) -> bool:
    """Return whether the source line at `location` suppresses `kind` by a comment `spmd: ignore[KIND, ...]`."""
    start = location.source.text.rfind("\n", 0, location.offset) + 1
    end = location.source.text.find("\n", location.offset)
    line = location.source.text[start : end if end >= 0 else None]
    match = _IGNORED.search(line) or _IGNORED.search(linecache.getline(location.file, location.line))
    if match is None:
        return False
    return match.group(1) is None or kind.value in re.split(r"[,\s]+", match.group(1))
