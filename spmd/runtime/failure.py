"""One rank's failure ends all ranks, and says why.

Under MPI an uncaught exception on one rank would leave that rank waiting in ``MPI_Finalize`` and the others in their
collectives, for ever. :func:`install` makes it end the job instead: the traceback is told once, then ``MPI_Abort``.
``sys.exit`` with a non-zero status counts as a failure too.

A launcher that wants the message to be the last thing on the screen names a folder in the environment variable
``SPMD_FAILURE_REPORTS``: a failing rank that can see the folder leaves its message there, as ``rank-<rank>.txt``,
instead of printing it.
"""

import atexit
import contextlib
import os
import sys
from types import TracebackType
from typing import Any, NoReturn

REPORTS_VARIABLE = "SPMD_FAILURE_REPORTS"
EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130
_LAUNCHERS = ("mpirun", "mpiexec", "prterun", "prted", "orted", "hydra_pmi_proxy")
_PR_SET_PDEATHSIG = 1

_installed = False
_exit_status = 0


def install() -> None:
    """Make a failure of this rank the failure of the job. Changes nothing where MPI runs no second rank."""
    global _installed
    if _installed:
        return
    _installed = True
    _end_with_launcher()
    previous_hook, previous_exit = sys.excepthook, sys.exit

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _world() is None:
            previous_hook(kind, error, trace)
        elif issubclass(kind, KeyboardInterrupt):
            _end_job(EXIT_INTERRUPTED)
        else:
            import traceback

            fail("".join(traceback.format_exception(kind, error, trace)))

    def exit_program(status: Any = None, /) -> NoReturn:
        if _world() is None:
            previous_exit(status)
        raise _ProgramExit(status)

    sys.excepthook = hook
    sys.exit = exit_program
    atexit.register(_end_job_that_exited_early)


def come_first() -> None:
    """Let a failing exit end the job before other exit handlers, which may wait for other ranks."""
    atexit.unregister(_end_job_that_exited_early)
    atexit.register(_end_job_that_exited_early)


def _end_with_launcher() -> None:
    """Have the system end this rank when the launcher that started it dies without ending its ranks (Linux only)."""
    try:
        with open(f"/proc/{os.getppid()}/comm") as stream:
            parent = stream.read().strip()
    except OSError:
        return
    if parent in _LAUNCHERS:
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def fail(message: str, status: int = EXIT_FAILURE) -> None:
    """Tell ``message`` and end every rank with ``status``. Alone, only tell it: the caller ends the program.

    :param message: text for the user, of one line or many.
    :param status: exit status of the job.
    """
    world = _world()
    if world is None:
        print(message.rstrip("\n"), file=sys.stderr, flush=True)
        return
    _tell(world.rank, f"{_name(world)} failed:\n" + message.rstrip("\n") + "\n")
    _end_job(status)


class _ProgramExit(SystemExit):
    """What ``sys.exit`` raises under several ranks; notices whether it really ended the program.

    The interpreter drops an uncaught ``SystemExit`` before the exit handlers run, with no Python frame left on the
    stack. One that was caught is dropped from a running frame. That is the only trace it leaves of the status.
    """

    def __del__(self) -> None:
        global _exit_status
        if sys is not None and sys._getframe().f_back is None:
            _exit_status = self.code if isinstance(self.code, int) else EXIT_FAILURE if self.code is not None else 0


def _end_job_that_exited_early() -> None:
    world = _world()
    if _exit_status and world is not None:
        _tell(world.rank, f"{_name(world)} exited with status {_exit_status}\n")
        _end_job(_exit_status)


def _world() -> Any:
    """``MPI.COMM_WORLD`` when MPI runs here with more than one rank, else None. Never starts MPI."""
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized() or module.Is_finalized():
        return None
    return module.COMM_WORLD if module.COMM_WORLD.size > 1 else None


def _name(world: Any) -> str:
    return f"rank {world.rank} of {world.size} on {os.uname().nodename}"


def _tell(rank: int, text: str) -> None:
    folder = os.environ.get(REPORTS_VARIABLE)
    sys.stdout.flush()
    if folder and os.path.isdir(folder):
        name = f"rank-{rank}.txt"
        with contextlib.suppress(OSError):
            with open(os.path.join(folder, "." + name), "w") as stream:
                stream.write(text)
            os.rename(stream.name, os.path.join(folder, name))
            return
    sys.stderr.write(text)
    sys.stderr.flush()


def _end_job(status: int) -> None:
    world = _world()
    # The MPI library announces the abort on this process's stderr; what it would say has been said better.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)
    world.Abort(status)
