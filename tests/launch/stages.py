"""Named points of ranks that wait for one another, for scripts in this folder."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from collectives.mpi import MpiCommunicator

_POLL_SECONDS = 0.005


class Stages:
    """Named points of all ranks: a thread of each rank says in `folder` that the rank is inside a stage's all_reduce,
    as its own activity shows it, and has been there for `age` seconds."""

    def __init__(self, world: MpiCommunicator, folder: Path, age: float) -> None:
        self._activity, self._folder, self._rank, self._age = world.activity, folder, world.rank, age
        self._stage = ""
        threading.Thread(target=self._watch, daemon=True).start()

    def enter(self, stage: str) -> None:
        """Names what this rank is about to do."""
        self._stage = stage

    def wait_for(self, stage: str, ranks: Sequence[int]) -> None:
        """Returns when all of `ranks` are inside."""
        await_all([self._folder / f"{stage}-{rank}" for rank in ranks])

    def _watch(self) -> None:
        while True:
            stage, event = self._stage, self._activity.what
            # A stage that is the same after the event was read is that event's.
            if stage and event is not None and event.waiting is not None and stage == self._stage:
                is_old = time.monotonic() - event.began >= self._age
                if is_old and event.waiting.text.startswith("all_reduce"):
                    (self._folder / f"{stage}-{self._rank}").touch()
            time.sleep(_POLL_SECONDS)


def await_all(paths: Sequence[Path]) -> None:
    while not all(path.exists() for path in paths):
        time.sleep(_POLL_SECONDS)
