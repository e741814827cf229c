"""A failure of one rank ends all ranks with a message.

Under MPI an uncaught exception on one rank would leave that rank waiting in ``MPI_Finalize`` and the others in their
collectives, for ever. :func:`install` makes it end the job: the traceback is printed once, then ``MPI_Abort`` is
called. The same holds for an exception in another thread, which the interpreter would only print, and for ``sys.exit``
(``exit``, ``quit``) with a non-zero status.

A launcher that prints the message last sets the environment variable ``SPMD_FAILURE_REPORTS`` to a folder: a failing
rank that can see the folder writes its message there as ``rank-<rank>.txt`` instead of printing it; any other frames
the printed message with marks that the launcher recognizes.
"""

import atexit
import builtins
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from collectives import endings
from collectives.errors import is_own_frame, is_reported_without_frames
from collectives.processes import end_with_parent, name_of

REPORTS_VARIABLE = "SPMD_FAILURE_REPORTS"
#: Marks around a report on stderr, the first followed by the rank and a newline, of a rank that cannot see the folder
#: because it is on another host than the launcher.
REPORT_BEGINS, REPORT_ENDS = "\x1dspmd-failure ", "\x1e\n"
#: The process id of this rank's parent (launch.rank), if it has one.
KEPT_VARIABLE = "SPMD_RANK_KEEPER"
#: Hydra ends an aborted job without draining output: wait this long for it to read the last lines.
HYDRA_READS_SECONDS = 0.2
#: Set for the ranks of a job that survives the loss of ranks.
ELASTIC_VARIABLE = "SPMD_ELASTIC_MIN_RANKS"
EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130
_LAUNCHERS = ("mpirun", "mpiexec", "prterun", "prted", "orted", "hydra_pmi_proxy")

#: The number of a rank that joined a running job.
NUMBER_VARIABLE = "SPMD_ELASTIC_RANK"
#: The host name that the launcher was given, for ranks that are started by a remote shell each.
PLACE_VARIABLE = "SPMD_ELASTIC_PLACE"
#: Variables specific to a host, which ranks do not inherit from another.
VARIABLES_OF_A_HOST = frozenset(
    ("TMPDIR", "HOSTNAME", "HOST", "PWD", "OLDPWD", "SHLVL", "DISPLAY", "XDG_RUNTIME_DIR", PLACE_VARIABLE)
)
_RANK_VARIABLES = (NUMBER_VARIABLE, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")

_installed = False
_exit_status = 0
_exit_message = ""
#: MPI's communicator of all ranks, if it is not MPI.COMM_WORLD.
_base: Any = None
#: Called with the exit status before a failure ends all ranks.
before_end: Callable[[int], None] | None = None
#: Makes all ranks write their records for the given reason; returns the line that reports it, or "".
record: Callable[[str], str] | None = None
#: Whether this process exits without MPI_Finalize.
_leaves = False
#: This rank by the launcher's environment, known before MPI is initialized.
_launched_rank: int | None = None


def install() -> None:
    """Make a failure of this rank end the job. Without effect if there is no second MPI rank."""
    global _installed
    if _installed:
        return
    _installed = True
    _meet_launcher()
    previous_hook, previous_exit = sys.excepthook, sys.exit

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _exit_status
        world = _world()
        if world is None and not _reported_before_mpi():
            _exit_status = EXIT_FAILURE
            previous_hook(kind, error, trace)
        elif issubclass(kind, KeyboardInterrupt):
            if world is not None:
                _report(_number(world), f"{_name(world)} was interrupted (SIGINT)\n")
                _end_job(EXIT_INTERRUPTED)
        else:
            fail(report_of(error, trace))

    def exit_program(status: Any = None, /) -> NoReturn:
        if _world() is None or threading.current_thread() is not threading.main_thread():
            previous_exit(status)
        raise _ProgramExit(status)

    previous_thread_hook = threading.excepthook

    def thread_hook(raised: threading.ExceptHookArgs, /) -> None:
        # The other ranks would wait for this thread's communication.
        if _world() is None or raised.exc_type is SystemExit:
            previous_thread_hook(raised)
        else:
            name = "a thread" if raised.thread is None else f"thread {raised.thread.name}"
            error = raised.exc_type() if raised.exc_value is None else raised.exc_value
            fail(f"In {name}:\n{report_of(error, raised.exc_traceback)}")

    sys.excepthook = hook
    threading.excepthook = thread_hook
    sys.exit = exit_program
    for name in ("exit", "quit"):  # the interpreter's own shorthands, where it has them
        if hasattr(builtins, name):
            setattr(builtins, name, exit_program)
    atexit.register(_end_job_that_exited_early)


def report_of(error: BaseException, trace: TracebackType | None) -> str:
    """Return the traceback of an error, with the user's frames only if the message suffices."""
    import traceback  # late: needed after failures only

    shown = traceback.TracebackException(type(error), error, trace)
    if is_reported_without_frames(error):
        users = [(frame, line) for frame, line in traceback.walk_tb(trace) if not is_own_frame(frame)]
        shown.stack = traceback.StackSummary.extract(iter(users)) if users else shown.stack
    return "".join(shown.format())


def come_first() -> None:
    """Let a failing exit end the job before other exit handlers, which may wait for other ranks."""
    atexit.unregister(_end_job_that_exited_early)
    atexit.register(_end_job_that_exited_early)


def _meet_launcher() -> None:
    """Record the rank if a launcher started this process, and exit if the launcher dies without ending its ranks."""
    global _launched_rank
    if launched_rank() is None and KEPT_VARIABLE not in os.environ:
        return
    if name_of(os.getppid()) in _LAUNCHERS:
        end_with_parent()
        if ELASTIC_VARIABLE in os.environ:
            _be_lost_when_leaving()
    elif os.environ.get(KEPT_VARIABLE) != str(os.getppid()):  # the rank's parent ends it
        return
    _launched_rank = launched_rank()
    _mark_running()
    if NUMBER_VARIABLE in os.environ:
        _launched_rank = None  # until it has joined, its failure does not end the job


def launched_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank in the environment of a process, or None."""
    return next((int(environment[name]) for name in _RANK_VARIABLES if name in environment), None)


def _mark_running() -> None:
    """Create the marker file if the folder is on this host; ranks of other hosts are marked by their parent."""
    folder = os.environ.get(REPORTS_VARIABLE, "")
    if _launched_rank is not None:
        atexit.register(_leave)  # exit handlers run in reverse order of registration
        if os.path.isdir(folder):
            endings.mark(Path(folder), _launched_rank)


def note_end() -> None:
    """Record, for a launcher on this host, that the program of this rank has ended."""
    rank, folder = launched_rank(), os.environ.get(REPORTS_VARIABLE, "")
    if rank is not None and os.path.isdir(folder):
        endings.note_end(Path(folder), rank)


def _leave() -> None:
    if _leaves:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_status)


def leave_at_end() -> None:
    """Make this process exit after its exit handlers, without MPI_Finalize.

    Open MPI 5.0.11 would wait in ompi_dpm_dyn_finalize for every process that has ever shared a communicator with one
    of another MPI_COMM_WORLD, lost ones included.
    """
    global _leaves
    _leaves = True


def _be_lost_when_leaving() -> None:
    """Make ``os._exit`` with a status other than 0 kill this rank by a signal.

    Open MPI 5.0.11 notifies the others of ranks that die by a signal, or exit with status 0 without finalizing MPI, but
    not of ranks that exit with another status without aborting the job; the others would wait for them.
    """
    leave, own = os._exit, os.getpid()

    def exit_or_be_killed(status: int) -> NoReturn:
        if status and os.getpid() == own:  # not in a forked process
            os.kill(own, signal.SIGKILL)
        leave(status)

    os._exit = exit_or_be_killed


def _reported_before_mpi() -> bool:
    """Return whether failures before MPI initialization go to the launcher, which ends the job and prints them once."""
    return _launched_rank is not None and bool(os.environ.get(REPORTS_VARIABLE))


def fail(message: str, status: int = EXIT_FAILURE) -> None:
    """Report ``message`` and end all ranks with ``status``. With a single rank, only report: the caller exits.

    :param message: text for the user, of one or more lines.
    :param status: exit status of the job.
    """
    world, text = _world(), message.rstrip("\n") + "\n"
    if world is not None:
        recorded = _record(text)
        _report(_number(world), f"{_name(world)} failed:\n{text}", recorded)
        _end_job(status)
    elif _launched_rank is not None and _reported_before_mpi():
        _report(_launched_rank, f"rank {_launched_rank} on {os.uname().nodename} failed:\n{text}")
    else:
        sys.stderr.write(text)
        sys.stderr.flush()


class _ProgramExit(SystemExit):
    """Raised by ``sys.exit`` under several ranks; detects whether it ends the program.

    The interpreter reads ``code`` of an uncaught ``SystemExit`` when no Python frame is on the stack; a program that
    catches one reads it from a running frame. Exit handlers have no other way to learn the status.
    """

    @property
    def code(self) -> Any:  # type: ignore[override]
        global _exit_status, _exit_message
        argument = self.args[0] if self.args else None
        if sys._getframe().f_back is not None or argument is None:
            return argument
        _exit_status, _exit_message = (argument, "") if isinstance(argument, int) else (EXIT_FAILURE, f":\n{argument}")
        return _exit_status


def _end_job_that_exited_early() -> None:
    world = _world()
    if _exit_status and world is not None:
        recorded = _record(f"exited with status {_exit_status}")
        _report(_number(world), f"{_name(world)} exited with status {_exit_status}{_exit_message}\n", recorded)
        _end_job(_exit_status)


def _world() -> Any:
    """Return ``MPI.COMM_WORLD`` if MPI is running here with more than one rank, else None. Never starts MPI.

    A rank that joined has a COMM_WORLD of itself only; its world is the communicator that it joined.
    """
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized() or module.Is_finalized():
        return None
    world = module.COMM_WORLD if _base is None or module.COMM_WORLD.size > 1 else _base
    return world if world.size > 1 else None


def renew(comm: object) -> None:
    """Make ``comm`` the communicator of all ranks, which a failure aborts."""
    global _base
    _base = comm


def _name(world: Any) -> str:
    size = f", which joined {world.size - 1}," if NUMBER_VARIABLE in os.environ else f" of {world.size}"
    return f"rank {_number(world)}{size} on {os.uname().nodename}"


def _number(world: Any) -> int:
    """Return this rank's number: its rank when the job began, or the number given when it joined."""
    return int(os.environ.get(NUMBER_VARIABLE, world.rank))


def _record(reason: str) -> str:
    """Make all ranks write their records; return the line that reports it."""
    if record is None:
        return ""
    # Of a traceback, the line of the error: the last that is not indented.
    return record(next((line for line in reversed(reason.splitlines()) if line.strip() and line[0] != " "), ""))


def _report(rank: int, text: str, recorded: str = "") -> None:
    """Write the report for the launcher, or print it after ``recorded``, which a launcher prints itself."""
    folder = os.environ.get(REPORTS_VARIABLE)
    sys.stdout.flush()
    if folder and os.path.isdir(folder):
        name = f"rank-{rank}.txt"
        with contextlib.suppress(OSError):
            with open(os.path.join(folder, "." + name), "w") as stream:
                stream.write(text)
            os.rename(stream.name, os.path.join(folder, name))
            return
    if recorded and not folder:
        text = f"({recorded})\n{text}"
    sys.stderr.write(f"{REPORT_BEGINS}{rank}\n{text}{REPORT_ENDS}" if folder else text)
    sys.stderr.flush()


def end_with_others(status: int) -> None:
    """End this rank silently with ``status``, because another rank has reported the failure."""
    global before_end
    before_end = None
    _end_job(status)


def _end_job(status: int) -> None:
    world = _world()
    if before_end is not None:
        before_end(status)
    # MPI_Abort prints a message on this process's stderr, which the report makes redundant.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)
    if KEPT_VARIABLE in os.environ:
        time.sleep(HYDRA_READS_SECONDS)
    (world if _base is None else _base).Abort(status)
