"""Which tests a plain run leaves out, and how a run of many is spread over the processors by pytest-xdist.

A run of whole folders has a worker for each processor; one of single files or tests has none, and neither has one that
says so itself (``-n``, ``--dist``). The tests of a file run on one worker, one after another: they share what they
compile. All tests that start ranks are one such sequence, so that no two jobs of ranks run at the same time.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from collectives.system import usable_processors as processors
from tests.mpi.ranks import inside_ranks

#: Folders and files, below this one, whose tests start ranks, or other processes that take a processor each.
START_RANKS = ("mpi", "launch", "elastic", "cluster", "examples", "benchmarks", "checkpoint", "jax/test_trainers.py",
               "comparison", "collectives/test_every_reduction.py", "test_readme.py")  # fmt: skip
#: Those among them that kill ranks and hosts, or start a cluster, and take long.
SLOW = ("cluster", "elastic/test_losses.py", "elastic/test_joining.py", "elastic/test_shards.py", "elastic/test_jax.py")
#: What takes longest of the others: begun early, so that workers finish together.
LONGEST = ("backends/test_elementwise.py", "backends/test_reduction.py", "test_conformance.py",
           "jax/test_process_view.py", "partitioner/test_jax.py", "memory", "jax", "partitioner",
           "backends")  # fmt: skip
RANKS = "ranks"
#: In which pytest-xdist names its workers.
WORKER_VARIABLE = "PYTEST_XDIST_WORKER"


def spread(config: pytest.Config) -> None:
    """Chooses workers for this run, unless it has chosen itself."""
    chosen = config.option
    if not config.pluginmanager.hasplugin("xdist") or chosen.collectonly or chosen.usepdb:
        return
    if inside_ranks() or WORKER_VARIABLE in os.environ:  # started by a run that is spread already
        return
    if chosen.numprocesses is not None or chosen.dist != "no" or chosen.tx or not all(map(_is_folder, config.args)):
        return
    chosen.numprocesses, chosen.dist, chosen.loadscopereorder = len(processors()), "loadfile", False


def _is_folder(argument: str) -> bool:
    return Path(argument).is_dir()


def scheduler(config: pytest.Config, log: Any) -> Any:
    """What gives files to workers, the ranks first; None where the run has another way."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # xdist need not be installed

    class Files(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return RANKS if _is_among(file, START_RANKS) else file

        def remove_node(self, node: Any) -> str | None:
            """Gives the files of a worker that ended to others; returns the test that it died in, which has failed.

            xdist's own method leaves that test to the next worker, which dies of it as well.
            """
            files: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
            pending = [test for tests in files.values() for test, done in tests.items() if not done]
            if not pending:
                return None
            for tests in files.values():
                tests.update({test: True for test in pending[:1] if test in tests})
            self.workqueue.update({file: tests for file, tests in files.items() if not all(tests.values())})
            return pending[0]

        def schedule(self) -> None:
            """Gives files to workers that have few; ends those that replace others where no file is left.

            A worker runs its last test when it hears that no other follows.
            """
            super().schedule()
            if not self.workqueue:
                for node in self.nodes:
                    node.shutdown()

    return Files(config, log)


def longest_first(items: list[pytest.Item]) -> None:
    """Orders what a worker collects: files are given to workers in this order."""
    if WORKER_VARIABLE in os.environ:
        order = {file: _turn(file) for file in {_file(item) for item in items}}
        items.sort(key=lambda item: order[_file(item)])


def _turn(file: str) -> int:
    if _is_among(file, START_RANKS):
        return 0
    return next((turn for turn, entry in enumerate(LONGEST, 1) if _is_among(file, (entry,))), len(LONGEST) + 1)


def mark_slow(items: list[pytest.Item]) -> None:
    """Marks the tests of what is `SLOW`."""
    for file, tests in itertools.groupby(items, _file):
        if _is_among(file, SLOW):
            for item in tests:
                item.add_marker(pytest.mark.slow)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _is_among(file: str, entries: tuple[str, ...]) -> bool:
    """Whether `file`, a path from the project's folder on, is one of `entries`, or lies below one."""
    path = Path(file)
    return path.is_relative_to("tests") and any(path.relative_to("tests").is_relative_to(entry) for entry in entries)
