"""A process that joins a running job: it runs the job's script up to the construction of its `Training`.

MPI is initialized before the script runs, so that rank 0 and the new rank detect each other's failure from then on. If
rank 0 fails earlier, SIGALRM ends the new process after `START_SECONDS`.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from mpi4py import MPI

from collectives import failure
from spmd.elastic import admission
from spmd.elastic.members import this_process

#: Time limit for a new process to initialize MPI.
START_SECONDS = 60
_LOOK = 0.1  # polling interval in seconds
_OF_MPI = ("OMPI_", "PMIX_", "PRTE_", "PMI_")
_FOLDER = os.getcwd()  # before the script may change it
#: Set in a process that was spawned to join a job, until `invitation` takes it.
_invitation: Invitation | None = None
#: The briefing that such a process received from rank 0.
_briefing: Briefing | None = None


@dataclass(frozen=True)
class Briefing:
    """The message that rank 0 sends to a new process.

    It has Python's command line (`options`, then `kind`, which is ``-m``, ``-c`` or empty, then `what`), the working
    directory, the environment, and the number of `ranks` after joining.
    """

    options: Sequence[str]
    kind: str
    what: str
    arguments: Sequence[str]
    path: Sequence[str]
    folder: str
    variables: Mapping[str, str]
    ranks: int

    @classmethod
    def of_this_process(cls, ranks: int) -> Briefing:
        """Return the briefing that repeats this process's own command line; `ranks` is the number of ranks after
        joining.
        """
        own = {failure.NUMBER_VARIABLE, *failure.VARIABLES_OF_A_HOST}
        shared = os.environ.keys() - own
        variables = {name: os.environ[name] for name in shared if not name.startswith(_OF_MPI)}
        if _briefing is not None:
            return replace(_briefing, variables=variables, ranks=ranks)
        *options, what = sys.orig_argv[1 : 1 + len(sys.orig_argv) - len(sys.argv)]
        kind = options.pop() if options[-1:] in (["-m"], ["-c"]) else ""
        return cls(options, kind, what, sys.argv, sys.path, _FOLDER, variables, ranks)

    def command(self, number: int) -> list[str]:
        """Return Python's arguments to start rank `number`, which receives the briefing once it has initialized MPI."""
        root = str(Path(__file__).parents[2])
        code = (
            f"import os, signal, sys; signal.alarm({START_SECONDS}); "
            f"{assignment(number)}; sys.path.append({root!r}); "
            "from spmd.elastic import newcomer; newcomer.main()"
        )
        return [*self.options, "-c", code]

    def run(self) -> None:
        """Run the script, module or command of the briefing as ``__main__`` in this process."""
        os.chdir(self.folder)
        os.environ.update(self.variables)
        sys.argv[:] = self.arguments
        sys.path[:] = self.path
        if self.kind == "-m":
            runpy.run_module(self.what, run_name="__main__", alter_sys=True)
            return
        main = sys.modules["__main__"]
        main.__file__ = file = self.what if not self.kind else "<string>"
        source = Path(file).read_bytes() if not self.kind else self.what
        exec(compile(source, file, "exec"), vars(main))


def assignment(number: int) -> str:
    """Return the text by which the command line of rank `number`'s process, and of its parent, is recognized."""
    return f"os.environ[{failure.NUMBER_VARIABLE!r}] = '{number}'"


class Invitation:
    """A new process's connection to rank 0, over `peer`, until it joins the job's communicator."""

    def __init__(self, peer: MPI.Intracomm, ranks: int) -> None:
        self._peer, self.ranks = peer, ranks
        self._arrived = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="elastic-invitation", daemon=True)
        self._thread.start()

    def accept(self) -> MPI.Intracomm:
        """Accept the invitation: report to rank 0, block until the ranks merge this process, return their communicator.

        Exits the process if it is dismissed, rank 0 fails, or the merge fails.
        """
        admission.send(self._peer, this_process(0))
        try:
            self._wait()
            self._arrived.set()
            self._thread.join()
            later = admission.receive(self._peer)
            assert isinstance(later, int)
            comm = admission.enter(self._peer, later)
            if admission.receive(self._peer) is True:
                return comm
        except MPI.Exception:
            pass
        leave()

    def _wait(self) -> None:
        while not admission.has_message(self._peer, admission.MESSAGE):
            time.sleep(_LOOK / 100)

    def _watch(self) -> None:
        """Exit this process when rank 0 dismisses it or fails."""
        while not self._arrived.wait(_LOOK):
            try:
                if admission.has_message(self._peer, admission.DISMISSAL):
                    leave()
            except MPI.Exception:
                leave()


def invitation() -> Invitation | None:
    """Return this process's invitation on the first call; None afterwards, and in processes that were not spawned."""
    global _invitation
    standing, _invitation = _invitation, None
    return standing


def leave() -> NoReturn:
    """Exit with status 0 without finalizing MPI: the job does not count this process among its ranks."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """Run a spawned process: connect to rank 0, receive the briefing, run the script."""
    global _invitation, _briefing
    failure.leave_at_end()
    try:
        peer = MPI.Comm.Get_parent().Merge(high=True)
        signal.alarm(0)
        briefing = admission.receive(peer)
    except MPI.Exception:  # rank 0 failed; with a status other than 0 the launcher would report the job as failed
        leave()
    assert isinstance(briefing, Briefing)
    _briefing, _invitation = briefing, Invitation(peer, briefing.ranks)
    briefing.run()
