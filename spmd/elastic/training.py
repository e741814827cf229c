"""The training loop, which continues when ranks fail or join."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from collectives import failure
from collectives.record.recorder import RECORDER
from spmd import checkpoint
from spmd.checkpoint import writing
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

_AHEAD = 3  # programs are built ahead for up to this many ranks fewer
_NEW = sys.maxsize  # the step count that a joining rank reports; it never is the minimum


def print_change(change: Change) -> None:
    """Print a change to stderr."""
    print(f"spmd.elastic: {change}", file=sys.stderr, flush=True)


class Step:
    """One step of the loop, valid until its `with` block ends.

    `number` counts the steps of the `schedule` from 0; `index` is the step's position in `epoch`. `state` is what the
    previous step committed. This rank's part of the global batch is `rows`, i64[n], and `weights`, f32[n] (see
    `RankShare`); `batch`, i64[m], is the whole batch. `rank` and `ranks` hold during this step; `program` is the result
    of `build(ranks)`.
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
        """This rank's shardings of the state; None if the state is not sharded."""
        return self._training.shardings(self.rank, self.ranks)

    @property
    def _part(self) -> RankShare:
        if self._cut is None:
            self._cut = self.schedule.cut(self.number, self.rank, self.ranks)
        return self._cut

    def commit(self, state: object) -> None:
        """Set the state after this step, which must be equal on every rank unless it is sharded.

        It takes effect when the `with` block ends.
        """
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
    """Iterates over the steps of a training; the script runs each step in a `with` block.

    When ranks fail, the block ends early on every surviving rank. The ranks agree on the last step that all of them
    have finished; ranks that are further ahead receive the state after that step, and the loop continues from there.
    A rank that was ahead therefore runs the block of a step again. Outside of an elastic job errors propagate as usual.

    :param state: a tree of arrays (lists, tuples, dictionaries, ...), the same on every rank; any object that can be
        pickled. It must hold everything that one step passes to the next.
    :param examples: number of examples in an epoch; each is in one batch of the epoch.
    :param batch: number of examples in a global batch.
    :param epochs: number of epochs.
    :param seed: seed of the shuffle.
    :param shuffle: whether each epoch permutes the examples.
    :param start: the first step, for instance the step count of a restored checkpoint.
    :param build: `build(ranks)` returns the callable that computes a step on that many ranks, `step.program`. Results
        are cached by number of ranks. Those for fewer ranks are built ahead in a background thread, so that a recovery
        does not wait for them: `build` must not communicate.
    :param on_change: called on every rank when ranks have failed or joined; by default rank 0 prints the change to
        stderr.
    :param shardings: for a sharded state: `shardings(rank, ranks)` returns what `spmd.checkpoint.save` takes, and
        `state(rank, ranks)` returns the initial shard of a rank. Committed arrays become read-only.
    :param redundancy: 1 keeps a copy of each rank's blocks on the next rank, so that they survive the failure of one of
        the two. The copy is sent during the next step.
    :param checkpoints: the folder that `spmd.checkpoint.save(folder, step.number + 1, state, step.shardings)` writes
        to; all ranks restore its newest checkpoint when blocks are lost.
    :param settings: minimum number of ranks and timeout; by default those that `spmd launch --elastic` passes.
    :raises UsageError: if a count, `start` or `redundancy` is out of range.
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
            raise UsageError(f"start must be a non-negative step, got {start!r}")
        if isinstance(redundancy, bool) or redundancy not in (0, 1):
            raise UsageError(f"redundancy, the number of copies of each block, must be 0 or 1, got {redundancy!r}")
        if shardings is None and (redundancy or checkpoints is not None):
            raise UsageError("redundancy and checkpoints require a sharded state: pass shardings")
        self._initial, self._shardings, self._checkpoints = state, shardings, checkpoints
        self.state = state if shardings is None else None
        self.finished = self._start = start
        self.changes: list[Change] = []
        #: The step count and state to adopt once all ranks have agreed.
        self._handed: tuple[int, object] | None = None
        self._comes_from_checkpoint = False
        self._programs = None if build is None else ProgramsByRanks(build)
        self._on_change = on_change
        self._settings = settings or Settings.from_environment()
        self._session = _session(self._settings)
        if self._programs is not None and self._session.is_new:
            self.program(self._session.expected)  # before joining: the other ranks do not wait for it
        self._shards = self._cut(redundancy)
        self._session.start(self._hand_over)
        self._settle()

    @property
    def rank(self) -> int:
        """This process's rank among the live ranks."""
        return self._session.rank

    @property
    def ranks(self) -> int:
        """The number of live ranks."""
        return self._session.ranks

    @property
    def comm(self) -> MPI.Intracomm:
        """The MPI communicator of the live ranks; replaced at each change."""
        return world.base()

    def shardings(self, rank: int, ranks: int) -> Tree:
        """Return the shardings of rank `rank` of `ranks`; None if the state is not sharded."""
        return None if self._shardings is None else self._shardings(rank, ranks)

    def program(self, ranks: int) -> UserFunction:
        """Return the result of `build(ranks)`, built once. UsageError if there is no `build`."""
        if self._programs is None:
            raise UsageError("step.program requires the build argument of Training")
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
                    raise UsageError("each step of the loop must be run in a block: with step: ...")
            if self._session.agree(True):
                self._session.end()
                return
            self._recover(Reason.AGREED)

    def _finish(self, number: int, state: object) -> None:
        """Adopt the state after step `number`. The last step is over only when its checkpoints are written."""
        if number == self.schedule.steps - 1 and not self._has_written():
            return
        self.state, self.finished = state, number + 1
        if self._shards is not None:
            try:
                self._shards.keep(world.base(), self.finished, state)
            except Exception as error:
                if not self._survives(error):
                    raise

    def _has_written(self) -> bool:
        """Wait for checkpoints that are being written; return whether all have been.

        If ranks that write some are lost, the others recover and repeat the step.
        """
        return not any(self._survives(error) for error in writing.failures() if isinstance(error, Exception))

    def _survives(self, error: Exception) -> bool:
        """Recover with the surviving ranks if `error` was caused by a rank failure; otherwise return False."""
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
        """Adopt the state that was handed over. Only after all ranks have agreed: a sender may fail before that."""
        if self._handed is not None:
            (self.finished, self.state), self._handed = self._handed, None
        if self._shards is not None:
            self._shards.settle()

    def _prepare(self, ranks: int) -> None:
        """Build the program for `ranks` ranks in a background thread, before the ranks join."""
        if self._programs is not None:
            self._programs.make_ahead([ranks])

    def _make_ahead(self) -> None:
        """Build the programs for fewer ranks in a background thread, so that a recovery does not wait for them."""
        if self._programs is not None and self._session.is_elastic:
            least = max(self._settings.minimum, self.ranks - _AHEAD)
            self._programs.make_ahead(range(self.ranks - 1, least - 1, -1))

    def _hand_over(self, comm: MPI.Intracomm) -> None:
        """Bring all ranks to the last step that every old rank has finished; new ranks receive its state."""
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
        """Reshard the newest complete state, possibly one step back; restore the newest checkpoint if blocks are
        missing.
        """
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
        """Return the holder of this rank's shards; None if the state is not sharded or the job is not elastic."""
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
    """Return the session of an MPI rank, or that of a process without MPI, for which MPI is not loaded."""
    if not world.under_mpi():
        return Alone()
    from spmd.elastic.session import Session  # late: it needs MPI, which one process does not

    return Session(settings)
