"""Failure reports of ranks that cannot see the launcher's folder, taken out of what the job writes to stderr."""

from pathlib import Path

from collectives.failure import REPORT_BEGINS, REPORT_ENDS
from spmd.runtime import silence

_BEGINS, _ENDS = REPORT_BEGINS.encode(), REPORT_ENDS.encode()


class ReportFilter:
    """Passes a byte stream on, and puts the reports in it into the folder where ranks of this host leave theirs."""

    #: Seconds without further bytes after which what is held is to be flushed.
    patience = 0.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes in; return those to be passed on now."""
        self._held += data
        passed = b""
        while (start := self._held.find(_BEGINS)) >= 0:
            passed, self._held = passed + self._held[:start], self._held[start:]
            end = self._held.find(_ENDS)
            if end < 0:
                return passed
            self._file(self._held[len(_BEGINS) : end])
            self._held = self._held[end + len(_ENDS) :]
        kept = next((n for n in range(len(_BEGINS) - 1, 0, -1) if self._held.endswith(_BEGINS[:n])), 0)
        passed, self._held = passed + self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return passed

    def flush(self) -> bytes:
        """Return what may not belong to a report: nothing more came for a while. A report waits for its end."""
        if self._held.startswith(_BEGINS):
            return b""
        passed, self._held = self._held, b""
        return passed

    def close(self) -> None:
        """Nothing more will come: a report that has begun is all that there is of it."""
        if self._held.startswith(_BEGINS):
            self._file(self._held[len(_BEGINS) :])

    def _file(self, report: bytes) -> None:
        name, _, text = report.partition(b"\n")
        if name.isdigit():
            (self._folder / f"rank-{int(name)}.txt").write_bytes(text)
        elif silence.NAME.fullmatch(name.decode(errors="replace")):
            (self._folder / name.decode()).write_bytes(text)
