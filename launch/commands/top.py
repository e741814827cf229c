"""``spmd top``: the jobs running on this machine, and the current state of each rank."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from launch import options, terminal, values

if TYPE_CHECKING:
    from launch.recording import LaunchedJob
    from launch.watching import RankState

HELP = "show each rank of a running job: computing or waiting, for which ranks, how long; steps per second; memory"

_COLUMNS = ("rank", "steps/s", "late", "memory", "for", "does")
#: Minimum interval between updates in seconds: each one costs the ranks some time.
_LEAST = 0.2
_ANSWER = 2.0
#: Moves the cursor to the top and clears the screen below (ECMA-48, CUP and ED).
_CLEAR = "\x1b[H\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "process",
        nargs="?",
        type=int,
        metavar="JOB",
        help="process id of its launcher (default: the only job running here)",
    )
    parser.add_argument(
        "--once", action="store_true", help="show it once (the default if the output is not a terminal)"
    )
    use = "seconds between updates (default: %(default)s)"
    options.valued(parser, "--every", values.seconds, "SECONDS", use, 2.0)


def run(args: argparse.Namespace, seconds: float = _ANSWER) -> int:
    """Return the exit status; each update waits up to `seconds` for the ranks."""
    from launch.recording import running_jobs

    jobs = sorted(running_jobs(), key=lambda job: job.process)
    chosen = [job for job in jobs if args.process in (None, job.process)]
    if not chosen:
        which = "no job" if args.process is None else f"no job of launcher {args.process}"
        print(f"spmd top: {which} started by spmd launch is running on this machine", file=sys.stderr)
        return 2
    if len(chosen) > 1:
        _show(
            "several jobs: name one to see its ranks", ("job", "ranks"), [(str(j.process), str(j.ranks)) for j in jobs]
        )
        return 0
    if chosen[0].records is None:
        print("spmd top: the job was started with COLLECTIVE_RECORDS= , which disables records", file=sys.stderr)
        return 2
    return _watch(chosen[0], args, seconds)


def _watch(job: "LaunchedJob", args: argparse.Namespace, seconds: float) -> int:
    from launch.recording import running_jobs
    from launch.watching import look

    live = sys.stdout.isatty() and not args.once
    while True:
        states = look(job, seconds)
        if live:
            sys.stdout.write(_CLEAR)
        _show(_heading(job, states), _COLUMNS, list(map(_row, states)))
        if not live:
            return 0 if states else 1
        sys.stdout.flush()
        time.sleep(max(_LEAST, args.every))
        if job.process not in {each.process for each in running_jobs()}:
            print("the job has ended")
            return 0


def _heading(job: "LaunchedJob", states: Sequence["RankState"]) -> str:
    header = f"job {job.process}, {len(states)} of {job.ranks} ranks respond"
    late = [state for state in states if state.late is not None]
    if late:
        slowest = max(late, key=lambda state: state.late or 0.0)
        header += f"; rank {slowest.rank} comes last, {_seconds(slowest.late)} after the first on average"
    return header


def _row(state: "RankState") -> tuple[str, ...]:
    from spmd.support.amounts import amount

    steps = "" if state.steps is None else f"{state.steps:.3g}"
    memory = "" if state.memory is None else amount(state.memory)
    place = f" ({state.place})" if state.place else ""
    return str(state.rank), steps, _seconds(state.late), memory, _seconds(state.seconds), f"{state.text}{place}"


def _seconds(seconds: float | None) -> str:
    from spmd.predict.report import duration

    return "" if seconds is None else duration(seconds)


def _show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if terminal.is_rich():
        last = len(columns) - 1
        table = terminal.Table(title, [terminal.Column(name, at < last, at == last) for at, name in enumerate(columns)])
        for row in rows:
            table.add(*row)
        terminal.show(table)
        return
    print("\n".join([title, *_plain(columns, rows)]))


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        *numbers, text = row
        yield "  ".join([*(cell.rjust(width) for cell, width in zip(numbers, widths, strict=False)), text])
