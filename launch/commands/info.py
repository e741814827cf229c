"""``spmd info``: installed versions and properties of this machine, for the user or a bug report.

``spmd info FILE`` describes the program in a file; ``spmd info --clear-cache`` removes what was compiled in earlier
runs.
"""

import argparse

from launch import terminal

HELP = "show versions, MPI library and threads; of a program's file, its contents"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", nargs="?", metavar="FILE", help="a program in any supported format")
    parser.add_argument("--clear-cache", action="store_true", help="remove what was compiled in earlier runs")


def run(args: argparse.Namespace) -> int:
    if args.program is not None:
        from spmd.io.describing import describe

        _show(describe(args.program))
        return 0
    if args.clear_cache:
        return _clear_cache()
    from launch.installed import facts, of_rank
    from spmd.runtime.world import ranks, under_mpi

    rows = facts()
    if under_mpi():
        world = ranks()
        everyone = world.allgather_object(of_rank())
        if world.rank:
            return 0
        rows += [(f"rank {rank}", text) for rank, text in enumerate(everyone)]
    _show(rows)
    return 0


def _clear_cache() -> int:
    from spmd.support.compiled_cache import Usage, user_cache

    cache = user_cache()
    usage = cache.usage() if cache is not None else Usage(0, 0)
    if cache is not None:
        cache.clear()
    print(f"removed {usage.entries} entries, {usage.size / 2**20:.1f} MiB")
    return 0


def _show(rows: list[tuple[str, str]]) -> None:
    if terminal.is_rich():
        terminal.show(terminal.facts("", rows))
        return
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
