"""What became of tests: lines of JSON that children write as they go, so that a crash loses one test at most."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

PASSED, SKIPPED, FAILED, CRASHED, TIMED_OUT = "passed", "skipped", "failed", "crashed", "timed out"
#: An outcome that several processes of one test have different opinions of is the last of these that one of them has.
_ORDER = (PASSED, SKIPPED, FAILED, CRASHED, TIMED_OUT)
_STARTED = "started"


@dataclass(frozen=True)
class Outcome:
    """What became of a test: one of the words above, why, and the seconds of processor time that it took."""

    name: str
    outcome: str
    text: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """Return the line of a file of outcomes."""
        return json.dumps(asdict(self)) + "\n"


def started(name: str) -> Outcome:
    """Return what a child writes before it runs a test."""
    return Outcome(name, _STARTED)


def read(file: Path) -> tuple[dict[str, Outcome], str | None]:
    """Return the outcomes in a file, by test, and the test that was started last and has not ended; None for none."""
    found: dict[str, Outcome] = {}
    running = None
    for line in file.read_text().splitlines() if file.exists() else ():
        outcome = Outcome(**json.loads(line))
        if outcome.outcome == _STARTED:
            running = outcome.name
            continue
        found[outcome.name] = outcome
        running = None
    return found, running


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the one of a test's outcomes on several processes that counts."""
    return max(outcomes, key=lambda outcome: _ORDER.index(outcome.outcome))
