"""Elastic jobs whose ranks are killed at random moments.

``python -m tests.elastic.kills --runs 200`` draws numbers of ranks, victims and moments at random. A run is as it
should be when the job ends with status 0, every example of every epoch was counted once, the accuracy is that of a run
without losses within a percent, and neither processes nor files stay behind. The last lines tell the pauses: from a
rank's death to the first step that the others have finished without it. With ``--replace`` lost ranks are replaced, and
those that join are killed, too, while they start, join or run.
"""

import os
import random
import signal
import statistics
import sys
import time

from tests.elastic.jobs import ElasticJob
from tests.launch.failures import runs_parser

EPOCHS = 4
PACE = 0.02  # seconds a step, so that there is time to be killed in
SLOWER = 5  # so that there is time to join in


def main() -> int:
    parser = runs_parser(__doc__, 200)
    parser.add_argument("--replace", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    pace = PACE * SLOWER if options.replace else PACE
    arguments = ["--epochs", str(EPOCHS), "--pace", str(pace)]
    launch = ["--replace"] if options.replace else []
    longest = 2.0 * pace / PACE
    undisturbed = ElasticJob(4, arguments).finish().outcome["accuracy"]
    print(f"without losses: accuracy {undisturbed:.2%}", flush=True)
    bad, pauses = 0, []
    for number in range(options.runs):
        took: list[float] = []
        ranks = rng.randint(4, 6)
        victims = [0] * (rng.random() < 0.4)
        victims += rng.sample(range(1, ranks), rng.randint(1, 3) - len(victims))
        moments = sorted(rng.uniform(0, longest) for _ in victims)
        if rng.random() < 0.3:
            moments = [moments[0] + rng.uniform(0, 0.02) for _ in victims]  # all at once, or during recovery
        rng.shuffle(victims)
        ended, killed = _run(ranks, victims, sorted(moments), arguments, launch, rng)
        faults = ended.faults + ([] if ended.status == 0 else [f"status {ended.status}: {ended.screen[-2000:]}"])
        if ended.outcome:
            took = [after - moment for moment in killed.values() for after in _first(ended.outcome["resumed"], moment)]
            pauses += took
            faults += [] if ended.outcome["counted"] else ["examples were lost or counted twice"]
            if abs(ended.outcome["accuracy"] - undisturbed) > 0.01:
                faults.append(f"accuracy {ended.outcome['accuracy']:.2%}")
        bad += bool(faults)
        joined = ended.outcome.get("joined", 0)
        told = " ".join(f"{pause:.3f}" for pause in took) + "  " + ("; ".join(faults) or "well")
        print(f"{number + 1:4d}  {ranks} ranks, killed {list(killed)}, {joined} joined: pauses {told}", flush=True)
    if pauses:
        print(f"pauses: median {statistics.median(pauses):.3f} s, worst {max(pauses):.3f} s, {len(pauses)} in all")
    print(f"{options.runs - bad} of {options.runs} runs went well")
    return int(bad > 0)


def _first(moments: list[float], after: float) -> list[float]:
    return [moment for moment in moments if moment > after][:1]


def _run(ranks, victims, moments, arguments, launch, rng):  # type: ignore[no-untyped-def]
    """Kills the victims at moments after the start; how the job ended, and who was killed before it did.

    Where lost ranks are replaced, whoever runs may be the victim instead.
    """
    job, killed = ElasticJob(ranks, arguments, launch), {}
    assert job.process.stdout is not None
    job.process.stdout.readline()  # "started"
    began, processes = time.monotonic(), job.processes()
    for victim, moment in zip(victims, moments, strict=True):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        if launch:
            processes = job.processes()
            victim = rng.choice([*processes] + [number for number in processes if number >= ranks] * 2 or [victim])
        try:
            os.kill(processes[victim], signal.SIGKILL)
            killed[victim] = time.time()
        except (KeyError, ProcessLookupError):
            break
    return job.finish(), killed


if __name__ == "__main__":
    sys.exit(main())
