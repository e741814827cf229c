"""``spmd launch``: start a command on several MPI ranks of this machine, or of the allocation that it runs in."""

import argparse
import shlex

from launch import hosts, options, parallel, values

HELP = "start a command on MPI ranks, with the flags that this machine needs"


#: Options of mpirun and srun, and their equivalents here.
_ELSEWHERE = {
    ("-np", "--np", "-c", "--ntasks"): "the number of ranks is -n here",
    ("-H", "--host"): "the hosts are --hosts A:2,B:2 here",
    ("-hostfile", "--machinefile", "-machinefile", "-f"): "the file of hosts is --hostfile here",
    (
        "--oversubscribe",
        "-oversubscribe",
        "--allow-run-as-root",
    ): "mpirun is given it where it is needed: leave it out",
    ("-x", "-genv", "-env"): "ranks of this machine have its variables; for other hosts --mpirun-args '-x NAME'",
    ("--bind-to", "-bind-to"): "--bind or --no-bind here, or pass it on: --mpirun-args '--bind-to core'",
    ("--map-by", "-map-by", "--mca", "-mca", "-ppn", "-N"): "pass it on: --mpirun-args '--map-by node'",
}


class _Elsewhere(argparse.Action):
    """An option of another launcher, rejected with the equivalent in `const`."""

    def __call__(self, parser: argparse.ArgumentParser, *found: object) -> None:
        name = found[-1]
        parser.error(f"{name} is an option of mpirun or srun: {self.const}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spmd launch [-n N] [options] [--] command ..."
    parser.add_argument(
        "-n",
        "--ranks",
        type=values.positive,
        help="ranks (default: what the hosts, or Slurm's, take; else cores)",
    )
    parser.add_argument("--threads", type=values.positive, help="threads of numerical libraries per rank (default: 1)")
    parser.add_argument(
        "--bind",
        action=argparse.BooleanOptionalAction,
        help="give each rank separate cores (default: if the job fills the machine)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--hosts", type=hosts.from_text, default=(), metavar="A:2,B:2", help="the hosts to use, and ranks on each"
    )
    where.add_argument(
        "--hostfile", type=hosts.from_file, dest="hosts", metavar="FILE", help="the same, one host per line: A slots=2"
    )
    parser.add_argument(
        "--elastic", action="store_true", help="continue when ranks are lost (see spmd.elastic); needs Open MPI"
    )
    options.valued(parser, "--min-ranks", values.positive, "M", "with --elastic: end below M ranks")
    use = "with --elastic: a rank that is silent this long is declared dead (default: 10; 0: never)"
    options.valued(parser, "--patience", values.seconds, "SECONDS", use)
    parser.add_argument(
        "--replace", action="store_true", help="with --elastic: start a new rank in the place of each lost one"
    )
    options.valued(parser, "--max-ranks", values.positive, "M", "with --elastic: let ranks join, with --join, up to M")
    parser.add_argument(
        "--join",
        nargs="?",
        type=values.positive,
        const=0,
        metavar="PROCESS",
        help="let -n ranks (default: 1) join the elastic job that runs here, or that of the launcher PROCESS",
    )
    parser.add_argument(
        "--profile", metavar="FILE", help="write a trace of every program of all ranks (see spmd.profile)"
    )
    options.profile_steps(
        parser, "with --profile: keep only these steps of each program, such as 2:10 (see spmd.profile)"
    )
    parallel.add_timeout_arguments(parser)
    parser.add_argument(
        "--mpirun-args", type=shlex.split, default=[], metavar="ARGS", help="passed to mpirun unchanged"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the command line and do not start it")
    for names, instead in _ELSEWHERE.items():
        parser.add_argument(*names, action=_Elsewhere, nargs=0, const=instead, help=argparse.SUPPRESS)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="command", help="what each rank runs")


def run(args: argparse.Namespace) -> int:
    from launch.starting import start

    return start(args)
