"""One rank's failure ends all ranks, and says why.

Under MPI an uncaught exception on one rank would leave that rank waiting in ``MPI_Finalize`` and the others in their
collectives, for ever. :func:`install` makes it end the job instead: the traceback is told once, then ``MPI_Abort``.
So does one in another thread than the main one, which the interpreter itself would only print. ``sys.exit`` (or
``exit``, ``quit``) with a non-zero status counts as a failure too.

A launcher that wants the message to be the last thing on the screen names a folder in the environment variable
``SPMD_FAILURE_REPORTS``: a failing rank that can see the folder leaves its message there, as ``rank-<rank>.txt``,
instead of printing it; any other marks what it prints, so that the launcher knows it.
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
#: What stands around a report, the rank and a newline before it, on stderr of a rank that cannot see the folder: it is
#: on another host than the launcher, which looks out for this.
REPORT_BEGINS, REPORT_ENDS = "\x1dspmd-failure ", "\x1e\n"
#: The process that keeps this rank (launch.rank), where one does.
KEPT_VARIABLE = "SPMD_RANK_KEEPER"
#: Hydra ends an aborted job without reading on: what a rank printed last is lost unless it was read before.
HYDRA_READS_SECONDS = 0.2
#: Set for the ranks of a job that goes on when some are lost.
ELASTIC_VARIABLE = "SPMD_ELASTIC_MIN_RANKS"
EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130
_LAUNCHERS = ("mpirun", "mpiexec", "prterun", "prted", "orted", "hydra_pmi_proxy")

#: The number of a rank that joined a job which ran already, as that counts.
NUMBER_VARIABLE = "SPMD_ELASTIC_RANK"
#: The host of a rank by the name that the launcher was given, where each rank is started by a remote shell of its own.
PLACE_VARIABLE = "SPMD_ELASTIC_PLACE"
#: What each host has of its own, and ranks do not take from another.
VARIABLES_OF_A_HOST = frozenset(
    ("TMPDIR", "HOSTNAME", "HOST", "PWD", "OLDPWD", "SHLVL", "DISPLAY", "XDG_RUNTIME_DIR", PLACE_VARIABLE)
)
_RANK_VARIABLES = (NUMBER_VARIABLE, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")

_installed = False
_exit_status = 0
_exit_message = ""
#: MPI's communicator of all ranks, once it is another than MPI.COMM_WORLD.
_base: Any = None
#: Called with the exit status before a failure ends every rank.
before_end: Callable[[int], None] | None = None
#: Has all ranks write what they have recorded, for a reason that is given; the line that tells of it, if any was.
record: Callable[[str], str] | None = None
#: Whether this process ends without MPI's own end.
_leaves = False
#: This rank, as the launcher that started this very process numbers it: known before MPI is.
_launched_rank: int | None = None


def install() -> None:
    """Make a failure of this rank the failure of the job. Changes nothing where MPI runs no second rank."""
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
                _tell(_number(world), f"{_name(world)} was interrupted (SIGINT)\n")
                _end_job(EXIT_INTERRUPTED)
        else:
            fail(report_of(error, trace))

    def exit_program(status: Any = None, /) -> NoReturn:
        if _world() is None or threading.current_thread() is not threading.main_thread():
            previous_exit(status)
        raise _ProgramExit(status)

    previous_thread_hook = threading.excepthook

    def thread_hook(raised: threading.ExceptHookArgs, /) -> None:
        # The others would wait for what this thread was to do.
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
    """Return the traceback of an error: with the user's frames alone where the error says all that there is to say."""
    import traceback  # late: only failures need it

    told = traceback.TracebackException(type(error), error, trace)
    if is_reported_without_frames(error):
        users = [(frame, line) for frame, line in traceback.walk_tb(trace) if not is_own_frame(frame)]
        told.stack = traceback.StackSummary.extract(iter(users)) if users else told.stack
    return "".join(told.format())


def come_first() -> None:
    """Let a failing exit end the job before other exit handlers, which may wait for other ranks."""
    atexit.unregister(_end_job_that_exited_early)
    atexit.register(_end_job_that_exited_early)


def _meet_launcher() -> None:
    """When a launcher started this process: know the rank, and end if the launcher dies without ending its ranks."""
    global _launched_rank
    if launched_rank() is None and KEPT_VARIABLE not in os.environ:
        return
    if name_of(os.getppid()) in _LAUNCHERS:
        end_with_parent()
        if ELASTIC_VARIABLE in os.environ:
            _be_lost_when_leaving()
    elif os.environ.get(KEPT_VARIABLE) != str(os.getppid()):  # who keeps a rank sees to its end
        return
    _launched_rank = launched_rank()
    _mark_running()
    if NUMBER_VARIABLE in os.environ:
        _launched_rank = None  # until it has joined, its failure is its own


def launched_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """The rank that the environment gives a process, this one unless another's is given; None where it gives none."""
    return next((int(environment[name]) for name in _RANK_VARIABLES if name in environment), None)


def _mark_running() -> None:
    """The folder of reports is that of the launcher's host: ranks of other hosts are marked by who starts them."""
    folder = os.environ.get(REPORTS_VARIABLE, "")
    if _launched_rank is not None:
        atexit.register(_leave)  # what is registered first comes last
        if os.path.isdir(folder):
            endings.mark(Path(folder), _launched_rank)


def note_end() -> None:
    """Note for the launcher, where it is on this host, that the program of this rank has come to its end."""
    rank, folder = launched_rank(), os.environ.get(REPORTS_VARIABLE, "")
    if rank is not None and os.path.isdir(folder):
        endings.note_end(Path(folder), rank)


def _leave() -> None:
    if _leaves:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_status)


def leave_at_end() -> None:
    """Has this process end when all its exit handlers have run, before MPI's own end.

    Open MPI 5.0.11 would wait there, in ompi_dpm_dyn_finalize, for an answer of each process that has ever shared a
    communicator with one of another MPI_COMM_WORLD, of those that are lost, too.
    """
    global _leaves
    _leaves = True


def _be_lost_when_leaving() -> None:
    """Has this rank be found lost when it leaves by ``os._exit`` with a status other than 0.

    Open MPI 5.0.11 tells the others of ranks that end by a signal, or with status 0 and without ending MPI; of one that
    ends with another status, and may not end the job, it tells nobody, and they would wait for it.
    """
    leave, own = os._exit, os.getpid()

    def exit_or_be_killed(status: int) -> NoReturn:
        if status and os.getpid() == own:  # not that of a process which was forked
            os.kill(own, signal.SIGKILL)
        leave(status)

    os._exit = exit_or_be_killed


def _reported_before_mpi() -> bool:
    """Whether a failure before MPI has started goes to the launcher, which ends the job and tells it once."""
    return _launched_rank is not None and bool(os.environ.get(REPORTS_VARIABLE))


def fail(message: str, status: int = EXIT_FAILURE) -> None:
    """Tell ``message`` and end every rank with ``status``. Alone, only tell it: the caller ends the program.

    :param message: text for the user, of one line or many.
    :param status: exit status of the job.
    """
    world, text = _world(), message.rstrip("\n") + "\n"
    if world is not None:
        recorded = _record(text)
        _tell(_number(world), f"{_name(world)} failed:\n{text}", recorded)
        _end_job(status)
    elif _launched_rank is not None and _reported_before_mpi():
        _tell(_launched_rank, f"rank {_launched_rank} on {os.uname().nodename} failed:\n{text}")
    else:
        sys.stderr.write(text)
        sys.stderr.flush()


class _ProgramExit(SystemExit):
    """What ``sys.exit`` raises under several ranks; notices whether it really ends the program.

    The interpreter reads ``code`` of an uncaught ``SystemExit`` when no Python frame is left on the stack; a program
    that catches one reads it from a running frame. There is no other trace of the status for exit handlers to find.
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
        _tell(_number(world), f"{_name(world)} exited with status {_exit_status}{_exit_message}\n", recorded)
        _end_job(_exit_status)


def _world() -> Any:
    """``MPI.COMM_WORLD`` when MPI runs here with more than one rank, else None. Never starts MPI.

    A rank that joined has another, of itself alone, and belongs to those that it joined.
    """
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized() or module.Is_finalized():
        return None
    world = module.COMM_WORLD if _base is None or module.COMM_WORLD.size > 1 else _base
    return world if world.size > 1 else None


def renew(comm: object) -> None:
    """All ranks are those of ``comm`` from now on: what ends one ends them."""
    global _base
    _base = comm


def _name(world: Any) -> str:
    size = f", which joined {world.size - 1}," if NUMBER_VARIABLE in os.environ else f" of {world.size}"
    return f"rank {_number(world)}{size} on {os.uname().nodename}"


def _number(world: Any) -> int:
    """This rank as it was when the job began, or counted on when it joined."""
    return int(os.environ.get(NUMBER_VARIABLE, world.rank))


def _record(reason: str) -> str:
    """Has all ranks write what they have recorded; the line that tells of it."""
    if record is None:
        return ""
    # Of a traceback, the error: its last line that is not set in.
    return record(next((line for line in reversed(reason.splitlines()) if line.strip() and line[0] != " "), ""))


def _tell(rank: int, text: str, recorded: str = "") -> None:
    """Tells the launcher, or prints it behind ``recorded``, of which the launcher has a line of its own."""
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
    """Ends this rank silently: another has told of a failure that ends every rank with ``status``."""
    global before_end
    before_end = None
    _end_job(status)


def _end_job(status: int) -> None:
    world = _world()
    if before_end is not None:
        before_end(status)
    # The MPI library announces the abort on this process's stderr; what it would say has been said better.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)
    if KEPT_VARIABLE in os.environ:
        time.sleep(HYDRA_READS_SECONDS)
    (world if _base is None else _base).Abort(status)
