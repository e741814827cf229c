"""Support of ``spmd run`` for several processes: options, streams, and ranks that run different programs."""

import argparse
import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, TypeVar

from launch import options, values

if TYPE_CHECKING:
    from collectives.communicator import Communicator
    from spmd.compiler.pipeline.options import CompileOptions
    from spmd.ir import Module
    from spmd.runtime.executable import Executable
    from spmd.runtime.process import Process

T = TypeVar("T")
#: What ranks do after their programs, for messages.
_GATHERING = "the gathering of results"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    use = (
        "threads of native code in each process (default: $OMP_NUM_THREADS; else one per rank; all cores without ranks)"
    )
    options.valued(parser, "--threads", values.positive, "N", use)
    group = parser.add_argument_group("processes that run together")
    options.communication(group)
    group.add_argument(
        "--check-collectives", action="store_true", help="compare the calls of all processes at each collective"
    )
    add_timeout_arguments(group)
    options.mode(
        group,
        "with --grid: run all processes as one stacked program, or each as a thread; auto stacks "
        "more than 16 if possible, and -v prints why it is not",
        default="auto",
    )
    use = "memory for stacked arrays, such as 4GB; beyond it processes run in chunks (default: half of the free)"
    options.valued(group, "--memory", values.memory, "BYTES", use)
    group.add_argument(
        "--infeed", metavar="FILE.npz", help="the arrays that infeed reads; {rank} is replaced by the process's rank"
    )
    group.add_argument("--outfeed", metavar="FILE.npz", help="the file that outfeed writes; {rank} as above")


def add_timeout_arguments(parser: options.Arguments) -> None:
    use = "report which processes wait for which after this long, repeatedly (default: 60; 0: never)"
    options.valued(parser, "--collective-timeout", values.seconds, "SECONDS", use)
    parser.add_argument("--collective-abort", action="store_true", help="end the job at the first such report")


def timeout_settings(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment variables that configure the ranks' watcher, which starts with MPI."""
    settings = {} if args.collective_timeout is None else {"COLLECTIVE_TIMEOUT": str(args.collective_timeout)}
    return settings | ({"COLLECTIVE_ABORT": "1"} if args.collective_abort else {})


def compile_options(args: argparse.Namespace) -> "CompileOptions":
    """Return the options of ``spmd.compile`` that were given."""
    chosen = options.compile_options(args)
    chosen["check_collectives"] = args.check_collectives
    if args.threads is not None:
        chosen["threads"] = args.threads
    return chosen


class RunOptions(TypedDict, total=False):
    """Keyword arguments of ``spmd.run_parallel``."""

    abort: bool
    mode: str
    memory: int | None
    timeout: float
    infeed: list[str]
    outfeed: list[str]


def run_options(args: argparse.Namespace, size: int) -> RunOptions:
    """Return the arguments of ``spmd.run_parallel`` other than the program and its inputs."""
    settings: RunOptions = {"abort": args.collective_abort, "mode": args.mode, "memory": args.memory}
    if args.collective_timeout is not None:
        settings["timeout"] = args.collective_timeout or float("inf")
    if args.infeed is not None:
        settings["infeed"] = _of_ranks(args.infeed, size)
    if args.outfeed is not None:
        settings["outfeed"] = _of_ranks(args.outfeed, size)
    return settings


def _of_ranks(path: str, size: int) -> list[str]:
    """Return the file of each rank."""
    return [path.replace("{rank}", str(rank)) for rank in range(size)]


@contextlib.contextmanager
def streams(args: argparse.Namespace, process: "Process") -> Iterator[None]:
    """Give ``process`` its infeed and outfeed; the outfeed's file is written at the end, also after an error."""
    from spmd.runtime.streams import OutfeedFile, infeed_from, outfeed_to

    rank = str(process.rank)
    process.infeed = infeed_from(args.infeed and args.infeed.replace("{rank}", rank))
    process.outfeed = outfeed_to(args.outfeed and args.outfeed.replace("{rank}", rank))
    try:
        yield
    finally:
        if isinstance(process.outfeed, OutfeedFile):
            process.outfeed.close()


@dataclass(frozen=True)
class Ranks:
    """The programs of all ranks of a job, exchanged before they run."""

    world: "Communicator | None"
    different: bool = False
    sends: tuple[set[int], ...] = ()
    receives: tuple[set[int], ...] = ()

    def compare(self, executable: "Executable") -> None:
        """Raise CollectiveError, on all ranks, if the collectives of different programs cannot match."""
        from spmd.runtime.agreement import check_agreement, trace

        if self.world is not None and self.different:
            check_agreement(self.world.allgather_object(trace(executable, self.world.rank)))

    @classmethod
    def meet(cls, module: "Module", function: str) -> "Ranks":
        """Exchange the facts of each rank's program; without MPI there is nothing to exchange. Collective."""
        from spmd.runtime.endpoints import endpoints
        from spmd.runtime.world import ranks, under_mpi

        if not under_mpi():
            return cls(None)
        world = ranks()
        digest = hashlib.sha256(module.to_string(generic=True).encode()).hexdigest() + function
        received = world.allgather_object((digest, *endpoints(module, function)))
        digests, sends, receives = zip(*received, strict=True)
        return cls(world, len(set(digests)) > 1, sends, receives)

    def connect(self, process: "Process") -> None:
        """Give ``process`` the peers of its channels."""
        from spmd.runtime.endpoints import connect

        if any(self.sends) or any(self.receives):
            connect(process, self.sends, self.receives)

    def finish(self) -> None:
        """Return once the programs of all ranks have ended; none is in a collective any more."""
        if self.world is not None:
            self.world.finish(_GATHERING)

    def gather(self, value: T) -> list[T] | None:
        """Return each rank's value on rank 0, once the programs of all have ended; None on other ranks."""
        values = [value] if self.world is None else self.world.exchange_results(value, _GATHERING)
        return values if self.world is None or self.world.rank == 0 else None
