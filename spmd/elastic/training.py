"""The loop of a training script, whose ranks may be lost while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spmd.elastic.alone import Alone
from spmd.elastic.handing import broadcast
from spmd.elastic.members import Change
from spmd.elastic.programs import Programs
from spmd.elastic.sampling import Cut, Rows, Schedule
from spmd.elastic.settings import Settings
from spmd.errors import UsageError
from spmd.runtime import world

if TYPE_CHECKING:
    from mpi4py import MPI

    from spmd.elastic.session import Session


def print_change(change: Change) -> None:
    """Tells of a change on stderr."""
    print(f"spmd.elastic: {change}", file=sys.stderr, flush=True)


class Step:
    """One step of the loop, until its block of `with` ends.

    `number` counts the steps of the `schedule` from 0, `epoch` and `index` say which of which epoch it is. `state` is
    what the step before has committed. This rank's part of the global batch is `rows`, i64[n], and `weights`, f32[n]
    (see `Cut`); `batch`, i64[m], is all of it. `rank` and `ranks` are as they are in this step, and `program` is what
    `build` made for so many ranks.
    """

    def __init__(self, training: Training, number: int) -> None:
        self.number = number
        self.epoch, self.index = training.schedule.place(number)
        self.rank, self.ranks = training.rank, training.ranks
        self.state = training.state
        self.is_last_of_epoch = self.index == training.schedule.steps_per_epoch - 1
        self.schedule = training.schedule
        self._training = training
        self._cut: Cut | None = None
        self._committed = False
        self._entered = False
        self._next: Any = None

    @property
    def program(self) -> Any:
        return self._training.program(self.ranks)

    @property
    def rows(self) -> Rows:
        return self._part.rows

    @property
    def weights(self) -> Any:
        return self._part.weights

    @property
    def batch(self) -> Rows:
        return self.schedule.rows(self.number)

    @property
    def _part(self) -> Cut:
        if self._cut is None:
            self._cut = self.schedule.cut(self.number, self.rank, self.ranks)
        return self._cut

    def commit(self, state: Any) -> None:
        """Gives the state behind this step: the same on every rank. It counts when the block ends."""
        self._next, self._committed = state, True

    def __enter__(self) -> Step:
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            if not self._committed:
                raise UsageError("the block of a step has ended without step.commit(state)")
            self._training._finish(self.number, self._next)
            return False
        return isinstance(error, Exception) and self._training._survives(error)


class Training:
    """Iterates over the steps of a training, each to be taken in a block of `with`.

    When ranks are lost, the block ends early on every rank that lives. They agree on the last step that all of them
    have finished, whoever is further takes the state from one that is not, and the loop goes on behind it: what a block
    does is done again on the ranks that had done it already. Where the ranks are no elastic job's, a failure is what
    it always is.

    :param state: a tree of arrays (lists, tuples, dictionaries, ...), the same on every rank; any object that can be
        pickled. It must hold all that the steps carry on.
    :param examples: how many there are in an epoch; each is in one batch of the epoch.
    :param batch: examples of a global batch.
    :param epochs: how many.
    :param seed: of the order of examples.
    :param shuffle: False leaves them in their order.
    :param start: the step to begin with, as from a checkpoint that holds the state behind that many steps.
    :param build: `build(ranks)` makes what computes a step on so many ranks, `step.program`. It is kept by the number
        of ranks. That for one rank fewer is made ahead, in a thread, so that nobody waits for it when a rank is lost:
        `build` must not communicate.
    :param on_change: called on every rank when ranks were lost; by default rank 0 prints it to stderr.
    :param settings: fewest ranks to go on with, and patience; by default as `spmd launch --elastic` was told.
    :raises UsageError: for counts that are none.
    """

    def __init__(
        self,
        state: Any,
        *,
        examples: int,
        batch: int,
        epochs: int,
        seed: int = 0,
        shuffle: bool = True,
        start: int = 0,
        build: Callable[[int], Any] | None = None,
        on_change: Callable[[Change], None] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.schedule = Schedule(examples, batch, epochs, seed, shuffle)
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise UsageError(f"start is a step from 0 on, got {start!r}")
        self.state = state
        self.finished = start
        self.changes: list[Change] = []
        self._programs = None if build is None else Programs(build)
        self._on_change = on_change
        self._session = _session(settings or Settings.from_environment())
        self._session.start(self._hand_over)

    @property
    def rank(self) -> int:
        """This process's, among those that live."""
        return self._session.rank

    @property
    def ranks(self) -> int:
        """How many live."""
        return self._session.ranks

    @property
    def comm(self) -> MPI.Intracomm:
        """MPI's communicator of the ranks that live: another one after each change."""
        return world.base()

    def program(self, ranks: int) -> Any:
        """What `build` makes for `ranks` ranks, made once."""
        if self._programs is None:
            raise UsageError("step.program is what build makes, and Training was given no build")
        return self._programs[ranks]

    def __iter__(self) -> Iterator[Step]:
        self._make_ahead()
        while True:
            while self.finished < self.schedule.steps:
                step = Step(self, self.finished)
                yield step
                if not step._entered:
                    raise UsageError("each step of the loop is taken in a block: with step: ...")
            if self._session.agree(True):
                return
            self._recover(agreed=True)

    def _finish(self, number: int, state: Any) -> None:
        self.state, self.finished = state, number + 1

    def _survives(self, error: Exception) -> bool:
        """Goes on with the ranks that live, if `error` is that some are lost."""
        if not self._session.tells_of_loss(error):
            return False
        self._recover()
        return True

    def _recover(self, *, agreed: bool = False) -> None:
        began = time.perf_counter()
        lost = self._session.recover(self._hand_over, agreed=agreed)
        if self._programs is not None:
            self.program(self.ranks)
        change = Change(lost, self.ranks, self.finished, time.perf_counter() - began)
        self.changes.append(change)
        if self._on_change is not None:
            self._on_change(change)
        elif self.rank == 0:
            print_change(change)
        self._make_ahead()

    def _make_ahead(self) -> None:
        """Has what one rank fewer would run made, so that nobody has to wait for it."""
        if self._programs is not None and self._session.is_elastic and self.ranks > 1:
            self._programs.make_ahead(self.ranks - 1)

    def _hand_over(self, comm: MPI.Intracomm) -> None:
        """Brings all ranks to the last step that all of them have finished."""
        finished = comm.allgather(self.finished)
        last = min(finished)
        if max(finished) > last:
            state = broadcast(comm, self.state, finished.index(last))
            self.state, self.finished = state, last


def _session(settings: Settings) -> Session | Alone:
    """Loads MPI where this process is a rank."""
    if not world.under_mpi():
        return Alone()
    from spmd.elastic.session import Session

    return Session(settings)
