"""``spmd calibrate``: measure this machine, alone or under ``spmd launch``, and write its rates to a file."""

import argparse
import platform
import sys

from launch.progress import doing

HELP = "measure this machine (and its collectives, under spmd launch -n N), and write a file for spmd predict"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "output", nargs="?", default="machine.toml", metavar="FILE", help="file to write (default: machine.toml)"
    )
    parser.add_argument("--name", help="name of the machine (default: its host name and the number of processes)")


def run(args: argparse.Namespace) -> int:
    import spmd
    from spmd.predict.calibrate import calibrate
    from spmd.runtime.world import ranks, under_mpi
    from spmd.support.files import write_file

    world = ranks() if under_mpi() else None
    first = world is None or world.rank == 0
    size = 1 if world is None else world.size
    if first:
        try:
            with open(args.output, "a", encoding="utf-8"):
                pass
        except OSError as error:
            raise spmd.UsageError(f"{args.output}: cannot be written: {error.strerror}") from None

    name = args.name or f"{platform.node()}, {size} process{'es' * (size > 1)}"
    with doing("measuring") as progress:

        def report(text: str) -> None:
            progress.what = f"measuring {text}"
            if first and not progress.is_watched:
                print(progress.what, file=sys.stderr, flush=True)

        machine = calibrate(name, world if size > 1 else None, report)
    if first:
        write_file(args.output, machine.to_toml().encode())
        print(f"wrote {args.output}")
    return 0
