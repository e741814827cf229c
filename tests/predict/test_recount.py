"""What explain and predict say of bytes and of products, counted again by carrying it out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest

import spmd
from collectives.explain import cost
from collectives.operations import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectiveBroadcast,
    CollectivePermute,
    CollectiveReduce,
    Operation,
    ReduceScatter,
    ReducingOperation,
)
from collectives.threads import ThreadCommunicator
from spmd.analysis.collectives import COMMUNICATING
from spmd.compiler.pipeline.prepare import prepare
from spmd.compiler.schedule.costs import work_of_op
from spmd.predict.machine import nominal
from spmd.predict.prediction import predict
from spmd.support.arrays import Array
from tests.backends.collective_programs import PROGRAMS, CollectiveProgram
from tests.predict.test_balance import cases

SIZE = 4
RECOUNTED = PROGRAMS | {
    f"large {name}": CollectiveProgram(
        text, spmd.ProcessGrid(SIZE, 1), lambda rank: (np.arange(2040, dtype=np.float32) * rank,), lambda rank: ()
    )
    for name, (text, _, _) in cases(SIZE).items()
}


class Wires:
    """What the processes of a group send, in bytes, where an operation is carried out by messages."""

    def __init__(self, size: int) -> None:
        self.sent = [0.0] * size

    def send(self, source: int, array: Array, operation: Operation) -> Array:
        """The array as it arrives. Sums of narrow floats travel as wide ones, parts of a byte packed."""
        self.sent[source] += array.size * _width(operation, array)
        return array.copy()


def _width(operation: Operation, array: Array) -> float:
    if isinstance(operation, ReducingOperation) and not operation.is_exchanged:
        return operation.arithmetic.accumulator.itemsize
    return 0.5 if array.dtype.name in ("int4", "uint4") else array.dtype.itemsize


def carried_out(operation: Operation, arrays: Sequence[Array]) -> Wires:
    """Carry out an operation by a ring, a chain or messages from each to each, whichever needs the fewest bytes."""
    size = len(arrays)
    wires = Wires(size)
    match operation:
        case AllReduce():
            _gathered(_folded(operation, arrays, wires), operation, wires)
        case ReduceScatter():
            _folded(operation, arrays, wires)
        case AllGather():
            _gathered([array.reshape(-1) for array in arrays], operation, wires)
        case AllToAll():
            for source, array in enumerate(arrays):
                for target, part in enumerate(np.split(array, size, operation.split_dim)):
                    if target != source:
                        wires.send(source, part, operation)
        case CollectiveBroadcast() | CollectiveReduce():
            for step in range(size - 1):
                wires.send((operation.root + step) % size, arrays[operation.root], operation)
    return wires


def _folded(operation: ReducingOperation, arrays: Sequence[Array], wires: Wires) -> list[Array]:
    """Each process's part of the fold, by a ring: what arrives is folded into one's own and goes on."""
    size = len(arrays)
    parts = [np.array_split(array.reshape(-1), size) for array in arrays]
    for step in range(size - 1):
        for rank in range(size):
            number = (rank - step) % size
            there = wires.send(rank, parts[rank][number], operation)
            target = parts[(rank + 1) % size]
            target[number] = operation.arithmetic.fold([there, target[number]])
    return [parts[(number - 1) % size][number] for number in range(size)]


def _gathered(parts: Sequence[Array], operation: Operation, wires: Wires) -> None:
    size = len(parts)
    for step in range(size - 1):
        for rank in range(size):
            wires.send(rank, parts[(rank - step) % size], operation)


@pytest.mark.parametrize("name", RECOUNTED)
def test_bytes_are_those_that_processes_send(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every collective that threads meet in, carried out by messages as well; permutations by those that are posted."""
    program = RECOUNTED[name]
    counted: list[float] = []

    def watch(kind: type[Operation]) -> None:
        evaluate = kind.evaluate

        def watched(self: Operation, arrays: Sequence[Array]) -> Sequence[Array]:
            if len(arrays) > 1 and arrays[0].dtype != object:
                wires = carried_out(self, arrays)
                counted.append(sum(wires.sent))
                if not isinstance(self, CollectiveReduce):
                    most = 2 * arrays[0].dtype.itemsize * len(arrays)  # elements are not divided
                    assert cost(self, len(arrays)).sent == pytest.approx(max(wires.sent), abs=most)
            return evaluate(self, arrays)

        monkeypatch.setattr(kind, "evaluate", watched)

    for kind in Operation.kinds():
        if "evaluate" in vars(kind):
            watch(kind)
    permute = ThreadCommunicator._permute

    def permuted(self: ThreadCommunicator, operation: CollectivePermute, where: str) -> Any:
        start, target = permute(self, operation, where), operation.target(self.rank)

        def started(array: Array) -> Any:
            if target not in (None, self.rank):
                counted.append(array.nbytes)
            return start(array)

        return started

    monkeypatch.setattr(ThreadCommunicator, "_permute", permuted)
    send = ThreadCommunicator.send

    def sent(self: ThreadCommunicator, array: Array, target: int, *how: Any) -> None:
        counted.append(array.nbytes if target != self.rank else 0)
        send(self, array, target, *how)

    monkeypatch.setattr(ThreadCommunicator, "send", sent)
    module = spmd.parse(program.text)
    spmd.run_parallel(module, program.grid, [program.inputs(rank) for rank in range(SIZE)], mode="threads")
    expected = predict(prepare(module, program.grid), nominal())
    assert sum(expected.levels.values()) == pytest.approx(sum(counted))
    has_any = any(op.name in COMMUNICATING for op in module.walk())
    assert bool(counted) == has_any


class Counted:
    """A number that counts its products and sums."""

    count = 0

    def __mul__(self, other: Counted) -> Counted:
        Counted.count += 1
        return self

    def __add__(self, other: Counted) -> Counted:
        Counted.count += 1
        return self


PRODUCTS = [
    ((3, 5), (5, 7), "contracting_dims = [1] x [0]", (3, 7), "ij,jk->ik"),
    ((5, 3), (5, 7), "contracting_dims = [0] x [0]", (3, 7), "ji,jk->ik"),
    ((2, 3, 5), (2, 5, 4), "batching_dims = [0] x [0], contracting_dims = [2] x [1]", (2, 3, 4), "bij,bjk->bik"),
    ((2, 3, 5), (5, 3), "contracting_dims = [1, 2] x [1, 0]", (2,), "bij,ji->b"),
    ((6,), (6,), "contracting_dims = [0] x [0]", (), "i,i->"),
]


@pytest.mark.parametrize(("left", "right", "dims", "result", "indices"), PRODUCTS)
def test_operations_of_products_are_those_of_numbers(
    left: tuple[int, ...], right: tuple[int, ...], dims: str, result: tuple[int, ...], indices: str
) -> None:
    """An element of n terms takes n multiplications and, into a sum that begins at zero, n additions."""
    types = ["tensor<" + "".join(f"{size}x" for size in shape) + "f32>" for shape in (left, right, result)]
    text = f"""func.func @main(%x: {types[0]}, %y: {types[1]}) -> {types[2]} {{
      %z = stablehlo.dot_general %x, %y, {dims} : ({types[0]}, {types[1]}) -> {types[2]}
      return %z : {types[2]}
    }}"""
    (work,) = work_of_op(spmd.parse(text).function("main").body.ops[0])
    terms, _, kept = indices.partition("->")
    first, second = terms.split(",")
    sizes = dict(zip(first + second, left + right, strict=True))
    summed = [sizes[letter] for letter in sizes if letter not in kept]
    Counted.count = 0
    for _ in np.ndindex(*(sizes[letter] for letter in kept)):
        products = [Counted() * Counted() for _ in np.ndindex(*summed)]
        reduce(lambda total, each: total + each, products, Counted())
    assert work.amount == Counted.count
