"""A process that is to join a job: it runs the job's script, until that comes to its `Training`.

MPI begins before the script does, so that from the first moment on rank 0 and the new rank find out when the other is
lost. Before that an alarm ends the process, should it wait for a rank 0 that is not there any more.
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

#: In which a process must have begun with MPI.
START_SECONDS = 60
_LOOK = 0.1  # seconds between two looks
_OF_MPI = ("OMPI_", "PMIX_", "PRTE_", "PMI_")
_FOLDER = os.getcwd()  # before the script may change it
#: The invitation of this process, which is a new one.
_invitation: Invitation | None = None
#: What it was told, where it is one.
_briefing: Briefing | None = None


@dataclass(frozen=True)
class Briefing:
    """What rank 0 tells a new process: how Python was called (`options`, then ``-m``, ``-c`` or nothing, then what is
    run), in which folder and environment, and how many `ranks` there will be."""

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
        """As this process was called, itself a new one or not."""
        own = {failure.NUMBER_VARIABLE, *failure.VARIABLES_OF_A_HOST}
        shared = os.environ.keys() - own
        variables = {name: os.environ[name] for name in shared if not name.startswith(_OF_MPI)}
        if _briefing is not None:
            return replace(_briefing, variables=variables, ranks=ranks)
        *options, what = sys.orig_argv[1 : 1 + len(sys.orig_argv) - len(sys.argv)]
        kind = options.pop() if options[-1:] in (["-m"], ["-c"]) else ""
        return cls(options, kind, what, sys.argv, sys.path, _FOLDER, variables, ranks)

    def command(self, number: int) -> list[str]:
        """The arguments of a Python that becomes rank `number`, and is told the rest when MPI has begun."""
        root = str(Path(__file__).parents[2])
        code = (
            f"import os, signal, sys; signal.alarm({START_SECONDS}); "
            f"{assignment(number)}; sys.path.append({root!r}); "
            "from spmd.elastic import newcomer; newcomer.main()"
        )
        return [*self.options, "-c", code]

    def run(self) -> None:
        """Does what Python was called to do."""
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
    """What the command line of a Python that becomes rank `number` contains, and of what keeps it."""
    return f"os.environ[{failure.NUMBER_VARIABLE!r}] = '{number}'"


class Invitation:
    """What a new process has of the job until it has joined: rank 0, by `peer`."""

    def __init__(self, peer: MPI.Intracomm, ranks: int) -> None:
        self._peer, self.ranks = peer, ranks
        self._arrived = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="elastic-invitation", daemon=True)
        self._thread.start()

    def accept(self) -> MPI.Intracomm:
        """Says that this process is ready, and waits until the ranks meet: their communicator. Where they do not, or
        could not take it, the process ends here."""
        admission.tell(self._peer, this_process(0))
        try:
            self._wait()
            self._arrived.set()
            self._thread.join()
            later = admission.hear(self._peer)
            assert isinstance(later, int)
            comm = admission.enter(self._peer, later)
            if admission.hear(self._peer) is True:
                return comm
        except MPI.Exception:
            pass
        leave()

    def _wait(self) -> None:
        while not admission.has_told(self._peer, admission.WORDS):
            time.sleep(_LOOK / 100)

    def _watch(self) -> None:
        """Ends this process when it is no longer needed, or rank 0 is lost."""
        while not self._arrived.wait(_LOOK):
            try:
                if admission.has_told(self._peer, admission.DISMISSAL):
                    leave()
            except MPI.Exception:
                leave()


def invitation() -> Invitation | None:
    """That of this process, to be accepted once."""
    global _invitation
    standing, _invitation = _invitation, None
    return standing


def leave() -> NoReturn:
    """Ends this process, which is not needed: nobody knows of it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """What such a Python does."""
    global _invitation, _briefing
    failure.leave_at_end()
    try:
        peer = MPI.Comm.Get_parent().Merge(high=True)
        signal.alarm(0)
        briefing = admission.hear(peer)
    except MPI.Exception:  # rank 0 is lost: with another status than 0 the launcher would take the job for failed
        leave()
    assert isinstance(briefing, Briefing)
    _briefing, _invitation = briefing, Invitation(peer, briefing.ranks)
    briefing.run()
