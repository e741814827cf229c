"""``spmd launch``: start a command on several MPI ranks of this machine, or of the allocation it runs in."""

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launch import elastic, hosts, job, joining, mpirun, options, parallel, remote, values
from spmd.runtime import thread_share
from spmd.support import machine

if TYPE_CHECKING:
    from spmd.elastic.settings import Settings

HELP = "start a command on MPI ranks, with the flags this machine needs"


#: Options of mpirun and srun that users bring along, and what serves instead.
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
    """An option of another launcher: refused with what serves instead, which `const` says."""

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
    parser.add_argument("--threads", type=values.positive, help="threads of numerical libraries a rank (default: 1)")
    parser.add_argument(
        "--bind",
        action=argparse.BooleanOptionalAction,
        help="give each rank cores of its own (default: when the job fills the machine)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--hosts", type=hosts.from_text, default=(), metavar="A:2,B:2", help="the hosts to use, and ranks on each"
    )
    where.add_argument(
        "--hostfile", type=hosts.from_file, dest="hosts", metavar="FILE", help="the same, a host a line: A slots=2"
    )
    parser.add_argument(
        "--elastic", action="store_true", help="go on when ranks are lost (see spmd.elastic); Open MPI alone can"
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
        help="let -n ranks (default: 1) join the elastic job that runs here, or the one whose launcher is PROCESS",
    )
    parser.add_argument(
        "--profile", metavar="FILE", help="write a trace of every program of all ranks (see spmd.profile)"
    )
    options.profile_steps(
        parser, "with --profile: keep these steps of each program alone, such as 2:10 (see spmd.profile)"
    )
    parallel.add_timeout_arguments(parser)
    parser.add_argument("--mpirun-args", type=shlex.split, default=[], metavar="ARGS", help="passed to mpirun as is")
    parser.add_argument("--dry-run", action="store_true", help="print the command line and do not start it")
    for names, instead in _ELSEWHERE.items():
        parser.add_argument(*names, action=_Elsewhere, nargs=0, const=instead, help=argparse.SUPPRESS)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="command", help="what each rank runs")


def run(args: argparse.Namespace) -> int:
    if args.join is not None:
        return joining.run(args)
    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        print("spmd launch: no command given: spmd launch -n 4 -- python train.py", file=sys.stderr)
        return 2
    if not (shutil.which(command[0], path=mpirun.search_path()) or mpirun.in_allocation()):
        what = (
            f"{command[0]} is not executable" if os.path.exists(command[0]) else f"there is no command {command[0]!r}"
        )
        print(f"spmd launch: {what}{_likely(command)}", file=sys.stderr)
        return 2
    if args.ranks is None:
        args.ranks = sum(host.slots for host in args.hosts) or mpirun.allocated_ranks() or machine.usable_cores()
    if (fault := _misuse(args)) is not None:
        print(f"spmd launch: {fault}", file=sys.stderr)
        return 2
    launcher = mpirun.find()
    if launcher is None:
        print(mpirun.HOW_TO_INSTALL, file=sys.stderr)
        return 127
    if args.hosts and launcher.kind == "srun":
        print("spmd launch: srun takes the hosts of its allocation; --hosts needs mpirun", file=sys.stderr)
        return 2
    if args.elastic and (reason := elastic.refusal(launcher)) is not None:
        print(f"spmd launch: {reason}", file=sys.stderr)
        return 2
    threads = args.threads or (None if thread_share.said_by_user() else 1)
    chosen = _elastic_settings(args) if args.elastic else None
    settings = parallel.timeout_settings(args) | (chosen.variables() if chosen else {})
    if args.profile is not None:
        settings["SPMD_PROFILE"] = os.path.abspath(args.profile)
    if args.profile_steps is not None:
        settings["SPMD_PROFILE_STEPS"] = f"{args.profile_steps.start}:{args.profile_steps.stop}"
    plan = mpirun.Job(
        command,
        args.ranks,
        threads,
        args.bind,
        args.mpirun_args,
        settings,
        elastic=args.elastic,
        grows=chosen is not None and chosen.grows,
        hosts=tuple(args.hosts),
    )
    line, added = mpirun.command_line(launcher, plan), mpirun.environment(plan)
    if args.dry_run:
        variables = [f"{name}={value}" for name, value in added.items() if name != "PATH"]
        print(shlex.join([*variables, *line]))
        return 0
    if args.elastic and (fault := remote.unreachable(args.hosts)) is not None:
        print(f"spmd launch: {fault}", file=sys.stderr)
        return 1
    alone = mpirun.on_one_machine(launcher, plan)
    host = os.uname().nodename if alone else ""
    growth = None if chosen is None else job.Growth(args.ranks, chosen.most, host, chosen.patience)
    return job.run(line, added, launcher.kind, one_machine=alone, growth=growth, ranks=args.ranks)


def _likely(command: Sequence[str]) -> str:
    """What was likely meant by a command that there is not."""
    if command[0].isdecimal() and len(command) > 1:
        return f": spmd launch -n {shlex.join(command)}"
    return f": python {shlex.join(command)}?" if command[0].endswith(".py") else ""


def _misuse(args: argparse.Namespace) -> str | None:
    """What is wrong with options that go together."""
    if args.profile is None and args.profile_steps is not None:
        return "--profile-steps are those of a --profile FILE"
    slots = sum(host.slots for host in args.hosts)
    if args.hosts and args.ranks > slots:
        return f"{args.ranks} ranks do not fit the {slots} that the hosts are to take"
    if not args.elastic and (args.replace or {args.min_ranks, args.patience, args.max_ranks} != {None}):
        return "--min-ranks, --max-ranks, --replace and --patience are for jobs that go on without ranks: add --elastic"
    if args.min_ranks is not None and args.min_ranks > args.ranks:
        return f"--min-ranks {args.min_ranks} are more than the {args.ranks} ranks that are started"
    if args.max_ranks is not None and args.max_ranks < args.ranks:
        return f"--max-ranks {args.max_ranks} are fewer than the {args.ranks} ranks that are started"
    return None


def _elastic_settings(args: argparse.Namespace) -> "Settings":
    """What the ranks' spmd.elastic reads."""
    from spmd.elastic.settings import Settings

    chosen = Settings.from_environment()
    most = args.max_ranks or (args.ranks if args.replace else 0)
    return Settings(
        chosen.minimum if args.min_ranks is None else args.min_ranks,
        chosen.patience if args.patience is None else args.patience,
        args.ranks if args.replace else 0,
        most,
        tuple(remote.joining_command(Path(__file__).parents[2])) if most and args.hosts else (),
    )
