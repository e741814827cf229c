"""A rank of the elastic example that counts, and that goes wrong when it is told to.

    spmd launch --elastic -n 4 -- python tests/elastic/worker.py --faults 1:kill@step:5,0:stop@build:3

A fault is ``rank:what@moment:number``: the rank as the job began; ``kill``, ``stop`` (SIGSTOP), ``term`` (SIGTERM),
``leave`` (exit with status 0), ``exit`` (with 3), ``raise``, or ``wait`` (a minute, having said so); before the
collective of a step, inside of it (``during``: a moment after the others have begun), before its commit, while a
checkpoint is being written, when programs for so many ranks are built, or when ranks meet for the so-manieth time
(first when the job begins; ``handed``: when they have the state). Each rank prints what it has found, as JSON.

Named points of writing checkpoints are moments, too (`POINTS`): ``before-fsync``, ``after-rename``, ..., numbered from
1 on each rank, over all checkpoints of the job.
"""

import argparse
import importlib.util
import json
import os
import signal
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np

from collectives import failure
from spmd import checkpoint, elastic
from spmd.checkpoint import processes

DIGITS = Path(importlib.util.find_spec("sklearn").origin).parent / "datasets" / "data" / "digits.csv.gz"


def load_digits(return_X_y):  # type: ignore[no-untyped-def]
    """scikit-learn's, from its file: to import all of scikit-learn takes longer than the job does."""
    table = np.loadtxt(DIGITS, delimiter=",")
    return table[:, :-1], table[:, -1].astype(int)


sys.modules |= {name: types.ModuleType(name) for name in ("sklearn", "sklearn.datasets")}
sys.modules["sklearn.datasets"].load_digits = load_digits


def together(comm, holds):  # type: ignore[no-untyped-def]
    """Whether it holds on all ranks that live. Behind the last step nobody catches losses but the program itself."""
    from mpi4py import MPI

    from collectives.mpi.losses import comes_of_loss

    while True:
        try:
            return all(comm.allgather(holds))
        except MPI.Exception as error:
            if not comes_of_loss(error, comm):
                raise
            comm.Revoke()
            comm = comm.Shrink()


SCRIPT = Path(__file__).parents[2] / "examples" / "elastic" / "train.py"
_found = importlib.util.spec_from_file_location("example", SCRIPT)
example = sys.modules["example"] = importlib.util.module_from_spec(_found)
_found.loader.exec_module(example)

EXAMPLES = 1797 - example.HELD_OUT
OWN = failure.launched_rank()
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}


#: What a rank does when it writes a checkpoint: its files are made durable and get their names, and ranks exchange
#: what they have found.
POINTS = [f"{when}-{what}" for what in ("fsync", "rename", "exchange") for when in ("before", "after")]


class Faults:
    def __init__(self, text: str) -> None:
        self._left = {}
        for fault in filter(None, text.split(",")):
            who, _, moment = fault.partition("@")
            rank, what = who.split(":")
            if int(rank) == OWN:
                self._left[moment] = what

    def __call__(self, moment: str, number: int) -> None:
        what = self._left.pop(f"{moment}:{number}", None)
        if what in SIGNALS:
            os.kill(os.getpid(), SIGNALS[what])
        elif what == "wait":
            print("waiting", flush=True)
            time.sleep(60)
        elif what == "leave":
            os._exit(0)
        elif what == "exit":
            os._exit(3)
        elif what == "raise":
            raise ValueError("out of cheese")

    def soon(self, moment: str, number: int) -> None:
        """From another thread, while this one goes on."""
        if f"{moment}:{number}" in self._left:
            threading.Timer(0.002, self, (moment, number)).start()


class SavePoints:
    """Counts the named points of writing checkpoints into `folder` on this rank, and goes wrong at those of `fault`."""

    def __init__(self, fault: Faults, folder: Path) -> None:
        self._fault, self._folder = fault, folder.absolute()
        self.counts = dict.fromkeys(POINTS, 0)
        self._lock = threading.Lock()
        os.fsync = self._around("fsync", os.fsync, lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))
        os.rename = self._around("rename", os.rename, lambda source, target: os.fspath(target))
        for name in ("all_gather", "_come_together"):
            call = getattr(processes.CheckpointRanks, name)
            setattr(processes.CheckpointRanks, name, self._around("exchange", call, None))

    def _around(self, what, call, place):  # type: ignore[no-untyped-def]
        """`call`, between its points where its `place` is in the folder."""

        def calling(*arguments, **options):  # type: ignore[no-untyped-def]
            counts = place is None or self._folder in Path(place(*arguments)).parents or (
                Path(place(*arguments)) == self._folder
            )  # fmt: skip
            if counts:
                self._pass(f"before-{what}")
            result = call(*arguments, **options)
            if counts:
                self._pass(f"after-{what}")
            return result

        return calling

    def _pass(self, point: str) -> None:
        with self._lock:
            self.counts[point] += 1
            number = self.counts[point]
        self._fault(point, number)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--faults", default="")
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--wait", action="store_true", help="write checkpoints at once, not in a thread")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that a step takes at least")
    parser.add_argument("--await-ranks", type=int, default=0, help="take it slow while there are fewer")
    options = parser.parse_args()
    fault = Faults(options.faults)
    images, labels = example.load_data()
    handed = [0]
    points = None if options.checkpoints is None else SavePoints(fault, options.checkpoints)

    def build(ranks):  # type: ignore[no-untyped-def]
        fault("build", ranks)
        return example.build(ranks)

    class FaultyTraining(elastic.Training):
        def _hand_over(self, comm):  # type: ignore[no-untyped-def]
            handed[0] += 1
            fault("hand", handed[0])
            super()._hand_over(comm)
            fault("handed", handed[0])

    state = [*example.initial_state(0), np.zeros(EXAMPLES, np.int64)]
    heard: list[elastic.Change] = []
    training = FaultyTraining(
        state, examples=EXAMPLES, batch=example.TRAIN_BATCH, epochs=options.epochs, build=build, on_change=heard.append
    )
    resumed: list[float] = []  # when, after each change, the next step was finished
    for step in training:
        with step:
            fault("step", step.number)
            fault.soon("during", step.number)
            rows, size = example.HELD_OUT + step.rows, np.float32(len(step.batch))
            rate, (*held, seen) = np.float32(0.05), step.state
            _, *held = step.program.step(*held, rate, size, images[rows], labels[rows], step.weights)
            counted = np.bincount(step.rows, step.weights, EXAMPLES).astype(np.int64)
            total = np.empty_like(counted)
            training.comm.Allreduce(counted, total)
            if options.checkpoints is not None and step.is_last_of_epoch:
                checkpoint.save(options.checkpoints, step.number + 1, {"state": held}, wait=options.wait)
                fault("save", step.number)
            fault("commit", step.number)
            step.commit([*held, seen + total])
            time.sleep(0.5 if step.ranks < options.await_ranks else options.pace)
        if step.number == 0 and training.rank == 0:
            print("started", flush=True)
        if training.finished > step.number:
            resumed += [time.time()] * (len(training.changes) - len(resumed))
    told = together(training.comm, heard == training.changes)
    # Every rank says what it has found: any of them may be lost while it does.
    *held, seen = training.state
    part = elastic.Schedule(example.HELD_OUT, example.HELD_OUT, 1, shuffle=False).cut(0, 0, 1)
    inputs = images[part.rows]
    for weights, biases in zip(held[0:4:2], held[1:4:2], strict=True):
        inputs = np.maximum(inputs @ weights + biases, 0)
    right = np.argmax(inputs @ held[4] + held[5], 1) == labels[part.rows]
    report = {
        "accuracy": float(right.mean()),
        "counted": bool((seen == options.epochs).all()),
        "rank": training.rank,
        "ranks": training.ranks,
        "lost": [str(member) for change in training.changes for member in change.lost],
        "joined": sum(len(change.joined) for change in training.changes),
        "resumed": resumed,
        "told": told,
        "points": None if points is None else points.counts,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
