"""``spmd print``: read a program and print it again, as it is or as the compiler's passes leave it."""

import argparse

from launch import options, output

HELP = "reprint a program, in the pretty or the generic form, or as a pass leaves it"

_SCHEDULE = "schedule"
#: The name of the function that is printed as a source.
_FUNCTION = "program"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.program(parser)
    parser.add_argument("--generic", action="store_true", help="every op in MLIR's generic form")
    parser.add_argument("--debug-info", action="store_true", help="with the locations that the program came with")
    parser.add_argument(
        "--after",
        metavar="PASS",
        help="as this pass leaves it, or each pass in turn: all; or what is made after them: schedule, c",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="of the schedule: how many share the work")


def run(args: argparse.Namespace) -> int:
    import spmd

    module = spmd.load(args.program)
    if args.after is None:
        output.write_program(module.to_string(generic=args.generic, debug_info=args.debug_info))
        return 0
    from spmd.ahead import compile_source
    from spmd.backends.native import SOURCES
    from spmd.compiler.pipeline.lower import ModuleLowering
    from spmd.compiler.pipeline.passes import NAMES, after_each, with_function
    from spmd.compiler.pipeline.prepare import prepare

    if args.after in SOURCES:
        text = compile_source(module, function=args.function, name=_FUNCTION, language=args.after)
        output.write_program(text.rstrip())
        return 0
    if args.after not in (*NAMES, _SCHEDULE, "all"):
        passes, made = ", ".join(NAMES), ", ".join((_SCHEDULE, *SOURCES))
        raise spmd.SpmdError(f"no pass {args.after!r}; the passes are {passes}, or all of them: all; then {made}")
    prepared = prepare(module, None, args.function, threads=args.threads)
    lowering = ModuleLowering(prepared.module, prepared.options)
    if args.after == _SCHEDULE:
        from spmd.compiler.schedule.text import schedule_text

        body = lowering.flatten(prepared.function).body
        output.write_program(schedule_text(lowering.schedule(body), lowering.schedule).rstrip())
        return 0
    for name, function in after_each(prepared.module, prepared.function, lowering.pass_context):
        if args.after in (name, "all"):
            if args.after == "all":
                output.write_program(f"// ----- after {name}")
            output.write_program(with_function(prepared.module, function).to_string(generic=args.generic))
    return 0
