"""Removal and evaluation of Open MPI's banners on how a job ended."""

import re

from launch.rank import Ending
from launch.streams import Filter

RULE = b"-" * 74
LONGEST_BANNER = 4096
#: The launcher writes a banner line by line, and may be descheduled in between.
BETWEEN_LINES_SECONDS = 3.0

_KILLED = re.compile(r"noticed that process rank (\d+) with PID (\d+) on node (\S+)\s+exited on\s+signal (\d+)")
_EXITED = re.compile(r"Process name: \[[^\]]*,(\d+)\]\s+Exit code:\s+(\d+)")
_IMPROPER = re.compile(r"due to process rank (\d+) with PID (\d+) on node (\S+)\s+exiting\s+improperly")
_ABORTED = re.compile(r"MPI_ABORT was invoked on rank (\d+).*Errorcode:\s+(\d+)", re.DOTALL)
_HOST_LOST = re.compile(r"Remote daemon:\s+\[[^\]]*\] on node (\S+)")
_ENDINGS = (
    "PRTE has lost communication with a remote daemon",
    "MPI_ABORT was invoked on rank",
    "has exited due to process rank",
    "detected that one or more processes exited with non-zero status",
    "noticed that process rank",
    "Primary job  terminated normally",
)


class BannerFilter(Filter):
    """Forwards a byte stream without the banners that report the end of a job.

    :attr:`cause` describes the end in one line, once such a banner was seen. Everything else passes unchanged and
    without delay, except that a line that begins like a banner's rule is held until it is complete, and a rule until
    the banner is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cause = ""
        self._at_line_start = True
        self._ends_a_banner = False

    @property
    def patience(self) -> float:
        return BETWEEN_LINES_SECONDS if self._pending.startswith(RULE) else 0.0

    def feed(self, data: bytes) -> bytes:
        if self._ends_a_banner and data:
            data = data.removeprefix(b"\n")
            self._ends_a_banner = False
        self._pending += data
        passed = b""
        while self._pending:
            start = self._candidate()
            if start < 0:
                return passed + self._pass(len(self._pending))
            passed += self._pass(start)
            end = self._end_of_banner()
            if end is None:
                if len(self._pending) <= LONGEST_BANNER:
                    return passed
                end = len(RULE)
            if self._is_ending(self._pending[:end]):
                # The newline of the closing rule may still be on its way.
                self._ends_a_banner = self._pending[end - 1 :] == b"-"
                self._pending = self._pending[end:]
            else:
                passed += self._pass(end)
        return passed

    def flush(self) -> bytes:
        return self._pass(len(self._pending))

    def _pass(self, count: int) -> bytes:
        passed, self._pending = self._pending[:count], self._pending[count:]
        if passed:
            self._at_line_start = passed.endswith((b"\n", b"\r"))
        return passed

    def _candidate(self) -> int:
        """Return the start of a line that is, or may become, a rule; -1 if there is none."""
        starts = [0] if self._at_line_start else []
        starts += [match.end() for match in re.finditer(rb"[\r\n]", self._pending)]
        for start in starts:
            line = self._pending[start : start + len(RULE)]
            if line and RULE.startswith(line):
                return start
        return -1

    def _end_of_banner(self) -> int | None:
        """Return the end of the banner at the start of the held bytes, with its closing rule; None if incomplete."""
        if len(self._pending) <= len(RULE):
            return None
        closing = self._pending.find(b"\n" + RULE, len(RULE))
        if closing < 0:
            return None
        end = closing + 1 + len(RULE)
        return end + 1 if self._pending[end : end + 1] == b"\n" else end

    def _is_ending(self, banner: bytes) -> bool:
        text = banner.decode(errors="replace")
        if not any(words in text for words in _ENDINGS):
            return False
        if killed := _KILLED.search(text):
            rank, process, node, number = killed.groups()
            self.cause = str(Ending(int(rank), int(process), node, int(number), 0))
        elif improper := _IMPROPER.search(text):
            rank, process, node = improper.groups()
            self.cause = str(Ending(int(rank), int(process), node, 0, 0))
        elif lost := _HOST_LOST.search(text):
            self.cause = f"spmd launch: host {lost[1]} does not respond; all ranks were ended"
        elif aborted := _ABORTED.search(text):
            rank, status = aborted.groups()
            self.cause = f"spmd launch: rank {rank} called MPI_Abort with status {status}; all other ranks were ended"
        elif exited := _EXITED.search(text):
            rank, status = exited.groups()
            self.cause = f"spmd launch: rank {rank} exited with status {status}; all other ranks were ended"
        return True
