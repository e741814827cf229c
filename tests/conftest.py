"""What all tests share.

``python -m pytest`` runs everything but what is marked ``slow``, on all processors (:mod:`tests.spreading`); ``-m ""``
runs that, too. Tests under ``tests/mpi`` need several MPI ranks: :mod:`tests.mpi.conftest` starts them, so they are
selected, run and reported like any other test.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from tests import cache, chance, effort, spreading
from tests.mpi.ranks import inside_ranks

settings.load_profile(effort.ORDINARY)
effort.forget_constants_of_modules()

#: JAX is what results are compared with: its programs run once, and to optimize them takes longer.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

#: LLVM verifies what is written for it, also where the code of an earlier test is used.
os.environ.setdefault("SPMD_CHECK_IR", "1")

MPI_TESTS = Path(__file__).parent / "mpi"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    effort.choose_seed(config)
    spreading.spread(config)


def pytest_report_header(config: pytest.Config) -> str:
    return " ".join(["hypothesis:", *(effort.options(config) or ["the same examples at each run"])])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    return spreading.scheduler(config, log)


def pytest_configure(config: pytest.Config) -> None:
    cache.begin(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    cache.end(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spreading.mark_slow(items)
    effort.mark_repetition(items)
    spreading.longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: to look for garbage among it again and again takes a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there until the end of the run is not gone through again by each garbage collection."""
    chance.begin(session)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    chance.restart(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What its fixtures draw is found here, too."""
    yield
    chance.check(item.session)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """On the ranks themselves, only tests that are written for ranks are collected."""
    if not inside_ranks() or collection_path in MPI_TESTS.parents:
        return None
    return None if collection_path == MPI_TESTS or MPI_TESTS in collection_path.parents else True


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generators that are to be seeded by the operating system, as that of stablehlo.rng, have a seed."""
    generator = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed=5: generator(seed))
