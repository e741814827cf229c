"""``spmd dump``: make the ranks of a running job write their flight records."""

import argparse
import sys

HELP = "make the ranks of a running job write their last communications, for spmd diagnose"

_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "process",
        nargs="?",
        type=int,
        metavar="JOB",
        help="process id of its launcher (default: the only job running here)",
    )


def run(args: argparse.Namespace, seconds: float = _SECONDS) -> int:
    """Return the exit status; wait up to `seconds` for the ranks to write."""
    from launch import recording

    jobs = [job for job in recording.running_jobs() if args.process in (None, job.process)]
    if not jobs:
        which = "no job" if args.process is None else f"no job of launcher {args.process}"
        print(f"spmd dump: {which} started by spmd launch is running on this machine", file=sys.stderr)
        return 2
    if len(jobs) > 1:
        processes = ", ".join(str(job.process) for job in jobs)
        print(f"spmd dump: several jobs are running here, of launchers {processes}: name one", file=sys.stderr)
        return 2
    job = jobs[0]
    if job.records is None:
        print("spmd dump: the job was started with COLLECTIVE_RECORDS= , which disables records", file=sys.stderr)
        return 2
    written = job.records_on_request(seconds)
    if not written:
        print("spmd dump: no rank has written a record: none communicates, or none responds", file=sys.stderr)
        return 1
    rest = "" if len(written) >= job.ranks else f" of {job.ranks}; the others do not respond, or are on other hosts"
    print(f"{job.records}: {len(written)} ranks{rest} (spmd diagnose {job.records})")
    return 0
