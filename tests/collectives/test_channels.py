"""Who is at the other end of a channel."""

import pytest

from collectives import CommunicationError
from collectives.channels import Channels


def test_one_sends_and_another_receives() -> None:
    channels = Channels(sends=[{1}, {2}, ()], receives=[(), (), {1, 2}])
    assert channels.target(1, 0) == channels.target(2, 1) == 2
    assert (channels.source(1, 2), channels.source(2, 2)) == (0, 1)
    assert not channels.faults()


def test_one_program_run_by_all_talks_to_its_own_host() -> None:
    channels = Channels(sends=[{1}, {1}], receives=[{1}, {1}])
    assert [channels.target(1, rank) for rank in range(2)] == [0, 1]
    assert not channels.faults()


def test_an_end_without_another_is_told() -> None:
    assert Channels([{3}, ()], [(), ()]).faults() == ["process 0 sends on channel 3, and no process receives from it"]
    with pytest.raises(CommunicationError, match="process 1 receives from channel 4, and no process sends on it"):
        Channels([(), ()], [(), {4}]).source(4, 1)


def test_more_than_two_ends_are_told() -> None:
    faults = Channels([{3}, {3}, ()], [(), (), {3}]).faults()
    assert "processes 0-1 sends on it, process 2 receives from it" in faults[0]
