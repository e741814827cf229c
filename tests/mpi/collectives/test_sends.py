"""Messages that nobody waits for until they have gone."""

import gc
import weakref
from typing import Any

import pytest

pytestmark = pytest.mark.mpi


def test_a_receiver_that_is_lost_leaves_the_messages_to_others_alone() -> None:
    """MPI tells of it where the request is tested, and gives that request up; it may put that off."""
    from mpi4py import MPI

    from collectives.mpi.sends import PendingSends

    class Sending:
        error: int | None = None
        is_null = False

        def Test(self) -> bool:
            if self.error is not None:
                raise MPI.Exception(self.error)
            return False

        def __eq__(self, other: object) -> bool:
            return self.is_null and other == MPI.REQUEST_NULL

        __hash__ = object.__hash__

    sends = PendingSends(MPI.COMM_SELF)
    requests: list[Any] = [Sending() for _ in range(4)]
    kept = [weakref.ref(request) for request in requests]
    requests[0].error, requests[0].is_null = MPI.ERR_PROC_FAILED, True
    requests[2].error = MPI.ERR_PROC_FAILED_PENDING
    for request in requests:
        sends.add(request)
    requests.clear()
    del request
    gc.collect()
    assert [reference() is None for reference in kept] == [True, False, False, False]

    broken: Any = Sending()
    sends.add(broken)
    broken.error = MPI.ERR_TRUNCATE
    with pytest.raises(MPI.Exception):
        sends.add(Sending())  # type: ignore[arg-type]
