"""Discovery of the jobs on this machine, and requests to their ranks for flight records."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collectives.processes import start_of
from collectives.record.records import PREFIX, REQUEST, replace
from spmd.runtime.notes import notes_of_running_jobs

_NOTE = "job.json"
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class LaunchedJob:
    """A job of this machine.

    `process` is its launcher, `reports` its folder of reports, `ranks` their number, and `records` the folder of flight
    records, if enabled.
    """

    process: int
    reports: Path
    ranks: int
    records: Path | None

    def leave_note(self) -> None:
        """Write the file by which other commands find the job."""
        records = None if self.records is None else str(self.records)
        note = {"process": self.process, "started": start_of(self.process), "ranks": self.ranks, "records": records}
        replace(self.reports / _NOTE, json.dumps(note).encode())

    def request(self) -> None:
        """Request records from all ranks; the text is unique, so that each request is recognized as new."""
        replace(self.reports / REQUEST, f"spmd dump, {os.urandom(4).hex()}".encode())

    def records_on_request(self, seconds: float) -> list[str]:
        """Request records from all ranks, and return the names of the files written within `seconds`."""
        began, end = time.time(), time.monotonic() + seconds
        self.request()
        while len(written := self.written_since(began)) < self.ranks and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        return written

    def written_since(self, moment: float) -> list[str]:
        """Return the regular files that ranks have written since `moment`, in seconds since the epoch."""
        files = self.records.glob(f"{PREFIX}*") if self.records is not None else ()
        return [path.name for path in files if path.is_file() and path.stat().st_mtime >= moment - 0.01]


def running_jobs() -> Iterator[LaunchedJob]:
    """Yield this user's jobs that are running on this machine."""
    for folder, content in notes_of_running_jobs(_NOTE):
        ranks, records = content.get("ranks"), content.get("records")
        if type(ranks) is int and isinstance(records, str | None):  # otherwise a damaged note
            yield LaunchedJob(content["process"], folder, ranks, None if records is None else Path(records))
