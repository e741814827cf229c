"""Run tests of one file in this process: ``python -m benchmarks.jax_suite.child FILE [OUTCOMES NAMES]``.

Without OUTCOMES, prints the names of the file's tests as JSON. NAMES is a file of names, one per line. With several
processes (a launcher's ranks, or those numbered by JAX_SUITE_PROCESS) each writes OUTCOMES.number.
"""

import importlib
import json
import os
import signal
import sys
import time
import traceback
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from benchmarks.jax_suite.outcomes import FAILED, PASSED, SKIPPED, Outcome, started

#: Environment variables set by the parent: CPU time limit of a test, number of processes, number of this process.
SECONDS, PROCESSES, PROCESS, ADDRESS = (f"JAX_SUITE_{name}" for name in ("SECONDS", "PROCESSES", "PROCESS", "ADDRESS"))
_LONGEST_TEXT = 4000


class Recorder(unittest.TestResult):
    """Writes each outcome at once; a test that exceeds its CPU time limit kills the process (SIGPROF)."""

    def __init__(self, out: TextIO, limit: float) -> None:
        super().__init__()
        self._out, self._limit = out, limit
        self._outcome, self._text, self._began = PASSED, "", 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._outcome, self._text, self._began = PASSED, "", time.process_time()
        self._write(started(name_of(test)))
        signal.setitimer(signal.ITIMER_PROF, self._limit)

    def stopTest(self, test: unittest.TestCase) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        super().stopTest(test)
        seconds = round(time.process_time() - self._began, 2)
        self._write(Outcome(name_of(test), self._outcome, self._text[-_LONGEST_TEXT:], seconds))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._fail(err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._fail(err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._fail(err)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self._outcome, self._text = FAILED, "it passed, which was not expected"

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        if self._outcome == PASSED:
            self._outcome, self._text = SKIPPED, reason

    def _fail(self, error: Any) -> None:
        self._outcome, self._text = FAILED, self._text + "".join(traceback.format_exception(*error))

    def _write(self, outcome: Outcome) -> None:
        self._out.write(outcome.line())
        self._out.flush()


def name_of(test: unittest.TestCase) -> str:
    """Return the class and method of a test, without its parameters, which may contain addresses."""
    return f"{type(test).__name__}.{test._testMethodName}"


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Yield the tests of nested suites."""
    for member in suite:
        if isinstance(member, unittest.TestSuite):
            yield from tests_of(member)
        else:
            yield member


def _number() -> int:
    """Return the number of this process."""
    if PROCESS in os.environ:
        return int(os.environ[PROCESS])
    from mpi4py import MPI

    return MPI.COMM_WORLD.rank


def _join(file: Path, count: int) -> int:
    """Connect `count` processes as JAX's own tests do; return the number of this one."""
    import jax
    from absl import flags

    number = _number()
    jax.config.config_with_absl()  # type: ignore[no-untyped-call]
    importlib.import_module("jax._src.test_multiprocess")
    flags.FLAGS([str(file), f"--num_processes={count}"], known_only=True)
    jax.distributed.initialize(os.environ[ADDRESS], num_processes=count, process_id=number)
    return number


def main() -> None:
    file, *rest = map(Path, sys.argv[1:])
    sys.argv[1:] = []
    sys.path.insert(0, str(file.parent))
    count = int(os.environ.get(PROCESSES, "1"))
    if rest and count > 1:
        rest[0] = rest[0].with_name(f"{rest[0].name}.{_join(file, count)}")
    module = importlib.import_module(file.stem)
    tests = {name_of(test): test for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module))}
    if not rest:
        print(json.dumps(sorted(tests)))
        return
    wanted = rest[1].read_text().splitlines()
    with rest[0].open("a") as out:
        unittest.TestSuite(tests[name] for name in wanted).run(Recorder(out, float(os.environ[SECONDS])))


if __name__ == "__main__":
    main()
