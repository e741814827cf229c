"""Two hosts for all tests of this folder."""

import os
from collections.abc import Iterator

import pytest

from launch import mpirun
from tests.cluster import machines
from tests.cluster.machines import Hosts


@pytest.fixture(scope="session")
def lasting() -> Iterator[Hosts]:
    """Hosts that no test of many ends."""
    yield from _hosts()


@pytest.fixture
def mortal() -> Iterator[Hosts]:
    """Hosts of one test, which may end them."""
    yield from _hosts()


@pytest.fixture(autouse=True, scope="session")
def asked_for() -> None:
    """They take minutes, and an idle machine: times within which ranks tell of each other's ends hang on it."""
    if os.environ.get("SPMD_CLUSTER_TESTS") != "1":
        pytest.skip("tests of two hosts and of Slurm run where SPMD_CLUSTER_TESTS is 1")


def _hosts() -> Iterator[Hosts]:
    if mpirun.find() is None:
        pytest.skip("there is no launcher")
    if (reason := machines.refusal()) is not None:
        pytest.skip(reason)
    with Hosts() as hosts:
        yield hosts
