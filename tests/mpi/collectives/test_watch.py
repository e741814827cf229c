"""Who waits in vain, as far as the states of all ranks tell."""

import pytest

pytestmark = pytest.mark.mpi


def test_waits_that_can_end_and_waits_that_cannot() -> None:
    from collectives.activity import Waiting
    from collectives.mpi_watch import State, waits_in_vain

    def waits(text: str, *ranks: int) -> State:
        return State(Waiting(text, ranks), 1, 5.0)

    computes, ended = State(None, 1, 5.0), State(None, 1, 5.0, ended=True)
    together = {0: waits("sum", 1, 2), 1: waits("sum", 0, 2), 2: waits("sum", 0, 1)}
    assert not waits_in_vain(0, together), "one collective that all are in is merely slow"
    assert not waits_in_vain(0, together | {2: computes})
    assert not waits_in_vain(0, {0: together[0], 1: together[1]}), "one that does not answer may be about to come"
    assert waits_in_vain(0, together | {2: ended}) == {0, 1, 2}
    assert waits_in_vain(0, together | {2: waits("maximum", 0, 1)}) == {0, 1, 2}
    circle = {0: waits("a", 1), 1: waits("b", 2), 2: waits("c", 0), 3: computes}
    assert waits_in_vain(1, circle) == {0, 1, 2}
    assert not waits_in_vain(1, circle | {2: waits("c", 0, 3)})
