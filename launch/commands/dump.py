"""``spmd dump``: have the ranks of a running job write what they did last."""

import argparse
import sys

HELP = "have the ranks of a running job write what they did last, for spmd diagnose"

_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "process", nargs="?", type=int, metavar="JOB", help="its launcher's process (default: the job that runs here)"
    )


def run(args: argparse.Namespace, seconds: float = _SECONDS) -> int:
    """Return the exit status; all ranks are given `seconds` to write."""
    from launch import recording

    jobs = [job for job in recording.running_jobs() if args.process in (None, job.process)]
    if not jobs:
        which = "no job" if args.process is None else f"no job of the launcher {args.process}"
        print(f"spmd dump: there is {which} that spmd launch runs on this machine", file=sys.stderr)
        return 2
    if len(jobs) > 1:
        processes = ", ".join(str(job.process) for job in jobs)
        print(f"spmd dump: several jobs run here, of the launchers {processes}: name one", file=sys.stderr)
        return 2
    job = jobs[0]
    if job.records is None:
        print("spmd dump: the job was started with COLLECTIVE_RECORDS= , which has nothing written", file=sys.stderr)
        return 2
    written = job.records_on_request(seconds)
    if not written:
        print("spmd dump: no rank has written anything: none communicates, or none answers", file=sys.stderr)
        return 1
    rest = "" if len(written) >= job.ranks else f" of {job.ranks}; the others do not answer, or are on other hosts"
    print(f"{job.records}: {len(written)} ranks{rest} (spmd diagnose {job.records})")
    return 0
