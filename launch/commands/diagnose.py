"""``spmd diagnose``: analyse records of ranks for faults, or a profile for where time went."""

import argparse
import json
from pathlib import Path

HELP = "find what went wrong from the ranks' records, or where time went from a profile"

DESCRIPTION = """\
FILES are records written by the ranks of a job, or their folder: those of spmd, or of PyTorch's flight recorder
(pickle or JSON). Prints which rank is behind or missing at which collective, which ranks called another one, and which
ranks the others waited for. Status 0: no rank is behind; 1: a rank is. For a profile (one file of spmd run --profile
or spmd launch --profile), prints rows that add up to its length, the time of each rank, the straggler and overlap.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of ranks, a folder, or one profile")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import spmd

    if len(args.files) == 1 and _is_profile(args.files[0]):
        from spmd.runtime.trace_summary import summary

        report = summary(args.files[0])
        print(json.dumps(report.to_json(), indent=1) if args.json else report)
        return 0
    from collectives.record.diagnosis import diagnose
    from collectives.record.reading import RecordError, read_all

    try:
        found = diagnose(read_all(args.files))
    except RecordError as error:
        raise spmd.UsageError(str(error)) from None
    print(json.dumps(found.to_json(), indent=1) if args.json else found)
    return int(found.fault)


def _is_profile(path: Path) -> bool:
    """Return whether a file is a trace in Chrome's format."""
    if path.is_dir():
        return False
    with path.open("rb") as file:
        if file.read(1) not in (b"{", b"["):
            return False
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(content, dict) and "traceEvents" in content
