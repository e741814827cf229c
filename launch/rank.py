"""The parent process of a rank under launchers that do not report how a rank ended (Hydra's).

``main`` runs the command as a child, forwards signals to it, records an abnormal end, and exits with its status. The
record is a file ``end-<rank>.txt`` in the folder of failure reports. If one of the two processes ends, the other does.
"""

import contextlib
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from collectives import endings, failure
from collectives.processes import end_with_parent
from launch import listeners

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
EXIT_NOT_FOUND = 127
_ANSWER_SECONDS = 1.0


def command(root: Path) -> list[str]:
    """Return the command that starts ``main`` from any folder; ``root`` is the folder of this package."""
    code = f"import sys; sys.path.append({str(root)!r}); from launch import rank; rank.main(sys.argv[1:])"
    return [sys.executable, "-P", "-c", code]


@dataclass(frozen=True)
class Ending:
    """An abnormal end of a rank: by a signal, or with a status (0: without MPI_Finalize)."""

    rank: int
    process: int
    node: str
    signal: int
    status: int

    @property
    def job_status(self) -> int:
        """The exit status of the job."""
        return 128 + self.signal if self.signal else self.status or failure.EXIT_FAILURE

    def __str__(self) -> str:
        if self.signal:
            how = f"was killed by signal {self.signal} ({signal_name(self.signal)})"
        elif self.status:
            how = f"exited with status {self.status}"
        else:
            how = "exited with status 0 and without ending MPI"
        where = f"rank {self.rank} (process {self.process} on {self.node})"
        return f"spmd launch: {where} {how}; all other ranks were ended"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def first_ending(folder: Path) -> Ending | None:
    """Return the recorded end in ``folder`` of the first rank that ended abnormally, or None."""
    notes = sorted(folder.glob("end-*.txt"), key=lambda path: path.stat().st_mtime_ns)
    return _read(notes[0]) if notes else None


def were_ended(folder: Path) -> bool:
    """Return whether ranks were killed before they exited normally, whatever the launcher's exit status."""
    notes = list(map(_read, folder.glob("end-*.txt")))
    left = endings.ranks_without_ending(folder) - {note.rank for note in notes}
    return bool(left) or any(note.signal or note.status for note in notes)


def _read(note: Path) -> Ending:
    rank, process, node, number, status = note.read_text().split()
    return Ending(int(rank), int(process), node, int(number), int(status))


def main(arguments: list[str]) -> None:
    """Run a command as this rank, and exit as it does."""
    os.environ[failure.KEPT_VARIABLE] = str(os.getpid())
    _close_listeners()
    child = os.fork()
    if not child:
        end_with_parent(signal.SIGKILL)
        try:
            os.execvp(arguments[0], arguments)
        except OSError as error:
            print(f"spmd launch: {arguments[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(EXIT_NOT_FOUND)
    for name in FORWARDED:
        signal.signal(getattr(signal, name), lambda number, frame: os.kill(child, number))
    _, state = os.waitpid(child, 0)
    number = os.WTERMSIG(state) if os.WIFSIGNALED(state) else 0
    status = 0 if number else os.WEXITSTATUS(state)
    rank = failure.launched_rank()
    folder = Path(os.environ.get(failure.REPORTS_VARIABLE, ""))
    if rank in endings.ranks_gone_after_mpi(folder):
        _part_from_launcher()
    if rank is not None and (number or status or rank in endings.ranks_without_ending(folder)):
        _note(folder, Ending(rank, child, os.uname().nodename, number, status))
    os._exit(128 + number if number else status)


def _part_from_launcher() -> None:
    """Send PMI's finalize command to the launcher on the rank's behalf.

    MPICH sends it when the process exits, not in MPI_Finalize; if a process exits before that, Hydra treats the rank as
    failed and kills the others (PMI-1's wire protocol, command finalize).
    """
    with contextlib.suppress(KeyError, OSError):  # no such launcher, or the command was sent
        launcher = int(os.environ["PMI_FD"])
        os.write(launcher, b"cmd=finalize\n")
        if select.select([launcher], [], [], _ANSWER_SECONDS)[0]:
            os.read(launcher, 256)


def _close_listeners() -> None:
    """Close the launcher's listening sockets, which Hydra's ranks inherit but do not need."""
    for number, _ in listeners.sockets(os.getpid()):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as ours:
            if listeners.listens(ours):
                os.close(number)


def _note(folder: Path, ending: Ending) -> None:
    text = f"{ending.rank} {ending.process} {ending.node} {ending.signal} {ending.status}"
    with contextlib.suppress(OSError):
        unfinished = folder / f".end-{ending.rank}.txt"
        unfinished.write_text(text)
        unfinished.rename(folder / f"end-{ending.rank}.txt")
