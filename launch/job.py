"""Running one job: signals, messages, exit status."""

import contextlib
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from collectives import endings, failure
from collectives.failure import ELASTIC_VARIABLE, REPORTS_VARIABLE
from collectives.processes import ends_with_parent, running_children, start_of
from collectives.record import records
from collectives.shared_memory import FOLDER
from collectives.system import IS_LINUX
from launch import rank, recording, remote
from launch.banners import BannerFilter
from launch.beginning import LOOK_SECONDS, MOST_STARTS, Beginning
from launch.connection_filter import ConnectionFilter
from launch.folders import job_folder
from launch.hydra_banners import HydraBannerFilter
from launch.lingering import SURE_SECONDS, Lingering
from launch.listeners import Listeners
from launch.mpi_start import MpiStart
from launch.mpirun import LOOPBACK_ALONE, RANK_PORTS, SESSION_VARIABLE, SESSIONS_VARIABLE, WITHOUT_NETWORK, Kind
from launch.report_filter import ReportFilter
from launch.silence import SilentHosts
from launch.stopped import StoppedRanks, UnneededRanks
from launch.streams import PATIENCE_SECONDS, Stream, say
from spmd.runtime.requests import RunningJob

FORWARDED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"))
ENDING = frozenset(FORWARDED[:3])
#: Polling interval and its duration, in seconds, while the launcher opens its listening sockets.
_FIRST_LOOK_SECONDS, _FIRST_SECONDS = 0.02, 2.0
SHARED_MEMORY = Path(FOLDER)
SHARED_VARIABLE = "OMPI_MCA_btl_sm_backing_directory"


@dataclass(frozen=True)
class Patience:
    """Timeouts of a job, in seconds.

    `look` is the polling interval, `ending` the limit for the job to end after one of its ranks has failed, `signal`
    that after each signal, and `lingering` that of the launcher after its last rank.
    """

    look: float = LOOK_SECONDS
    ending: float = 10.0
    signal: float = PATIENCE_SECONDS
    lingering: float = SURE_SECONDS


@dataclass(frozen=True)
class Growth:
    """Limits of an elastic job.

    `ranks` is the initial and `most` the maximum number of ranks (0: none can join), `host` the only host that ranks
    may join on, if any. Ranks that are silent or stopped for `patience` seconds are killed (0: never).
    """

    ranks: int
    most: int
    host: str
    patience: float

    def watchers(self, launcher: int, reports: Path) -> "Sequence[RankWatcher]":
        """Return the watchers of the ranks while the process `launcher` runs; ranks write reports to the folder
        `reports`.
        """
        watchers: list[RankWatcher] = []
        if self.host:  # ranks of other hosts do not report that MPI is initialized
            watchers.append(UnneededRanks(launcher, reports, PATIENCE_SECONDS))
        if self.patience:
            watchers.append(StoppedRanks(launcher, self.patience, spare_all=True))
            watchers.append(SilentHosts(launcher, reports, self.patience / 2, remote.is_here))
        return watchers


class RankWatcher(Protocol):
    """Checks the ranks of a job; polled by the launching process."""

    def look(self) -> list[str]:
        """Check once; return the messages for the user."""


@dataclass(frozen=True)
class JobStart:
    """The ``command`` of a launcher of some ``kind``, and the variables added to its environment.

    All of its ranks may be on ``one_machine``. A job with ``growth`` is elastic, and can be found by other commands. If
    the number of ``ranks`` is given, they are watched until MPI is initialized.
    """

    command: Sequence[str]
    added_environment: Mapping[str, str]
    kind: Kind = "openmpi"
    one_machine: bool = True
    growth: Growth | None = None
    ranks: int = 0


def run(start: JobStart, *, again: Callable[[], JobStart | str] | None = None, patience: Patience = Patience()) -> int:
    """Run a launcher, and return the exit status.

    The status is that of the first rank that failed, or 128 + N after signal N. Signals to this process are forwarded
    to the job. The message of a failed rank is printed last on stderr. `again` returns what a restart starts, or why
    nothing can be; by default the same.
    """
    for starts in range(1, MOST_STARTS + 1):
        status = _run_once(start, starts, patience)
        if status is not None:
            return status
        found = start if again is None else again()
        if isinstance(found, str):
            say(f"spmd launch: {found}")
            return failure.EXIT_FAILURE
        start = found
    return failure.EXIT_FAILURE


def _run_once(start: JobStart, starts: int, patience: Patience) -> int | None:
    """Return the exit status; None if the job, after `starts` starts, is to be started again."""
    kind, growth, one_machine, ranks = start.kind, start.growth, start.one_machine, start.ranks
    grows = growth is not None and growth.most > 0
    with job_folder(Path(tempfile.gettempdir())) as reports, _of_this_machine(one_machine, grows) as local:
        if growth is not None:
            RunningJob(os.getpid(), growth.most, growth.host, reports).leave_note()
        recorded = os.environ.get(records.RECORDS_VARIABLE, str(records.folder_of_launcher()))
        environment = {
            **_session(kind, reports),
            **local,
            **os.environ,
            **_home(reports),
            records.RECORDS_VARIABLE: recorded,
            **start.added_environment,
            REPORTS_VARIABLE: str(reports),
        }
        written = Path(recorded) if recorded else None
        recording.LaunchedJob(os.getpid(), reports, ranks, written).leave_note()
        messages, writing = os.pipe()
        printed, printing = os.pipe()
        try:
            # The job inherits the reading end: if this process dies, Open MPI's launcher would otherwise get a broken
            # pipe at its first output, and exit without ending the ranks.
            process = subprocess.Popen(
                start.command,
                env=environment,
                stdout=printing,
                stderr=writing,
                pass_fds=(messages, printed),
                preexec_fn=ends_with_parent(),
            )
        except OSError as error:
            say(f"spmd launch: {start.command[0]}: {error.strerror}")
            return 126
        finally:
            os.close(writing)
            os.close(printing)
        beginning = None
        if growth is not None:
            beginning = Beginning(process.pid, growth.ranks, reports, is_spread=not one_machine)
        watchers: list[RankWatcher] = [*growth.watchers(process.pid, reports)] if growth is not None else []
        if ranks and one_machine and growth is None:
            watchers.append(MpiStart(ranks, reports, environment))
        lingering = Lingering(process.pid, patience.lingering) if kind == "openmpi" and one_machine else None
        ports = RANK_PORTS if LOOPBACK_ALONE.items() <= environment.items() else None
        listeners = Listeners(process.pid, proxies=kind == "hydra", rank_ports=ports) if one_machine else None
        banners = [HydraBannerFilter()] if kind == "hydra" else []
        output = Stream(printed, sys.stdout, *banners)
        job = _Job(process, messages, output, reports, beginning, watchers, lingering, listeners, written, patience)
        return job.finish(starts, elastic=ELASTIC_VARIABLE in start.added_environment, one_machine=one_machine)


def _home(folder: Path) -> dict[str, str]:
    """Return a HOME if there is none, from the user database or else `folder`: Open MPI needs one."""
    if os.environ.get("HOME"):
        return {}
    try:
        return {"HOME": pwd.getpwuid(os.getuid()).pw_dir or str(folder)}
    except KeyError:
        return {"HOME": str(folder)}


def _session(kind: Kind, folder: Path) -> dict[str, str]:
    """Return the variable that puts the session folder of Open MPI's launcher into the job's own, which is removed.

    In the system's temporary folder its name is the launcher's process id. A folder left by a killed launcher prevents
    the next launcher with that id from starting: "The PMIx server's listener thread failed to start".
    """
    return {SESSION_VARIABLE: str(folder)} if kind == "openmpi" and SESSIONS_VARIABLE not in os.environ else {}


@contextlib.contextmanager
def _of_this_machine(alone: bool, grows: bool) -> Iterator[dict[str, str]]:
    """Yield variables for a job on this machine only, unless the user has set them.

    Its ranks do not listen on the network; if the job can grow, they listen on the loopback interface. Open MPI's
    shared memory files get a folder of the job, which is removed with what killed ranks leave there.
    """
    if not alone:
        yield {}
        return
    network = LOOPBACK_ALONE if grows else WITHOUT_NETWORK
    if not (IS_LINUX and SHARED_MEMORY.is_dir()) or SHARED_VARIABLE in os.environ:
        yield network
        return
    with job_folder(SHARED_MEMORY) as folder:
        yield {SHARED_VARIABLE: str(folder), **network}


class _Job:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        messages: int,
        printed: Stream,
        reports: Path,
        beginning: Beginning | None,
        watchers: Sequence[RankWatcher],
        lingering: Lingering | None,
        listeners: Listeners | None,
        recorded: Path | None,
        patience: Patience,
    ) -> None:
        self._process = process
        self._patience = patience
        self._recorded = recorded
        self._reports = reports
        self._beginning = beginning
        self._watchers = watchers
        self._lingering = lingering
        self._listeners = listeners
        self._ended_by: int | None = None
        #: The rank that has ended while the others wait for it in MPI initialization.
        self._missing: int | None = None
        #: The children of the launcher of an elastic job, with their start times.
        self._children: dict[int, str] = {}
        #: When a rank was first found to have failed.
        self._failed: float | None = None
        #: Ranks whose end a hung launcher has not reported.
        self._unreported: set[int] = set()
        self._filter = BannerFilter()
        self._remote_reports = ReportFilter(reports)
        self._connections = ConnectionFilter()
        self._streams = [Stream(messages, sys.stderr, self._remote_reports, self._connections, self._filter), printed]

    def finish(self, starts: int, *, elastic: bool, one_machine: bool) -> int | None:
        """Wait for the job, and report why it failed, if it did; return the exit status.

        None if the job, after `starts` starts, may be started again.
        """
        previous = {number: signal.signal(number, self._on_signal) for number in FORWARDED}
        try:
            status = self._wait(elastic)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        crashed = elastic and self._has_crashed(status)
        if crashed:
            self._kill_orphans()
        for stream in self._streams:
            stream.finish()
        self._remote_reports.close()
        if crashed and endings.programs_ended(self._reports) and not any(self._reports.glob("rank-*.txt")):
            return self._after_losses(0)  # the ranks' programs had ended
        ending = rank.first_ending(self._reports)
        message = self._last_message(ending)
        if status == 0 and self._ended_by is None:
            if elastic and endings.all_were_lost(self._reports):
                message, status = message or "spmd launch: all ranks were lost", failure.EXIT_FAILURE
            elif not (elastic or one_machine) and (message or endings.ranks_without_ending(self._reports)):
                # When a host is lost, Open MPI's launcher ends all ranks, and exits with status 0.
                message, status = message or "spmd launch: a host was lost; all ranks were ended", failure.EXIT_FAILURE
        status = self._final_status(status, ending)
        if (reason := self._reason_to_start_again(starts, status, crashed=crashed)) is not None:
            say(f"spmd launch: {reason}; the job is started again")
            return None
        if message:
            say(message)
        return self._after_losses(status)

    def _has_crashed(self, status: int) -> bool:
        """Return whether a signal that was not sent from here ended the launcher.

        PRRTE 3.0 corrupts its memory (pmix_server_dyn.c) when a rank is lost and it starts another in its place.
        """
        return status < 0 and self._ended_by is None and self._missing is None and self._failed is None

    def _kill_orphans(self) -> None:
        """Kill the ranks that a crashed launcher has left: stopped ranks do not react to its end."""
        for process, started in self._children.items():
            if started and start_of(process) == started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def _reason_to_start_again(self, starts: int, status: int, *, crashed: bool) -> str | None:
        """Return why an elastic job that has failed may be started again; None if it may not."""
        if not status or self._ended_by is not None or self._beginning is None:
            return None
        if self._beginning.may_start_again(starts, self._missing):
            return "ranks were lost before MPI was initialized on all"
        return "MPI's launcher has crashed" if crashed and starts < MOST_STARTS else None

    def _after_losses(self, status: int) -> int:
        """Return the status, after reporting output of the job that could not be written."""
        if status or self._ended_by is not None:
            return status
        if any(stream.is_deserted for stream in self._streams):
            return 128 + signal.SIGPIPE
        losses = [f"spmd launch: {stream.loss}" for stream in self._streams if stream.loss]
        if losses:
            say("\n".join(losses))
        return failure.EXIT_FAILURE if losses else 0

    def _final_status(self, status: int, ending: rank.Ending | None) -> int:
        if self._ended_by is not None:
            return 128 + self._ended_by
        if self._missing is not None or (self._failed is not None and status == -signal.SIGKILL):
            return failure.EXIT_FAILURE
        if ending is not None and (status or rank.were_ended(self._reports)):
            return ending.job_status
        return status if status >= 0 else 128 - status

    def _wait(self, elastic: bool) -> int:
        """Wait for the launcher, and return its status.

        After a signal or a missing rank it is terminated, with increasing severity; after a rank's failure only when
        the grace period has passed, since a host may be unreachable.
        """
        insistence = [signal.SIGTERM, signal.SIGTERM, signal.SIGKILL]
        due: float | None = None
        began = now = time.monotonic()
        while True:
            try:
                # A wait without a timeout would not be interrupted by the signal.
                soon = self._listeners is not None and now - began < _FIRST_SECONDS
                return self._process.wait(_FIRST_LOOK_SECONDS if soon else self._patience.look)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if self._listeners is not None:
                    self._listeners.keep_local()
                if self._beginning is not None:
                    self._children = {int(c): start_of(int(c)) for c in running_children(self._process.pid) or ()}
                for text in [text for watcher in self._watchers for text in watcher.look()]:
                    say(f"spmd launch: {text}")
                if self._beginning is not None and self._missing is None:
                    self._missing = self._beginning.missing()
                talks = not all(stream.is_quiet for stream in self._streams)
                if self._lingering is not None and self._lingering.lingers() and not talks:
                    return self._end_lingering(elastic)
                if self._ended_by is None and any(stream.is_deserted for stream in self._streams):
                    self._ended_by, due = signal.SIGPIPE, now
                if due is None and (self._missing is not None or self._has_failed_long_ago(now)):
                    due = now
                elif due is None and self._ended_by is not None:
                    due = now + self._patience.signal
                if due is not None and now >= due:
                    self._insist(insistence.pop(0) if len(insistence) > 1 else insistence[0])
                    due = now + self._patience.signal

    def _has_failed_long_ago(self, now: float) -> bool:
        """Return whether a rank wrote a failure report, and the grace period has passed since."""
        if self._failed is None and any(self._reports.glob("rank-*.txt")):
            self._failed = now
        return self._failed is not None and now - self._failed > self._patience.ending

    def _insist(self, number: signal.Signals) -> None:
        """Send a signal to the launcher; with SIGKILL also to all processes that it has started here."""
        started = (running_children(self._process.pid) or []) if number == signal.SIGKILL else []
        self._process.send_signal(number)
        for child in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), number)

    def _end_lingering(self, elastic: bool) -> int:
        """Kill a launcher that has outlived its ranks; return its status, not zero if ranks have failed."""
        assert self._lingering is not None
        self._process.kill()
        self._process.wait()
        self._unreported = set() if elastic else endings.ranks_without_ending(self._reports)
        return failure.EXIT_FAILURE if self._unreported or any(self._reports.glob("rank-*.txt")) else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number in ENDING:
            self._ended_by = self._ended_by or number
        if number == signal.SIGINT and _in_foreground():
            return  # Ctrl-C goes to the whole foreground process group, so the launcher has received it.
        self._process.send_signal(number)

    def _last_message(self, ending: rank.Ending | None) -> str:
        """Return why the job ended early: the first failed rank's report, or else what the launcher printed."""
        if self._ended_by is not None:
            return f"spmd launch: ended by {signal.Signals(self._ended_by).name}"
        reports = sorted(self._reports.glob("rank-*.txt"), key=lambda path: path.stat().st_mtime_ns)
        if not reports and self._missing is not None:
            return f"spmd launch: rank {self._missing} ended before MPI had begun on all ranks; all others were ended"
        if not reports:
            known = self._filter.cause or ("" if ending is None else str(ending)) or self._connections.cause
            if known or not self._unreported:
                return known
            ranks = ", ".join(map(str, sorted(self._unreported)))
            return f"spmd launch: rank {ranks} ended without finalizing MPI; the launcher hung and did not report how"
        header, _, reason = reports[0].read_text().rstrip("\n").partition("\n")
        same: list[int] = []
        other: list[int] = []
        for path in reports[1:]:
            alike = path.read_text().rstrip("\n").partition("\n")[2] == reason
            (same if alike else other).append(int(path.stem.removeprefix("rank-")))
        lines = [f"(rank {', '.join(map(str, sorted(same)))} failed in the same way)"] if same else []
        lines += [f"(rank {', '.join(map(str, sorted(other)))} failed too, after this)"] if other else []
        if self._recorded is not None and any(self._recorded.glob(f"{records.PREFIX}*")):
            lines.append(f"({records.advice(self._recorded)})")
        return "\n".join([*lines, header, *([reason] if reason else [])])


def _in_foreground() -> bool:
    try:
        return sys.stdin is not None and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
