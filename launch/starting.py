"""Start the job that the arguments of ``spmd launch`` describe."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launch import elastic, job, joining, mpirun, parallel, remote
from launch.streams import say
from spmd.runtime import thread_share
from spmd.support import machine

if TYPE_CHECKING:
    from spmd.elastic.settings import Settings


def start(args: argparse.Namespace) -> int:
    """Start the job, or join the one that runs, and return the exit status once it has ended."""
    if args.join is not None:
        return joining.run(args)
    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if args.ranks is None:
        args.ranks = sum(host.slots for host in args.hosts) or mpirun.allocated_ranks() or machine.usable_cores()
    if fault := _command_fault(command) or _misuse(args):
        return _refuse(fault)
    launcher = mpirun.find()
    if launcher is None:
        print(mpirun.HOW_TO_INSTALL, file=sys.stderr)
        return 127
    if fault := _launcher_fault(args, launcher):
        return _refuse(fault)
    chosen = _elastic_settings(args) if args.elastic else None
    plan = _plan(args, command, chosen)
    first = _start(launcher, plan, chosen)
    if args.dry_run:
        variables = [f"{name}={value}" for name, value in first.added_environment.items() if name != "PATH"]
        print(shlex.join([*variables, *first.command]))
        return 0
    if args.elastic and (faults := remote.unreachable(args.hosts)):
        return _refuse(next(iter(faults.values())), 1)
    return job.run(first, again=lambda: _restart(launcher, plan, chosen))


def _refuse(fault: str, status: int = 2) -> int:
    print(f"spmd launch: {fault}", file=sys.stderr)
    return status


def _plan(args: argparse.Namespace, command: list[str], chosen: Settings | None) -> mpirun.Job:
    """Return the job to start: `command`, and what the options say of its ranks and their environment."""
    settings = parallel.timeout_settings(args) | (chosen.variables() if chosen else {})
    if args.profile is not None:
        settings["SPMD_PROFILE"] = os.path.abspath(args.profile)
    if args.profile_steps is not None:
        settings["SPMD_PROFILE_STEPS"] = f"{args.profile_steps.start}:{args.profile_steps.stop}"
    return mpirun.Job(
        command,
        args.ranks,
        args.threads or (None if thread_share.said_by_user() else 1),
        args.bind,
        args.mpirun_args,
        settings,
        elastic=args.elastic,
        grows=chosen is not None and chosen.grows,
        hosts=tuple(args.hosts),
    )


def _start(launcher: mpirun.Launcher, plan: mpirun.Job, chosen: Settings | None) -> job.JobStart:
    """Return the command and environment that start `plan`, elastic if settings for that are `chosen`."""
    alone = mpirun.on_one_machine(launcher, plan)
    host = os.uname().nodename if alone else ""
    growth = None if chosen is None else job.Growth(plan.ranks, chosen.most, host, chosen.patience)
    line, added = mpirun.command_line(launcher, plan), mpirun.environment(plan)
    return job.JobStart(line, added, launcher.kind, alone, growth, plan.ranks)


def _restart(launcher: mpirun.Launcher, plan: mpirun.Job, chosen: Settings | None) -> job.JobStart | str:
    """Return the start of `plan` without the hosts that cannot be reached now, or why too few ranks are left."""
    lost = remote.unreachable(plan.hosts)
    for text in lost.values():
        say(f"spmd launch: {text}; the job is restarted without it")
    left = tuple(host for host in plan.hosts if host.name not in lost)
    ranks = min(plan.ranks, sum(host.slots for host in left)) if lost else plan.ranks
    least = max(chosen.minimum if chosen is not None else 1, 1)
    if ranks < least:
        return f"the other hosts take {ranks} rank{'s' * (ranks != 1)}, and at least {least} are needed"
    return _start(launcher, replace(plan, hosts=left, ranks=ranks), chosen)


def _command_fault(command: Sequence[str]) -> str:
    """Return why `command` cannot be run, with its likely correction; "" if it can."""
    if not command:
        return "no command given: spmd launch -n 4 -- python train.py"
    name = command[0]
    if shutil.which(name, path=mpirun.search_path()) or mpirun.in_allocation():
        return ""
    fault = f"{name} is not executable" if os.path.exists(name) else f"there is no command {name!r}"
    if name.isdecimal() and len(command) > 1:
        return f"{fault}: spmd launch -n {shlex.join(command)}"
    return f"{fault}: python {shlex.join(command)}?" if name.endswith(".py") else fault


def _launcher_fault(args: argparse.Namespace, launcher: mpirun.Launcher) -> str | None:
    """Return what of the options this launcher cannot do; None if nothing."""
    if args.hosts and launcher.kind == "srun":
        return "srun takes the hosts of its allocation; --hosts needs mpirun"
    return elastic.refusal(launcher) if args.elastic else None


def _misuse(args: argparse.Namespace) -> str | None:
    """Return what is wrong with a combination of options; None if nothing is."""
    if args.profile is None and args.profile_steps is not None:
        return "--profile-steps requires --profile FILE"
    slots = sum(host.slots for host in args.hosts)
    if args.hosts and args.ranks > slots:
        return f"{args.ranks} ranks do not fit into the {slots} slots of the hosts"
    if not args.elastic and (args.replace or {args.min_ranks, args.patience, args.max_ranks} != {None}):
        return "--min-ranks, --max-ranks, --replace and --patience require --elastic"
    if args.min_ranks is not None and args.min_ranks > args.ranks:
        return f"--min-ranks must be at most the {args.ranks} ranks that are started, got {args.min_ranks}"
    if args.max_ranks is not None and args.max_ranks < args.ranks:
        return f"--max-ranks must be at least the {args.ranks} ranks that are started, got {args.max_ranks}"
    return None


def _elastic_settings(args: argparse.Namespace) -> Settings:
    """Return the settings that the ranks' spmd.elastic reads."""
    from spmd.elastic.settings import Settings

    chosen = Settings.from_environment()
    most = args.max_ranks or (args.ranks if args.replace else 0)
    return Settings(
        chosen.minimum if args.min_ranks is None else args.min_ranks,
        chosen.patience if args.patience is None else args.patience,
        args.ranks if args.replace else 0,
        most,
        tuple(remote.joining_command(Path(__file__).parents[1])) if most and args.hosts else (),
    )
