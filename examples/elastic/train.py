"""Train a classifier of handwritten digits on MPI ranks that may be lost meanwhile.

    spmd launch --elastic -n 4 -- python examples/elastic/train.py

Kill a rank (`kill -9`), rank 0 or any other: those that live go on, in a fraction of a second, and the result is the
same. The step is built with XlaBuilder for however many ranks there are; every rank holds all images and takes its part
of each global batch.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import spmd
from spmd import checkpoint, elastic
from spmd.builder import F32, LiteralUtil, Shape, XlaBuilder, XlaOp, ops

EXAMPLES = Path(__file__).parents[1]
sys.path[:0] = [str(EXAMPLES / "builder"), str(EXAMPLES / "digits")]
from digits import ADD, MAX, MOMENTUM, backward, forward, total  # noqa: E402
from train import HELD_OUT, LAYERS, TRAIN_BATCH, initial_state  # noqa: E402

SHAPES = [shape for inputs, outputs in itertools.pairwise(LAYERS) for shape in ((inputs, outputs), (outputs,))]


@dataclass(frozen=True)
class Programs:
    """What a number of ranks runs: `step` on parts of a global batch, `evaluate` on parts of the held-out images."""

    step: spmd.Executable
    evaluate: spmd.Executable


def build(ranks: int) -> Programs:
    grid = spmd.ProcessGrid(num_replicas=ranks)
    builders = (train_step(-(-TRAIN_BATCH // ranks)), evaluation(-(-HELD_OUT // ranks)))
    return Programs(*(spmd.compile(builder.Build().to_stablehlo(), grid) for builder in builders))


def parameters(builder: XlaBuilder, shapes: Sequence[Sequence[int]], types: Sequence[str]) -> list[XlaOp]:
    named = enumerate(zip(types, shapes, strict=True))
    return [builder.Parameter(n, Shape.array_shape(type, shape), f"argument_{n}") for n, (type, shape) in named]


def layers_of(values: Sequence[XlaOp]) -> list[tuple[XlaOp, XlaOp]]:
    return list(zip(values[0::2], values[1::2], strict=True))


def chosen(values: XlaOp, labels: XlaOp) -> XlaOp:
    """1 where a column is the row's label, else 0: f32 of the shape of `values`."""
    classes = values.builder.Iota(Shape.array_shape("s32", values.shape.dimensions()), 1)
    return ops.ConvertElementType(ops.Eq(classes, labels, broadcast_dimensions=[0]), F32)


def largest(logits: XlaOp) -> XlaOp:
    return ops.Reduce(logits, logits.builder.Constant(LiteralUtil.MinValue(F32)), MAX, [1])


def train_step(rows: int) -> XlaBuilder:
    """One step of SGD with momentum on this rank's `rows` of a global batch, of which those of weight 0 do not count.

    (parameters..., velocities..., rate, size of the global batch, images f32[rows, 64], labels s32[rows],
    weights f32[rows]) -> (mean loss, parameters..., velocities...).
    """
    builder = XlaBuilder("train_step")
    types = ["f32"] * (2 * len(SHAPES) + 3) + ["s32", "f32"]
    shapes = [*SHAPES, *SHAPES, (), (), (rows, LAYERS[0]), (rows,), (rows,)]
    values = parameters(builder, shapes, types)
    state, velocities = values[: len(SHAPES)], values[len(SHAPES) : 2 * len(SHAPES)]
    rate, size, images, labels, weights = values[2 * len(SHAPES) :]

    inputs, logits = forward(layers_of(state), images)
    shifted = ops.Sub(logits, largest(logits), broadcast_dimensions=[0])
    exponentials, right = ops.Exp(shifted), chosen(logits, labels)
    sums = total(exponentials, 1)
    losses = ops.Log(sums) - total(shifted * right, 1)
    share = weights / size
    gradient = ops.Div(exponentials, sums, broadcast_dimensions=[0]) - right
    gradient = ops.Mul(gradient, share, broadcast_dimensions=[0])
    local = ops.Tuple([total(losses * share, 0), *backward(layers_of(state), inputs, gradient)])

    reduced = ops.AllReduce(local, ADD)
    gradients = [reduced[1 + index] for index in range(len(state))]
    velocities = [v * MOMENTUM + g for v, g in zip(velocities, gradients, strict=True)]
    state = [p - rate * v for p, v in zip(state, velocities, strict=True)]
    ops.Tuple([reduced[0], *state, *velocities])
    return builder


def evaluation(rows: int) -> XlaBuilder:
    """(parameters..., images f32[rows, 64], labels s32[rows], weights f32[rows]) -> right answers of all ranks."""
    builder = XlaBuilder("evaluation")
    types = ["f32"] * (len(SHAPES) + 1) + ["s32", "f32"]
    *state, images, labels, weights = parameters(builder, [*SHAPES, (rows, LAYERS[0]), (rows,), (rows,)], types)
    _, logits = forward(layers_of(state), images)
    right = ops.ConvertElementType(ops.Eq(total(logits * chosen(logits, labels), 1), largest(logits)), F32)
    ops.AllReduce(total(right * weights, 0), ADD)
    return builder


def load_data() -> tuple[np.ndarray, np.ndarray]:
    """All images f32[n, 64] in 0..1 and labels i32[n]; the first HELD_OUT are held out."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order] / 16).astype(np.float32), labels[order].astype(np.int32)


class Bar:
    """The progress of the whole job: shown by rank 0, and by another when that is lost."""

    def __init__(self, epochs: int) -> None:
        self._epochs, self._epoch = epochs, 0
        self._bar: tqdm | None = None

    def show(self, step: elastic.Step, loss: float) -> None:
        if step.rank:
            return
        if self._bar is None or self._epoch != step.epoch:
            self.close()
            self._epoch = step.epoch
            steps = step.schedule.steps_per_epoch
            self._bar = tqdm(desc=f"epoch {step.epoch + 1}/{self._epochs}", total=steps, initial=step.index)
        self._bar.n = step.index + 1
        self._bar.set_postfix(ranks=step.ranks, loss=f"{loss:.4f}", refresh=False)
        self._bar.update(0)

    def tell(self, change: elastic.Change) -> None:
        tqdm.write(str(change), file=sys.stderr)

    def close(self, **results: str) -> None:
        if self._bar is not None:
            self._bar.set_postfix(**results)
            self._bar.close()
            self._bar = None


def train(options: argparse.Namespace) -> float:
    """Train to the end and return the accuracy on the held-out images, 0..1."""
    images, labels = load_data()
    held_out = elastic.Schedule(HELD_OUT, HELD_OUT, epochs=1, shuffle=False)
    rate, start, state, accuracy = np.float32(options.rate), 0, initial_state(options.seed), 0.0
    newest = checkpoint.newest(options.checkpoints)
    if newest is not None:
        tree = checkpoint.restore(options.checkpoints, newest)
        start, state, accuracy = newest, tree["state"], float(tree["accuracy"])
    bar = Bar(options.epochs)
    training = elastic.Training(
        state, examples=len(labels) - HELD_OUT, batch=TRAIN_BATCH, epochs=options.epochs, seed=options.seed,
        start=start, build=build, on_change=lambda change: bar.tell(change) if training.rank == 0 else None,
    )  # fmt: skip
    for step in training:
        with step:
            rows, size = HELD_OUT + step.rows, np.float32(len(step.batch))
            loss, *state = step.program.step(*step.state, rate, size, images[rows], labels[rows], step.weights)
            bar.show(step, float(loss))
            if step.is_last_of_epoch:
                part = held_out.cut(0, step.rank, step.ranks)
                tally = step.program.evaluate(*state[: len(SHAPES)], images[part.rows], labels[part.rows], part.weights)
                accuracy = float(tally[0]) / HELD_OUT
                bar.close(ranks=str(step.ranks), loss=f"{loss:.4f}", accuracy=f"{accuracy:.1%}")
                tree = {"state": state, "accuracy": np.float32(accuracy)}
                checkpoint.save(options.checkpoints, step.number + 1, tree, wait=False)
            step.commit(state)
    if training.rank == 0:
        print(f"test accuracy {accuracy:.2%}", flush=True)
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a classifier of handwritten digits; ranks may be lost.")
    parser.add_argument("--epochs", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate, default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches, default: %(default)s")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints/elastic"), help="default: %(default)s")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
