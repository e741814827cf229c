"""Reports to the launcher that a rank receives no messages from any rank of another host.

Ranks cannot distinguish a failed host from a cut link, and with a cut link each side finds the other silent. The
launcher decides which host's ranks continue (`launch.silence`). A report is a file in the launcher's folder of reports,
or, from a rank that cannot access the folder, text on standard error (`launch.report_filter`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from collectives.failure import REPORT_BEGINS, REPORT_ENDS, REPORTS_VARIABLE

#: Timeout in seconds after which a silent or stopped rank of an elastic job is killed (0: never).
PATIENCE_VARIABLE = "SPMD_ELASTIC_PATIENCE"
#: Names of reports.
NAME = re.compile(r"silent-\d+-\d+", re.ASCII)


@dataclass(frozen=True)
class Silence:
    """A report that rank `reporter`, on host `here`, receives nothing from rank `silent` nor others on host `there`.

    `process` is the silent rank's, which started at `started` (in ticks of that host). Hosts are named as by the
    launcher.
    """

    reporter: int
    here: str
    silent: int
    there: str
    process: int
    started: str

    @property
    def name(self) -> str:
        return f"silent-{self.reporter}-{self.silent}"

    def report(self) -> None:
        """Send the report to the launcher, if there is one."""
        text, folder = json.dumps(asdict(self)), os.environ.get(REPORTS_VARIABLE)
        if not folder:
            return
        with contextlib.suppress(OSError):
            if Path(folder).is_dir():
                unfinished = Path(folder) / f".{self.name}"
                unfinished.write_text(text)
                unfinished.rename(Path(folder) / self.name)
            else:
                sys.stderr.write(f"{REPORT_BEGINS}{self.name}\n{text}{REPORT_ENDS}")
                sys.stderr.flush()


def take_reports(folder: Path) -> list[Silence]:
    """Return the reports that arrived in `folder` since the last call, oldest first."""
    files = [path for path in folder.glob("silent-*") if NAME.fullmatch(path.name)]
    reports = []
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
        with contextlib.suppress(ValueError, TypeError):  # not a report
            reports.append(Silence(**json.loads(path.read_text())))
        path.unlink(missing_ok=True)
    return reports
