"""``spmd predict``: predict the time of a step on machines that are not available."""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from launch import machines, options, programs, terminal, values
from launch.progress import doing

if TYPE_CHECKING:
    from collectives.network import Network
    from spmd.ir import Module
    from spmd.predict.machine import Machine
    from spmd.predict.prediction import Prediction

HELP = "predict the time and memory of a program's step on a machine or cluster"

#: Standard deviation of the floats that --check makes, as small as parameters are. Larger ones drive softmaxes into
#: subnormal numbers, on which processors are many times slower.
_CHECKED_SCALE = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.program(parser)
    options.grid(parser)
    machines.add_arguments(parser)
    parser.add_argument(
        "--turns",
        type=values.positive,
        default=1,
        metavar="N",
        help="iterations of loops without a static trip count (default: %(default)s)",
    )
    options.communication(parser)
    parser.add_argument("--trace", metavar="FILE.json", help="write the step as a trace for Perfetto")
    parser.add_argument("--json", action="store_true", help="print JSON")
    what = parser.add_mutually_exclusive_group()
    use = "print speed-up and efficiency for these numbers of processes (sharded or data-parallel programs)"
    options.valued(what, "--sweep", values.counts, "1,2,4,...,4096", use)
    what.add_argument(
        "--check", action="store_true", help="also run the program, on the available ranks, and compare by unit"
    )
    parser.add_argument("--axis", help="the mesh axis that --sweep resizes (default: the first)")
    options.seed(parser, "of the arguments that --check makes", default=0)


def run(args: argparse.Namespace) -> int:
    import spmd

    if args.check and args.topology is not None:
        raise spmd.UsageError("--check runs on this machine: it takes no --topology")
    machine, network = machines.chosen(args)
    module = programs.load(args.program, args.function)
    if args.sweep:
        return _sweep(args, module, machine, network)
    return _check(args, module, machine) if args.check else _predict(args, module, machine, network)


def _predict(args: argparse.Namespace, module: "Module", machine: "Machine", network: "Network | None") -> int:
    from spmd.compiler.pipeline.prepare import prepare
    from spmd.predict.prediction import predict
    from spmd.predict.report import page
    from spmd.predict.trace import predicted_events
    from spmd.runtime.trace import write_trace

    with doing("compiling and predicting"):
        prepared = prepare(module, args.grid, args.function, **options.compile_options(args))
        prediction = predict(prepared, machine, network, args.turns)
    if args.trace:
        write_trace(args.trace, predicted_events(prediction.timeline))
    if not args.json and terminal.is_rich():
        terminal.show(*_tables(prediction, args.program))
    else:
        print(json.dumps(prediction.to_json(), indent=1) if args.json else page(prediction, args.program))
    return 0


def _tables(prediction: "Prediction", title: str) -> Iterator[terminal.Table | str]:
    """Return a prediction for a terminal, with a bar for each share of the step."""
    from spmd.predict.report import SHOWN, duration, heading, parts_of_step
    from spmd.support.amounts import amount

    whole = prediction.seconds or 1.0
    numbers = [terminal.Column("", right=True), terminal.Column("", right=True), terminal.Column("", style="cyan")]
    step = terminal.Table(heading(prediction, title), [terminal.Column("", style="bold"), *numbers])
    step.add("a step", duration(prediction.seconds), "", "")
    for name, seconds in parts_of_step(prediction):
        step.add(name, duration(seconds), f"{seconds / whole:.1%}", terminal.bar(seconds / whole))
    yield step
    memory = {**vars(prediction.memory), "in all": prediction.memory.total}
    yield terminal.facts("memory of a process", [(name, amount(value)) for name, value in memory.items()])
    sent = prediction.levels.items()
    yield terminal.facts("sent, of all processes", [(f"level {name}", amount(value)) for name, value in sent])
    columns = [*numbers, terminal.Column("", wraps=True), terminal.Column("", wraps=True, style="dim")]
    hangs = terminal.Table("critical path", columns)
    for share in prediction.critical[:SHOWN]:
        took = duration(share.seconds), terminal.bar(share.share)
        hangs.add(f"{share.share:.1%}", *took, share.title, share.place)
    rest = prediction.critical[SHOWN:]
    if rest:
        seconds = sum(share.seconds for share in rest)
        hangs.add(f"{seconds / whole:.1%}", duration(seconds), terminal.bar(seconds / whole), f"{len(rest)} more", "")
    yield hangs
    yield from (f"note: {note}" for note in prediction.notes)


def _sweep(args: argparse.Namespace, module: "Module", machine: "Machine", network: "Network | None") -> int:
    from spmd.predict.sweep import sweep

    with doing("predicting each number of processes"):
        swept = sweep(
            module,
            args.function,
            args.sweep,
            machine,
            network,
            args.axis,
            args.grid,
            args.turns,
            **options.compile_options(args),
        )
    print(json.dumps(swept.to_json(), indent=1) if args.json else f"{args.program}, {machine.name}\n{swept.page()}")
    return 0


def _check(args: argparse.Namespace, module: "Module", machine: "Machine") -> int:
    from spmd.compiler.pipeline.prepare import prepare
    from spmd.io import arguments
    from spmd.predict.check import check
    from spmd.predict.trace import measured_events, predicted_events
    from spmd.runtime.compile import executable_of
    from spmd.runtime.trace import write_trace

    prepared = prepare(module, args.grid, args.function, **options.compile_options(args))
    executable = executable_of(prepared)
    arrays = executable.shard(*arguments.make(module, args.function, args.random, _CHECKED_SCALE))
    checked = check(prepared, executable, arrays, machine, args.turns)
    process = executable.process
    traces = process.communicator.exchange_results(list(checked.trace), "the gathering of times")
    if process.rank:
        return 0
    if args.trace:
        measured = [entry for rank, each in enumerate(traces) for entry in measured_events(rank, each)]
        write_trace(args.trace, [*predicted_events(checked.prediction.timeline), *measured])
    title = f"{args.program} on a {executable.grid} grid, {machine.name}: predicted and measured"
    text = json.dumps(checked.to_json(), indent=1) if args.json else checked.page(title)
    sys.stdout.write(text + "\n")
    return 0
