"""What the analysis of a program reports: what is wrong or suspected, where, and by which path of reasons."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from enum import Enum

from spmd.errors import Diagnostic, Location
from spmd.ir import Op


class Kind(Enum):
    """What is wrong. The value is the name by which a line silences it: `spmd: ignore[same-random]`."""

    DIVERGENT_COLLECTIVE = "divergent-collective"  #: processes of a group come to it, or not, or in another order
    GROUPS = "process-groups"  #: groups that the grid does not have
    REPEATED_SUM = "repeated-sum"  #: a sum of what is the same on all processes
    VARYING_RESULT = "varying-result"  #: a result that callers hold for the same
    SAME_RANDOM = "same-random"  #: the same random numbers where data differ
    DIFFERENT_RANDOM = "different-random"  #: different random numbers where data are the same
    CHANNEL = "channel"  #: a channel without a sender or receiver, or a wait for one


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong at `op`, or suspected where the analysis cannot be `certain`."""

    kind: Kind
    certain: bool
    diagnostic: Diagnostic
    op: Op

    def __str__(self) -> str:
        return str(self.diagnostic)


_IGNORED = re.compile(r"(?://|#)\s*spmd:\s*ignore(?:\[([\w, -]*)\])?")


def is_ignored(kind: Kind, location: Location) -> bool:
    """Return whether the source line at `location` silences findings of `kind`, by a comment `spmd: ignore[KIND,
    ...]`."""
    start = location.source.text.rfind("\n", 0, location.offset) + 1
    end = location.source.text.find("\n", location.offset)
    line = location.source.text[start : end if end >= 0 else None]
    match = _IGNORED.search(line) or _IGNORED.search(linecache.getline(location.file, location.line))
    if match is None:
        return False
    return match.group(1) is None or kind.value in re.split(r"[,\s]+", match.group(1))
