"""Outcomes of tests: lines of JSON that children append as they go, so that a crash loses at most one test."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

PASSED, SKIPPED, FAILED, CRASHED, TIMED_OUT = "passed", "skipped", "failed", "crashed", "timed out"
#: From best to worst: of the outcomes of a test on several processes, the worst counts.
_ORDER = (PASSED, SKIPPED, FAILED, CRASHED, TIMED_OUT)
_STARTED = "started"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test: one of the words above, the reason, and the CPU time in seconds."""

    name: str
    outcome: str
    text: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """Return the outcome as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"


def started(name: str) -> Outcome:
    """Return the record that a child writes before it runs a test."""
    return Outcome(name, _STARTED)


def read(file: Path) -> tuple[dict[str, Outcome], str | None]:
    """Return the outcomes in a file, by test, and the test that was started and has not ended, or None."""
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
    """Return the worst of a test's outcomes on several processes."""
    return max(outcomes, key=lambda outcome: _ORDER.index(outcome.outcome))
