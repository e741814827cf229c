"""Elastic jobs whose ranks are killed or stopped at random moments.

``python -m tests.elastic.kills --runs 200`` draws for each run numbers of ranks, victims, signals (SIGKILL, SIGSTOP, or
both) and moments, from the first second of the job on until a job without losses ends (which depends on what else the
machine does: it is measured anew every ten runs); ``--from N`` begins with run N of the seed. A run is as it
should be when the job ends with status 0, every example of every epoch was counted once, the accuracy is that of a run
without losses within a percent, and neither processes nor files stay behind. The last lines give the pauses: from a
rank's death to the first step that the others have finished without it. With ``--replace`` lost ranks are replaced, and
those that join are victims, too, while they start, join or run; ``--mixed`` draws that as well. With ``--saving`` the
victims are killed at drawn points of writing checkpoints (`tests.elastic.save_points`); the last one has to be whole.
"""

import os
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field

from spmd import checkpoint
from tests.elastic.jobs import ElasticJob, EndedElasticJob
from tests.elastic.save_points import PASSES, options, points
from tests.launch.failures import runs_parser

EPOCHS = 3
STEPS = 23 * EPOCHS
PACE = 0.02  # seconds a step, so that there is time to be killed in
SLOWER = 5  # where ranks are replaced: so that there is time to join in
FIRST = 1.0  # seconds after the job's start
SIGNALS = {"kills": [signal.SIGKILL], "stops": [signal.SIGSTOP], "both": [signal.SIGKILL, signal.SIGSTOP]}
PATIENCE = 2.0  # seconds


@dataclass
class RandomRun:
    """What happens to one job. `events` are the moments, in seconds from its start, each with a victim and a signal."""

    ranks: int
    replace: bool
    events: list[tuple[float, int, signal.Signals]]
    sent: dict[int, float] = field(default_factory=dict)

    @classmethod
    def draw(cls, rng: random.Random, replace: bool | None, kinds: list[str], seconds: float) -> "RandomRun":
        """`seconds` is how long a job without losses takes."""
        ranks = rng.randint(4, 6)
        if replace is None:
            replace = rng.random() < 0.4
        longest = max(FIRST + 1, seconds + replace * STEPS * PACE * (SLOWER - 1))
        victims = [0] * (rng.random() < 0.4)
        victims += rng.sample(range(1, ranks), rng.randint(1, 3) - len(victims))
        rng.shuffle(victims)
        moments = [rng.uniform(FIRST, longest) for _ in victims]
        if (close := rng.random()) < 0.5:  # all at once, or while the others recover
            moments = [moments[0] + rng.uniform(0, 0.02 if close < 0.25 else 1.0) for _ in victims]
        signals = SIGNALS[rng.choice(kinds)]
        return cls(ranks, replace, [(m, v, rng.choice(signals)) for m, v in zip(sorted(moments), victims, strict=True)])

    @property
    def arguments(self) -> list[str]:
        return ["--epochs", str(EPOCHS), "--pace", str(PACE * SLOWER if self.replace else PACE)]

    def run(self, rng: random.Random) -> EndedElasticJob:
        """Sends the signals. Where lost ranks are replaced, whoever runs may be the victim instead."""
        options = ["--patience", str(PATIENCE), *["--replace"] * self.replace]
        began = time.monotonic()
        job = ElasticJob(self.ranks, self.arguments, options)
        for moment, victim, number in self.events:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            processes = job.processes()
            if self.replace:
                joined = [rank for rank in processes if rank >= self.ranks]
                victim = rng.choice([*processes, *joined, *joined] or [victim])
            try:
                os.kill(processes[victim], number)
                self.sent[victim] = time.time()
            except (KeyError, ProcessLookupError):  # not there yet, or lost already
                continue
        return job.finish()

    def __str__(self) -> str:
        events = ", ".join(f"{victim} {number.name[3:].lower()} {at:.2f}" for at, victim, number in self.events)
        return f"{self.ranks} ranks{', replace' * self.replace}: {events}; sent to {list(self.sent)}"


@dataclass
class SavingRun:
    """A job whose ranks are killed while they write the checkpoints of its epochs, at once or in threads."""

    ranks: int
    replace: bool
    how: str
    faults: list[str]

    @classmethod
    def draw(cls, rng: random.Random, replace: bool | None) -> "SavingRun":
        ranks, how = rng.randint(3, 5), rng.choice(["wait", "thread"])
        faults = []
        for victim in rng.sample(range(ranks), rng.randint(1, ranks - 1)):
            point, _, number = rng.choice(points(how, victim)).partition(":")
            # Of any of the checkpoints: a rank comes to so many points in each.
            later = rng.randrange(EPOCHS) * PASSES[how, "other" if victim else "first"][point.partition("-")[2]]
            faults.append(f"{victim}:kill@{point}:{int(number) + later}")
        return cls(ranks, rng.random() < 0.4 if replace is None else replace, how, faults)

    def faults_found(self, accuracy: float) -> tuple[list[str], str]:
        """Run it; return what was not as it should be, and what it wrote."""
        with tempfile.TemporaryDirectory(prefix="el-") as folder:
            line = ["--epochs", str(EPOCHS), "--checkpoints", folder, "--faults", ",".join(self.faults)]
            shared = ["--patience", str(PATIENCE), *["--replace"] * self.replace]
            ended = ElasticJob(self.ranks, [*line, *options(self.how)], shared).finish()
            found = faults_of(ended, accuracy)
            if checkpoint.newest(folder) != STEPS:
                found.append("the last checkpoint is not whole")
            return found, ended.screen


def save_kills(first: int, runs: int, seed: int, replace: bool | None) -> int:
    """Run jobs whose ranks are killed while they save; return how many were not as they should be."""
    undisturbed, _ = without_losses()
    bad = 0
    for number in range(first, first + runs):
        run = SavingRun.draw(random.Random(f"{seed}/{number}"), replace)
        began = time.monotonic()
        faults, screen = run.faults_found(undisturbed)
        bad += bool(faults)
        print(f"{number:4d} {time.monotonic() - began:5.1f} s  {run}: {'; '.join(faults) or 'well'}", flush=True)
        if faults:
            print(screen[-6000:], flush=True)
    print(f"{runs - bad} of {runs} runs went well")
    return bad


def faults_of(ended: EndedElasticJob, accuracy: float) -> list[str]:
    """What was not as it should be."""
    faults = list(ended.faults)
    if ended.status:
        faults.append(f"status {ended.status}")
    if not ended.outcome:
        return [*faults, "no outcome"]
    faults += [] if ended.outcome["counted"] else ["examples were lost or counted twice"]
    if abs(ended.outcome["accuracy"] - accuracy) > 0.01:
        faults.append(f"accuracy {ended.outcome['accuracy']:.2%}")
    return faults


def without_losses() -> tuple[float, float]:
    """The accuracy that a job without losses comes to, and how many seconds it takes."""
    began = time.monotonic()
    accuracy = ElasticJob(5, RandomRun(5, False, []).arguments).finish().outcome["accuracy"]
    seconds = time.monotonic() - began
    print(f"without losses: accuracy {accuracy:.2%}, {seconds:.1f} s", flush=True)
    return accuracy, seconds


def main() -> int:
    parser = runs_parser(__doc__, 200)
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="N")
    parser.add_argument("--kinds", nargs="+", choices=sorted(SIGNALS), default=sorted(SIGNALS))
    grown = parser.add_mutually_exclusive_group()
    grown.add_argument("--replace", action="store_true")
    grown.add_argument("--mixed", action="store_const", const=None, dest="replace")
    parser.add_argument("--saving", action="store_true")
    chosen = parser.parse_args()
    if chosen.saving:
        return int(save_kills(chosen.first, chosen.runs, chosen.seed, chosen.replace) > 0)
    bad, pauses = 0, []
    for number in range(chosen.first, chosen.first + chosen.runs):
        if (number - chosen.first) % 10 == 0:
            undisturbed, seconds = without_losses()
        rng = random.Random(f"{chosen.seed}/{number}")
        run = RandomRun.draw(rng, chosen.replace, chosen.kinds, seconds)
        began = time.monotonic()
        ended = run.run(rng)
        resumed = ended.outcome.get("resumed", [])
        took = [after - moment for moment in run.sent.values() for after in [t for t in resumed if t > moment][:1]]
        pauses += took
        faults = faults_of(ended, undisturbed)
        bad += bool(faults)
        told = f"{' '.join(f'{pause:.2f}' for pause in took)}  {'; '.join(faults) or 'well'}"
        print(f"{number:4d} {time.monotonic() - began:5.1f} s  {run}: pauses {told}", flush=True)
        if faults:
            print(ended.screen[-6000:], flush=True)
    if pauses:
        print(f"pauses: median {statistics.median(pauses):.3f} s, worst {max(pauses):.3f} s, {len(pauses)} in all")
    print(f"{chosen.runs - bad} of {chosen.runs} runs went well")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
