"""``spmd launch --join``: request more ranks for an elastic job of this machine, and wait for the answer."""

import argparse
import sys
import time

from launch import remote
from spmd.runtime import requests

_LOOK = 0.05  # polling interval, in seconds
_ENDED = "the job has ended"
_DESERTED = "the job no longer takes requests here: its first rank runs on another host now"


def run(args: argparse.Namespace) -> int:
    """Return the exit status, 0 if all requested ranks have joined."""
    job, fault = _job(args.join)
    if job is None or args.program or args.elastic:
        fault = fault or "the ranks that --join starts run the job's own command; it takes -n and --hosts"
        print(f"spmd launch: {fault}", file=sys.stderr)
        return 2
    places = [host.name for host in args.hosts for _ in range(host.slots)]
    if job.host and (unknown := sorted(set(places) - {job.host})):
        print(f"spmd launch: the job runs on {job.host}, and not on {', '.join(unknown)}", file=sys.stderr)
        return 2
    if faults := remote.unreachable(args.hosts):
        print(f"spmd launch: {next(iter(faults.values()))}", file=sys.stderr)
        return 1
    number = args.ranks or len(places) or 1
    requests_sent = [requests.ask(job, places[index % len(places)] if places else "") for index in range(number)]
    answers = [_await_answer(job, request) for request in requests_sent]
    for joined, sentence in answers:
        print(sentence if joined else f"spmd launch: {sentence}", file=sys.stdout if joined else sys.stderr)
    return int(not all(joined for joined, _ in answers))


def _job(process: int) -> tuple[requests.RunningJob | None, str]:
    """Return the job whose launcher is `process`, or the only job for 0; otherwise None and the reason."""
    running = requests.running_jobs()
    chosen = [job for job in running if process in (0, job.process)]
    if not chosen:
        return None, f"no elastic job of process {process} runs here" if process else "no elastic job runs here"
    if len(chosen) > 1:
        processes = ", ".join(str(job.process) for job in chosen)
        return None, f"several elastic jobs run here: say which with --join PROCESS, one of {processes}"
    if not chosen[0].most:
        return None, "the job was started without --max-ranks or --replace: no rank can join it"
    return chosen[0], ""


def _await_answer(job: requests.RunningJob, request: requests.JoinRequest) -> tuple[bool, str]:
    """Wait for the answer to a request; return whether the rank has joined, and a message."""
    while (answer := request.answered) is None:
        if job not in requests.running_jobs():
            return False, _ENDED
        if job.is_deserted:
            return False, _DESERTED
        time.sleep(_LOOK)
    return answer
