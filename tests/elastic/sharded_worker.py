"""A rank of a job whose state is cut: each holds some of the counts of examples, as `m`, and all of them, as `w`.

Its arguments are faults, ``rank@moment``: the rank is killed at the ``start``, before MPI has begun (or ``stop``: is
stopped there; where there is a ``--once`` file, the first time only), or in a step, ``before:number`` its collective or
``after:number``; and where checkpoints lie, if anywhere. Rank 0 prints what it has found, as JSON.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path

import numpy as np

from collectives import failure
from spmd import checkpoint, elastic
from spmd.checkpoint import ArrayBlock

EXAMPLES, BATCH, EPOCHS = 37, 5, 6
OWN = failure.launched_rank()


def part(rank, ranks):  # type: ignore[no-untyped-def]
    """The first ranks have one more."""
    bounds = [len(np.array_split(np.arange(EXAMPLES), ranks)[index]) for index in range(ranks)]
    start = sum(bounds[:rank])
    return slice(start, start + bounds[rank])


def shardings(rank, ranks):  # type: ignore[no-untyped-def]
    return {"w": None, "m": ArrayBlock((2, EXAMPLES), (slice(None), part(rank, ranks))), "steps": None}


def initial(rank, ranks):  # type: ignore[no-untyped-def]
    cut = part(rank, ranks)
    return {"w": np.zeros(EXAMPLES), "m": np.zeros((2, cut.stop - cut.start), np.int64), "steps": 0}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", default="")
    parser.add_argument("--redundancy", type=int, default=0)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--await-ranks", type=int, default=0)
    parser.add_argument("--once", type=Path, help="a file in a folder where ranks note that they have started")
    options = parser.parse_args()
    faults = {tuple(fault.split("@")) for fault in filter(None, options.faults.split(","))}

    def fault(moment: str) -> None:
        if (str(OWN), moment) in faults:
            os.kill(os.getpid(), signal.SIGSTOP if moment == "stop" else signal.SIGKILL)

    if options.once is None or not options.once.with_name(str(OWN)).exists():
        if options.once is not None:
            options.once.with_name(str(OWN)).touch()
        fault("start")
        fault("stop")
    training = elastic.Training(
        initial, examples=EXAMPLES, batch=BATCH, epochs=EPOCHS, shardings=shardings, redundancy=options.redundancy,
        checkpoints=options.checkpoints,
    )  # fmt: skip
    for step in training:
        with step:
            fault(f"before:{step.number}")
            counted = np.bincount(step.rows, step.weights, EXAMPLES)
            total = np.empty_like(counted)
            training.comm.Allreduce(counted, total)
            cut = part(step.rank, step.ranks)
            m = step.state["m"] + np.array([[1], [2]]) * total[cut].astype(np.int64)
            state = {"w": step.state["w"] + total, "m": m, "steps": step.state["steps"] + 1}
            if options.checkpoints is not None and step.number % 4 == 3:
                checkpoint.save(options.checkpoints, step.number + 1, state, step.shardings)
            fault(f"after:{step.number}")
            step.commit(state)
            time.sleep(0.4 if step.ranks < options.await_ranks else 0.0)
    m = np.concatenate(training.comm.allgather(training.state["m"]), axis=1)
    if training.rank == 0:
        right = (training.state["w"] == EPOCHS).all() and (m == [[EPOCHS], [2 * EPOCHS]]).all()
        report = {
            "right": bool(right and training.state["steps"] == training.schedule.steps),
            "ranks": training.ranks,
            "from_checkpoint": [change.from_checkpoint for change in training.changes],
            "steps": [change.step for change in training.changes],
        }
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
