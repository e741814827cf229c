"""What a collective in which ranks failed returns without an error is no object: that is a loss, too."""

import pickle

import pytest
from mpi4py import MPI

from collectives.mpi import losses
from collectives.mpi.losses import garbage_is_loss, tells_of_loss

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("error", [pickle.UnpicklingError("invalid load key"), EOFError(), ValueError("bad marshal")])
@pytest.mark.parametrize("lost", [False, True])
def test_what_cannot_be_unpickled_is_a_loss_where_ranks_are_lost(
    error: Exception, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "is_loss", lambda comm: lost)
    with pytest.raises(MPI.Exception if lost else type(error)) as raised, garbage_is_loss(MPI.COMM_SELF):
        raise error
    assert tells_of_loss(raised.value, MPI.COMM_SELF) == lost
    assert not lost or raised.value.__cause__ is error
