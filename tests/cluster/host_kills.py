"""Elastic jobs of which one of two hosts is lost at a random moment, all at once.

``python -m tests.cluster.host_kills --runs 10`` tells the pauses: from the host's end to the first step that the other
host's ranks have finished without it. A run is as it should be as those of ``tests.elastic.kills`` are.
"""

import json
import random
import statistics
import sys
import time

from tests.cluster.jobs import ClusterJob
from tests.cluster.machines import Hosts
from tests.elastic.jobs import ACCURACY, WORKER
from tests.elastic.kills import EPOCHS, PACE
from tests.launch.failures import runs_parser

LONGEST = 2.0  # seconds after the first step


def main() -> int:
    options = runs_parser(__doc__, 10).parse_args()
    rng = random.Random(options.seed)
    bad, pauses = 0, []
    for number in range(options.runs):
        pause, faults = _run(rng.uniform(0, LONGEST))
        bad += bool(faults)
        pauses += [] if pause is None else [pause]
        told = "none" if pause is None else f"{pause:.3f} s"
        print(f"{number + 1:4d}  pause {told}  {'; '.join(faults) or 'well'}", flush=True)
    if pauses:
        print(f"pauses: median {statistics.median(pauses):.3f} s, worst {max(pauses):.3f} s")
    print(f"{options.runs - bad} of {options.runs} runs went well")
    return int(bad > 0)


def _run(moment: float) -> tuple[float | None, list[str]]:
    """One job, whose host `b` is lost `moment` seconds after its first step: the pause, and what was wrong."""
    with Hosts() as hosts:
        command = ["python", str(WORKER), "--epochs", str(EPOCHS), "--pace", str(PACE)]
        job = ClusterJob(hosts, command, ["--elastic", "--hosts", "a:2,b:2"])
        job.wait_for("started")
        time.sleep(moment)
        killed = time.time()
        hosts.b.kill()
        ended = job.finish()
    faults = ended.faults + ([] if ended.status == 0 else [f"status {ended.status}: {ended.screen[-2000:]}"])
    if not ended.said.strip():
        return None, faults
    answer = json.loads(ended.said.splitlines()[-1])
    faults += [] if answer["counted"] else ["examples were lost or counted twice"]
    faults += [] if answer["accuracy"] > ACCURACY else [f"accuracy {answer['accuracy']:.2%}"]
    return next((after - killed for after in answer["resumed"] if after > killed), None), faults


if __name__ == "__main__":
    sys.exit(main())
