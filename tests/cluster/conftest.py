"""Two hosts for all tests of this folder."""

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


def _hosts() -> Iterator[Hosts]:
    if mpirun.find() is None:
        pytest.skip("there is no launcher")
    if (reason := machines.refusal()) is not None:
        pytest.skip(reason)
    with Hosts() as hosts:
        yield hosts
