"""A pytest plugin: run a StableHLO snippet on a grid of processes, and compare what each process returns.

pytest finds it where spmd is installed, and ``pytest_plugins = ["spmd.testing"]`` in a conftest.py brings it where it
is not. It has the fixture ``spmd_run``:

    def test_sum(spmd_run):
        run = spmd_run('''
            func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
              %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}
                : (tensor<2xf32>) -> tensor<2xf32>
              return %0 : tensor<2xf32>
            }''', grid=(2, 1), inputs=lambda rank: [np.full(2, rank, np.float32)])
        run.expect(lambda rank: [np.full(2, 1, np.float32)])

Processes are threads of the test's own, or with ``mode="stacked"`` one stacked program. With ``explore=100`` they run
in that many orders of their communication, by seeds (see spmd.explore), and a test fails where results differ.

Under ``mpirun -n 2 python -m pytest --with-mpi`` (pytest-mpi), they are the ranks, where there are as many as the grid
has processes; each rank then compares its own values, and a test fails on all ranks when it fails on one.

Where a test fails with an error of spmd's, the report shows the frames of the test alone, and those of spmd with
``--full-trace``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from collectives import errors
from collectives.late_names import loaded_when_used as _loaded_when_used

if TYPE_CHECKING:
    from spmd.testing.running import Outcome as Outcome

    Run = Callable[..., Outcome]

#: Loaded when it is used: pytest imports this module in every run.
__getattr__ = _loaded_when_used(__name__, {"Outcome": "spmd.testing.running"})


@pytest.fixture
def spmd_run() -> Run:
    """`spmd_run(program, grid=None, inputs=(), explore=0, **options) -> Outcome`.

    `program` is StableHLO text or a Module, `grid` a ProcessGrid or (replicas, partitions), by default the module's
    own; `inputs` the arguments of each process; `options` those of spmd.run_parallel (on ranks, those of spmd.compile).
    `explore` is how many orders of communication are tried; under MPI, the ranks run in their own.
    Raises UsageError where the grid is no such pair, or where there is no entry for each of its processes.
    """
    from spmd.testing.running import run  # imported lazily, as Outcome is

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Hide spmd's own frames where an error of a user's program or call is reported."""
    if call.excinfo is None or not _is_plain(call.excinfo):
        return
    for entry in call.excinfo.traceback:
        if errors.is_own_frame(entry.frame.raw):
            entry.frame.f_globals["__tracebackhide__"] = _is_plain


def _is_plain(failure: pytest.ExceptionInfo[BaseException]) -> bool:
    return errors.is_reported_without_frames(failure.value)
