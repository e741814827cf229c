"""Extraction of the failure reports of ranks that cannot see the launcher's folder, from the job's stderr."""

from pathlib import Path

from collectives.failure import REPORT_BEGINS, REPORT_ENDS
from launch.streams import Filter
from spmd.runtime import silence

_BEGINS, _ENDS = REPORT_BEGINS.encode(), REPORT_ENDS.encode()


class ReportFilter(Filter):
    """Forwards a byte stream, and writes the reports in it to the folder of reports."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def feed(self, data: bytes) -> bytes:
        self._pending += data
        passed = b""
        while (start := self._pending.find(_BEGINS)) >= 0:
            passed, self._pending = passed + self._pending[:start], self._pending[start:]
            end = self._pending.find(_ENDS)
            if end < 0:
                return passed
            self._file(self._pending[len(_BEGINS) : end])
            self._pending = self._pending[end + len(_ENDS) :]
        overlap = next((n for n in range(len(_BEGINS) - 1, 0, -1) if self._pending.endswith(_BEGINS[:n])), 0)
        passed, self._pending = (
            passed + self._pending[: len(self._pending) - overlap],
            self._pending[len(self._pending) - overlap :],
        )
        return passed

    def flush(self) -> bytes:
        """Return held bytes that are not part of a report; an incomplete report stays held."""
        return b"" if self._pending.startswith(_BEGINS) else super().flush()

    def close(self) -> None:
        """Write a report that is still incomplete at the end of the stream."""
        if self._pending.startswith(_BEGINS):
            self._file(self._pending[len(_BEGINS) :])

    def _file(self, report: bytes) -> None:
        name, _, text = report.partition(b"\n")
        if name.isdigit():
            (self._folder / f"rank-{int(name)}.txt").write_bytes(text)
        elif silence.NAME.fullmatch(name.decode(errors="replace")):
            (self._folder / name.decode()).write_bytes(text)
