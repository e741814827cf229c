"""``spmd print``: print a program, unchanged or after a pass of the compiler."""

import argparse

from launch import options, output

HELP = "print a program in the pretty or the generic form, or after a compiler pass"

_SCHEDULE = "schedule"
#: The name of the function in generated source code.
_FUNCTION = "program"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.program(parser)
    parser.add_argument("--generic", action="store_true", help="print MLIR's generic form")
    parser.add_argument("--debug-info", action="store_true", help="print the locations in the program's text")
    parser.add_argument(
        "--after",
        metavar="PASS",
        help="print it after this pass, or after each one: all; or what follows the passes: schedule, c",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="number of threads of the schedule")


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
