"""Checkpoints that processes write together while one dies, stops or is slow, at any step: a whole one is left."""

from __future__ import annotations

import contextlib
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectives.errors import CommunicationError
from collectives.exploration import ExploringScheduler, RandomOrder, draw_faults
from collectives.threads import ThreadCommunicator, run
from spmd import SpmdError, checkpoint
from spmd.runtime import world

SIZE, SCENARIOS = 3, 60


class Ranks:
    """What `checkpoint.save` needs of an MPI communicator, among threads."""

    def __init__(self, threads: ThreadCommunicator) -> None:
        self.rank, self.size, self._threads = threads.rank, threads.size, threads

    def allgather(self, value: Any) -> list[Any]:
        return self._threads.allgather_object(value, "a checkpoint")


def test_a_whole_checkpoint_is_left_whatever_befalls_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "waiting_in", lambda what: nullcontext())
    endings: Counter[object] = Counter()
    for seed in range(SCENARIOS):
        folder = tmp_path / str(seed)
        saved: list[tuple[int, int]] = []

        def process(threads: ThreadCommunicator, folder: Path = folder, saved: list[Any] = saved) -> None:
            for step in (1, 2):
                tree = {"w": np.full(8, step, np.float32)}
                checkpoint.save(folder, step, tree, communicator=Ranks(threads), keep=None)  # type: ignore[arg-type]
                saved.append((threads.rank, step))

        scheduler = ExploringScheduler(SIZE, RandomOrder(seed), draw_faults(seed, SIZE, 1, 16))
        with contextlib.suppress(SpmdError, CommunicationError):
            run(SIZE, process, scheduler=scheduler)
        newest = checkpoint.newest(folder) if folder.exists() else None
        endings[newest] += 1
        # What any process was told is written is there, whole.
        assert (newest or 0) >= max((step for _, step in saved), default=0), f"seed {seed}: {saved}"
        if newest is not None:
            checkpoint.verify(folder, newest)
            assert checkpoint.restore(folder)["w"][0] == newest  # type: ignore[index]
    assert set(endings) == {None, 1, 2}, endings
