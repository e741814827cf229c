"""Tests on real ranks: how they are started, from outside, and kept in step, on the ranks."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import effort
from tests.mpi.ranks import REPORTS_VARIABLE, RankOutcome, RankVerdict, inside_ranks, meet, run_on_ranks

HERE = Path(__file__).parent
VERDICTS = pytest.StashKey[dict[str, RankVerdict]]()


def pytest_configure(config: pytest.Config) -> None:
    if inside_ranks() and REPORTS_VARIABLE in os.environ:
        from mpi4py import MPI

        file = Path(os.environ[REPORTS_VARIABLE]) / f"rank-{MPI.COMM_WORLD.rank}.jsonl"
        config.pluginmanager.register(RankReporter(MPI.COMM_WORLD.Dup(), file))


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Outside: report what the ranks say of this test, starting them when the first one is due."""
    if inside_ranks() or HERE not in item.path.parents:
        return None
    stash = item.session.stash
    if VERDICTS not in stash:
        nodeids = [other.nodeid for other in item.session.items if HERE in other.path.parents]
        stash[VERDICTS] = run_on_ranks(nodeids, effort.options(item.config))
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    item.ihook.pytest_runtest_logreport(report=_report(item, stash[VERDICTS][item.nodeid]))
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _report(item: pytest.Item, verdict: RankVerdict) -> pytest.TestReport:
    longrepr: Any = None
    if verdict.outcome == "skipped":
        longrepr = (str(item.path), item.location[1] or 0, verdict.text)
    elif verdict.outcome == "failed":
        longrepr = verdict.text
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=verdict.outcome,  # type: ignore[arg-type]
        longrepr=longrepr,
        when="call",
        duration=verdict.seconds,
    )


class RankReporter:
    """On a rank: notes outcomes as they come, and keeps all ranks in the same test.

    A rank that has failed a test leaves the others waiting for it inside; a rank that waits too long after a test ends
    the job, since nothing that follows could be believed.
    """

    def __init__(self, communicator: Any, file: Path) -> None:
        self._communicator = communicator
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        if report.failed:
            text += "".join(f"\n--- {title} ---\n{content}" for title, content in report.sections)
        outcome = RankOutcome(report.nodeid, report.when or "", report.outcome, text, report.duration)
        outcome.append_to(self._file)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        result = yield

        def end_job() -> None:
            print(f"rank {self._communicator.rank}: others are still in {item.nodeid}", flush=True)
            self._communicator.Abort(1)

        meet(self._communicator, end_job)
        return result
