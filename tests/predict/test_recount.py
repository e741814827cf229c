"""What explain and predict say of bytes and of products, counted again by carrying it out."""

from __future__ import annotations

from functools import reduce
from math import prod

import numpy as np
import pytest

import partitioner
import spmd
from collectives.explain import cost
from collectives.operations import CollectiveReduce
from partitioner.report import collectives
from spmd.analysis.collectives import COMMUNICATING
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.prepare import prepare
from spmd.compiler.schedule.costs import work_of_op
from spmd.compiler.schedule.step_costs import cost_of_step
from spmd.predict.machine import nominal
from spmd.predict.prediction import predict
from spmd.support.arrays import Array
from tests.backends.collective_programs import PROGRAMS, CollectiveProgram
from tests.loops import counted_loop
from tests.predict.counting import count_messages, count_operations
from tests.predict.test_balance import cases

SIZE = 4
RECOUNTED = PROGRAMS | {
    f"large {name}": CollectiveProgram(
        text, spmd.ProcessGrid(SIZE, 1), lambda rank: (np.arange(2040, dtype=np.float32) * rank,), lambda rank: ()
    )
    for name, (text, _, _) in cases(SIZE).items()
}


@pytest.mark.parametrize("name", RECOUNTED)
def test_bytes_are_those_that_processes_send(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every collective that threads meet in, carried out by messages as well; permutations by those that are posted."""
    program = RECOUNTED[name]
    operations, messages = count_operations(monkeypatch), count_messages(monkeypatch)
    module = spmd.parse(program.text)
    spmd.run_parallel(module, program.grid, [program.inputs(rank) for rank in range(SIZE)], mode="threads")
    for operation, wires in operations:
        if not isinstance(operation, CollectiveReduce):
            most = 2 * operation.dtype.itemsize * len(wires.sent)  # elements are not divided
            assert cost(operation, len(wires.sent)).sent == pytest.approx(max(wires.sent), abs=most)
    counted = [sum(wires.sent) for _, wires in operations] + [nbytes for _, nbytes in messages]
    expected = predict(prepare(module, program.grid), nominal())
    assert sum(expected.levels.values()) == pytest.approx(sum(counted))
    has_any = any(op.name in COMMUNICATING for op in module.walk())
    assert bool(counted) == has_any


class Counted:
    """A number that counts what is done with it."""

    count = 0

    def _operation(self, *others: Counted) -> Counted:
        Counted.count += 1
        return self

    __mul__ = __add__ = __sub__ = __neg__ = _operation

    def __ge__(self, other: Counted) -> bool:
        return self._operation(other) is self


def numbers(shape: tuple[int, ...]) -> Array:
    """An array of numbers that count, from which the count begins anew."""
    Counted.count = 0
    return np.array([Counted() for _ in range(prod(shape))], object).reshape(shape)


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
    numbers(())
    for _ in np.ndindex(*(sizes[letter] for letter in kept)):
        products = [Counted() * Counted() for _ in np.ndindex(*summed)]
        reduce(lambda total, each: total + each, products, Counted())
    assert work.amount == Counted.count


@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 2)])
def test_operations_of_a_convolution_are_those_of_its_windows(stride: int, groups: int) -> None:
    out, features, inner = (7 - 3) // stride + 1, 4, 6 // groups
    types = f"(tensor<2x7x7x6xf32>, tensor<3x3x{inner}x{features}xf32>) -> tensor<2x{out}x{out}x{features}xf32>"
    text = f"""func.func @main(%x: tensor<2x7x7x6xf32>, %k: tensor<3x3x{inner}x{features}xf32>)
        -> tensor<2x{out}x{out}x{features}xf32> {{
      %y = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{stride = [{stride}, {stride}]}}
        {{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : {types}
      return %y : tensor<2x{out}x{out}x{features}xf32>
    }}"""
    (work,) = work_of_op(spmd.parse(text).function("main").body.ops[0])
    x, kernel = numbers((2, 7, 7, 6)), numbers((3, 3, inner, features))
    for batch, row, column, feature in np.ndindex(2, out, out, features):
        first = feature // (features // groups) * inner
        rows, columns = (slice(at * stride, at * stride + 3) for at in (row, column))
        products = x[batch, rows, columns, first : first + inner] * kernel[..., feature]
        reduce(lambda total, each: total + each, products.reshape(-1), Counted())
    assert work.amount == Counted.count


LOOPS = {
    "chain": (
        ((6, 10), (10,)),
        """%b = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<10xf32>) -> tensor<6x10xf32>
           %a = stablehlo.add %0, %b : tensor<6x10xf32>
           %m = stablehlo.multiply %a, %0 : tensor<6x10xf32>
           %y = stablehlo.maximum %m, %b : tensor<6x10xf32>""",
        lambda x, y: np.maximum((x + y) * x, y),
    ),
    "sum of rows": (
        ((6, 10), ()),
        """%n = stablehlo.negate %0 : tensor<6x10xf32>
           %y = stablehlo.reduce(%n init: %1) applies stablehlo.add across dimensions = [1]
             : (tensor<6x10xf32>, tensor<f32>) -> tensor<6xf32>""",
        lambda x, y: np.add.reduce(-x, 1, initial=y[()]),
    ),
    "read twice": (
        ((8, 8), (8, 8)),
        """%a = stablehlo.multiply %0, %1 : tensor<8x8xf32>
           %s = stablehlo.slice %a [0:4, 0:8] : (tensor<8x8xf32>) -> tensor<4x8xf32>
           %t = stablehlo.slice %0 [4:8, 0:8] : (tensor<8x8xf32>) -> tensor<4x8xf32>
           %y = stablehlo.subtract %s, %t : tensor<4x8xf32>""",
        lambda x, y: x[:4] * y[:4] - x[4:],
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_operations_of_loop_nests_are_those_of_numbers(name: str) -> None:
    """What no result hangs on is not computed; of what is, each element once."""
    shapes, body, compute = LOOPS[name]
    written = ["tensor<" + "".join(f"{size}x" for size in shape) + "f32>" for shape in shapes]
    result = body.rsplit(" ", 1)[1] if "->" in body.rsplit("\n", 1)[1] else body.rsplit(": ", 1)[1]
    text = f"""func.func @main(%0: {written[0]}, %1: {written[1]}) -> {result} {{
      {body}
      return %y : {result}
    }}"""
    prepared = prepare(spmd.parse(text), backends=("llvm", "numpy"))
    lowering = ModuleLowering(prepared.module, prepared.options)
    steps = lowering.schedule(lowering.flatten(prepared.function).body).steps
    compute(*map(numbers, shapes))
    assert sum(cost_of_step(step).operations for step in steps) == Counted.count


def test_the_partitioner_s_table_has_what_processes_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of seven turns over sums of parts, and what follows it."""
    text = f"""sdy.mesh @mesh = <["x"={SIZE}]>
      func.func @main(%a: tensor<32x32xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{"x"}}]>}},
                      %w: tensor<32x32xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}})
          -> (tensor<32x32xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{}}]>}}) {{
      {counted_loop("tensor<32x32xf32>", TURN, 7, "%a")}
        return %r#1 : tensor<32x32xf32>
      }}"""
    split = partitioner.partition(spmd.parse(text))
    rows = collectives(split.module)
    assert {row.turns for row in rows} == {1, 7}
    operations, messages = count_operations(monkeypatch), count_messages(monkeypatch)
    blocks = [np.ones(layout.local_type.static_shape, np.float32) for layout in split.in_shardings]
    spmd.run_parallel(split.module, spmd.ProcessGrid(1, SIZE), [blocks] * SIZE, mode="threads")
    assert not messages
    assert sum(row.times * row.bytes for row in rows) == sum(max(wires.sent) for _, wires in operations)


TURN = """%u = stablehlo.dot_general %v, %w, contracting_dims = [1] x [0]
  : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>"""
