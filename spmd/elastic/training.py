"""The loop of a training script, whose ranks may be lost while it runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from collectives import failure
from collectives.recorder import RECORDER
from spmd import checkpoint
from spmd.elastic.alone import Alone
from spmd.elastic.handing import broadcast
from spmd.elastic.members import Change, Reason
from spmd.elastic.programs import ProgramsByRanks
from spmd.elastic.sampling import RankShare, Rows, Schedule
from spmd.elastic.settings import Settings
from spmd.errors import UsageError
from spmd.runtime import world
from spmd.support.arrays import Tree, UserFunction

if TYPE_CHECKING:
    from mpi4py import MPI

    from spmd.elastic.session import Session  # late: it needs MPI, which one process does not
    from spmd.elastic.shards import Shards  # late, as below

_AHEAD = 3  # ranks that may be lost at once without anybody waiting for the program
_NEW = sys.maxsize  # what a rank that joins has finished


def print_change(change: Change) -> None:
    """Tells of a change on stderr."""
    print(f"spmd.elastic: {change}", file=sys.stderr, flush=True)


class Step:
    """One step of the loop, until its block of `with` ends.

    `number` counts the steps of the `schedule` from 0, `epoch` and `index` say which of which epoch it is. `state` is
    what the step before has committed. This rank's part of the global batch is `rows`, i64[n], and `weights`, f32[n]
    (see `RankShare`); `batch`, i64[m], is all of it. `rank` and `ranks` are as they are in this step, and `program` is
    what `build` made for so many ranks.
    """

    def __init__(self, training: Training, number: int) -> None:
        self.number = number
        self.epoch, self.index = training.schedule.place(number)
        self.rank, self.ranks = training.rank, training.ranks
        self.state = training.state
        self.is_last_of_epoch = self.index == training.schedule.steps_per_epoch - 1
        self.schedule = training.schedule
        self._training = training
        self._cut: RankShare | None = None
        self._committed = False
        self._entered = False
        self._next: Tree = None

    @property
    def program(self) -> UserFunction:
        return self._training.program(self.ranks)

    @property
    def rows(self) -> Rows:
        return self._part.rows

    @property
    def weights(self) -> Tree:
        return self._part.weights

    @property
    def batch(self) -> Rows:
        return self.schedule.rows(self.number)

    @property
    def shardings(self) -> Tree:
        """How this rank's part of the state is cut; None for a whole one."""
        return self._training.shardings(self.rank, self.ranks)

    @property
    def _part(self) -> RankShare:
        if self._cut is None:
            self._cut = self.schedule.cut(self.number, self.rank, self.ranks)
        return self._cut

    def commit(self, state: object) -> None:
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
    :param shardings: for a state that is cut: `shardings(rank, ranks)` says how, as `spmd.checkpoint.save` takes it;
        `state(rank, ranks)` then makes this rank's part at the beginning. Arrays that are committed become read-only.
    :param redundancy: 1 has the next rank hold a copy of each rank's blocks: where a rank is lost, and the next one is
        not, the others take up its blocks. It is sent while the next step goes on.
    :param checkpoints: the folder of what `spmd.checkpoint.save(folder, step.number + 1, state, step.shardings)` has
        written, to whose newest all go back when blocks are lost.
    :param settings: fewest ranks to go on with, and patience; by default as `spmd launch --elastic` was told.
    :raises UsageError: for counts that are none.
    """

    def __init__(
        self,
        state: object,
        *,
        examples: int,
        batch: int,
        epochs: int,
        seed: int = 0,
        shuffle: bool = True,
        start: int = 0,
        build: Callable[[int], UserFunction] | None = None,
        on_change: Callable[[Change], None] | None = None,
        settings: Settings | None = None,
        shardings: Callable[[int, int], Tree] | None = None,
        redundancy: int = 0,
        checkpoints: str | os.PathLike[str] | None = None,
    ) -> None:
        self.schedule = Schedule(examples, batch, epochs, seed, shuffle)
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise UsageError(f"start is a step from 0 on, got {start!r}")
        if isinstance(redundancy, bool) or redundancy not in (0, 1):
            raise UsageError(f"redundancy is the number of copies of each block, 0 or 1, got {redundancy!r}")
        if shardings is None and (redundancy or checkpoints is not None):
            raise UsageError("redundancy and checkpoints are for a state that is cut: say how with shardings")
        self._initial, self._shardings, self._checkpoints = state, shardings, checkpoints
        self.state = state if shardings is None else None
        self.finished = self._start = start
        self.changes: list[Change] = []
        #: The steps and the state that the ranks come to, once they are agreed.
        self._handed: tuple[int, object] | None = None
        self._comes_from_checkpoint = False
        self._programs = None if build is None else ProgramsByRanks(build)
        self._on_change = on_change
        self._settings = settings or Settings.from_environment()
        self._session = _session(self._settings)
        if self._programs is not None and self._session.is_new:
            self.program(self._session.expected)  # nobody waits for that
        self._shards = self._cut(redundancy)
        self._session.start(self._hand_over)
        self._settle()

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

    def shardings(self, rank: int, ranks: int) -> Tree:
        """How the state is cut; None for a whole one."""
        return None if self._shardings is None else self._shardings(rank, ranks)

    def program(self, ranks: int) -> UserFunction:
        """What `build` makes for `ranks` ranks, made once."""
        if self._programs is None:
            raise UsageError("step.program is what build makes, and Training was given no build")
        return self._programs[ranks]

    def __iter__(self) -> Iterator[Step]:
        self._make_ahead()
        while True:
            while self.finished < self.schedule.steps:
                if self._session.is_called(self.finished, self._prepare):
                    self._recover(Reason.CALLED)
                    continue
                step = Step(self, self.finished)
                yield step
                if not step._entered:
                    raise UsageError("each step of the loop is taken in a block: with step: ...")
            if self._session.agree(True):
                self._session.end()
                return
            self._recover(Reason.AGREED)

    def _finish(self, number: int, state: object) -> None:
        self.state, self.finished = state, number + 1
        if self._shards is not None:
            try:
                self._shards.keep(world.base(), self.finished, state)
            except Exception as error:
                if not self._survives(error):
                    raise

    def _survives(self, error: Exception) -> bool:
        """Goes on with the ranks that live, if `error` is that some are lost."""
        if not self._session.tells_of_loss(error):
            return False
        self._recover(Reason.LOST)
        return True

    def _recover(self, reason: Reason) -> None:
        began = time.perf_counter()
        lost, joined = self._session.recover(self._hand_over, reason)
        self._settle()
        if self._programs is not None:
            self.program(self.ranks)
        seconds = time.perf_counter() - began
        change = Change(lost, joined, self.ranks, self.finished, seconds, self._comes_from_checkpoint)
        self.changes.append(change)
        RECORDER.begin("change", str(change)).end()
        if self._on_change is not None:
            self._on_change(change)
        elif self.rank == 0:
            print_change(change)
        self._make_ahead()

    def _settle(self) -> None:
        """All ranks are agreed on what was handed over: before, a rank may have been lost while it sent its state."""
        if self._handed is not None:
            (self.finished, self.state), self._handed = self._handed, None
        if self._shards is not None:
            self._shards.settle()

    def _prepare(self, ranks: int) -> None:
        """There are going to be so many ranks: nobody is to wait for their program."""
        if self._programs is not None:
            self._programs.make_ahead([ranks])

    def _make_ahead(self) -> None:
        """Has what fewer ranks would run made, so that nobody has to wait for it."""
        if self._programs is not None and self._session.is_elastic:
            least = max(self._settings.minimum, self.ranks - _AHEAD)
            self._programs.make_ahead(range(self.ranks - 1, least - 1, -1))

    def _hand_over(self, comm: MPI.Intracomm) -> None:
        """Brings all ranks to the last step that all of them have finished; new ones have finished none."""
        finished = comm.allgather(_NEW if self._session.is_new else self.finished)
        last = min(finished)
        if last == _NEW:
            failure.fail("all ranks that had the state were lost before others could join")
        self._handed = self.finished, self.state
        if self._shards is not None:
            self._hand_blocks_over(comm, self._shards)
        elif max(finished) > last:
            self._handed = last, broadcast(comm, self.state, finished.index(last))

    def _hand_blocks_over(self, comm: MPI.Intracomm, shards: Shards) -> None:
        """Cuts anew what the ranks have of the state, from which they may fall back a step; where blocks are missing,
        all go back to the newest checkpoint."""
        self._comes_from_checkpoint = False
        if shards.is_empty and not self._session.is_new:
            part: tuple[int, Tree] | None = self._start, self._part(comm.rank, comm.size)
        else:
            part = shards.hand_over(comm, self._session.is_new)
        if part is None:
            self._comes_from_checkpoint = True
            part = self._restored(comm, shards)
        shards.prepare(comm, *part)
        self._handed = part

    def _restored(self, comm: MPI.Intracomm, shards: Shards) -> tuple[int, Tree]:
        newest = None if self._checkpoints is None else checkpoint.newest(self._checkpoints, communicator=comm)
        if self._checkpoints is None or newest is None:
            failure.fail("blocks of the state are lost, of which no rank has a copy, and there is no checkpoint")
            raise UsageError("blocks of the state are lost, and there is no checkpoint")
        like, cut = shards.like, shards.shardings(comm)
        return newest, checkpoint.restore(self._checkpoints, newest, like, cut, communicator=comm)

    def _cut(self, redundancy: int) -> Shards | None:
        """What holds the parts of the state, where it has parts. A process alone has the whole."""
        if self._shardings is None:
            return None
        if not self._session.is_elastic:
            self.state = self._part(self.rank, self.ranks)
            return None
        from spmd.elastic.shards import Shards  # late, as below

        return Shards(self._part(0, self._session.expected), self._shardings, bool(redundancy))

    def _part(self, rank: int, ranks: int) -> Tree:
        return self._initial(rank, ranks) if callable(self._initial) else self._initial


def _session(settings: Settings) -> Session | Alone:
    """Loads MPI where this process is a rank."""
    if not world.under_mpi():
        return Alone()
    from spmd.elastic.session import Session  # late: it needs MPI, which one process does not

    return Session(settings)
