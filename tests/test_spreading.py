"""What a plain run leaves out, and what it runs one after another, is there."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from tests import spreading

HERE = Path(__file__).parent


@pytest.mark.parametrize("entry", sorted({*spreading.START_RANKS, *spreading.SLOW, *spreading.LONGEST}))
def test_what_is_named_is_there(entry: str) -> None:
    assert (HERE / entry).exists()


def test_what_takes_long_starts_ranks() -> None:
    assert all(any(Path(entry).is_relative_to(each) for each in spreading.START_RANKS) for entry in spreading.SLOW)


class Worker:
    """What a scheduler sees of a worker: the numbers of tests that it is given."""

    def __init__(self) -> None:
        self.gateway = Mock(id="gw")
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.given += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


def test_the_test_that_a_worker_died_in_is_not_run_again() -> None:
    config = Mock(option=Mock(loadscopereorder=False))
    config.getoption = config.getvalue = {"dist": "loadfile", "tx": ["popen", "popen"]}.get
    files = spreading.scheduler(config, None)
    collection = ["tests/a.py::1", "tests/a.py::2", "tests/a.py::3", "tests/b.py::1"]

    def begin(worker: Worker) -> None:
        files.add_node(worker)
        files.add_node_collection(worker, collection)

    first, second, third = Worker(), Worker(), Worker()
    begin(first)
    begin(second)
    files.schedule()
    assert (first.given, second.given) == ([0, 1, 2], [3])
    files.mark_test_complete(first, 0)
    assert files.remove_node(first) == "tests/a.py::2"
    begin(third)
    files.schedule()
    assert third.given == [2] and third.shutting_down
