"""One side of a comparison: a program, the processes that run it, what computes it, and observing its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from collectives.grid import ProcessGrid
from partitioner.sharding import ShardedType, shard_stacked, unshard_stacked
from spmd.comparison.formats import Meant, as_wide, is_inexact
from spmd.compiler.pipeline.prepare import find_function
from spmd.compiler.transforms.inline import inline
from spmd.compiler.transforms.simplify import remove_dead
from spmd.dialects.make import make_op
from spmd.ir import Block, Function, Module, Region, Value, copy_arguments, copy_op
from spmd.ir.attributes import DenseAttr
from spmd.runtime.compile import compile
from spmd.runtime.simulation import simulate
from spmd.support.arrays import Array
from spmd.types import FunctionType, TensorType

#: Runs a module's function `main` on arrays: a peer that is no back end of ours.
Peer = Callable[[Module, Sequence[Array]], Sequence[Array]]


class Layout(Protocol):
    """How a side's arguments and results lie over the processes: what a partitioner gives."""

    @property
    def in_shardings(self) -> Sequence[ShardedType]: ...

    @property
    def out_shardings(self) -> Sequence[ShardedType]: ...


@dataclass(frozen=True)
class Side:
    """A program of one process, without calls, the grid that runs it, and the back ends, or a peer, that compute it.

    `name` says which side it is, in messages; `layout`, of one that was partitioned, how its whole arrays are
    cut, and `whole` the program that was. `meant` are constants that are meant as they are.
    """

    name: str
    module: Module
    function: Function
    grid: ProcessGrid
    backends: tuple[str, ...] = ("llvm", "numpy")
    peer: Peer | None = None
    layout: Layout | None = None
    whole: Module | None = None
    meant: Meant = field(default_factory=Meant)

    @classmethod
    def of(cls, name: str, module: Module, function: str, grid: ProcessGrid, way: tuple[str, ...] | Peer) -> Side:
        """The side of `function` of `module`, its calls inlined; `way` is the back ends' names, or a peer."""
        flat = inline(module, find_function(module, function))
        if callable(way):
            return cls(name, module, flat, grid, peer=way)
        return cls(name, module, flat, grid, way)

    def has_other_layout(self, other: Side) -> bool:
        """Whether whole arrays are cut for both sides, in different ways."""
        return self.layout is not None and other.layout is not None and self.layout != other.layout

    def joined(self, blocks: Sequence[Array]) -> list[Array]:
        """The whole arrays of which the side's results are blocks."""
        assert self.layout is not None
        return [unshard_stacked(x, each) for x, each in zip(blocks, self.layout.out_shardings, strict=True)]

    def run(self, inputs: Sequence[Array], values: Sequence[Value] = ()) -> list[Array]:
        """Arrays of the results, or of `values`, of the function's own block; each with a leading axis of processes.

        `inputs` have that axis, too, of size 1 where all processes are given the same.
        """
        return self.runner(values)(inputs)

    def runner(self, values: Sequence[Value] = ()) -> Callable[[Sequence[Array]], list[Array]]:
        """Return what runs the side again and again, as `run` does."""
        module = self._returning(values or self.function.body.terminator.operands)
        if self.grid.size > 1:
            simulation = simulate(module, self.grid, backends=self.backends, reproducible=True)
            return lambda inputs: [np.asarray(array) for array in simulation(*inputs)]
        peer = self.peer
        compute = (
            compile(module, self.grid, backends=self.backends) if peer is None else lambda *arrays: peer(module, arrays)
        )
        return lambda inputs: [np.asarray(array)[None] for array in compute(*(array[0] for array in inputs))]

    def inside(self, block: Block, captured: Sequence[Value]) -> Side:
        """The side whose function is a block of a region, which also takes what the block reads from around it."""
        values: dict[Value, Value] = {}
        body = copy_arguments(block, values)
        for value in captured:
            values[value] = body.add_argument(value.type)
        body.ops = [copy_op(op, values) for op in block.ops[:-1]]
        returned = [values.get(value, value) for value in block.terminator.operands]
        body.ops.append(make_op("func.return", returned, []))
        return replace(self, function=function_of(body))

    def _returning(self, values: Sequence[Value]) -> Module:
        """A module whose function `main` computes and returns `values` alone."""
        copies: dict[Value, Value] = {}
        body = copy_arguments(self.function.body, copies)
        body.ops = [copy_op(op, copies) for op in self.function.body.ops[:-1]]
        body.ops.append(make_op("func.return", [copies.get(value, value) for value in values], []))
        remove_dead(body)
        kept = [op for op in self.module.body.ops if op.name != "func.func"]
        others = [function for function in self.module.functions if function.symbol != "main"]
        return self.module.with_ops([*kept, *others, self.entry(body)])

    def entry(self, body: Block) -> Function:
        """Return the function `main` of this body, which takes what the side's function takes."""
        return function_of(body)

    def plain(self) -> Side:
        """Return the side of which the same function gives the same values, without shardings."""
        return self


@dataclass(frozen=True)
class ShardedSide(Side):
    """A program with shardings, which takes and gives whole arrays: a leading axis of size 1.

    Each time it runs, what is to be given is partitioned: its inner values are whole, too. `original` is the function
    as it was at first, of which results are those of the program as it stands, with its calls.
    """

    original: Function | None = None

    @classmethod
    def of(cls, name: str, module: Module, function: str, grid: ProcessGrid, way: tuple[str, ...] | Peer) -> Side:
        side = super().of(name, module, function, grid, way)
        assert isinstance(side, ShardedSide)
        return replace(side, original=side.function)

    def run(self, inputs: Sequence[Array], values: Sequence[Value] = ()) -> list[Array]:
        import partitioner  # loaded late: most programs have no shardings

        module, symbol = self.module, self.function.symbol
        if values or self.function is not self.original:
            module, symbol = self._returning(values or self.function.body.terminator.operands), "main"
        split = partitioner.partition(module, self.grid, symbol)
        simulation = simulate(split.module, self.grid, split.function, backends=self.backends, reproducible=True)
        size = self.grid.size
        cut = [shard_stacked(array[0], each, size) for array, each in zip(inputs, split.in_shardings, strict=True)]
        results = simulation(*cut)
        return [unshard_stacked(x, each)[None] for x, each in zip(results, split.out_shardings, strict=True)]

    def plain(self) -> Side:
        module = self.module.with_ops([op for op in self.module.body.ops if op.name == "func.func"])
        return Side(self.name, module, self.function, ProcessGrid(1, 1), self.backends, meant=self.meant)

    def entry(self, body: Block) -> Function:
        """Return the function `main` of this body, with the layouts of the side's arguments, and of as many results."""
        function, kept = function_of(body), self.function.attributes
        attributes = dict(function.attributes)
        for name, count, same in (
            ("arg_attrs", len(function.type.inputs), len(self.function.type.inputs)),
            ("res_attrs", len(function.type.results), len(self.function.type.results)),
        ):
            if kept.get(name) and count == same:
                attributes[name] = kept[name]
        return function.with_body(body, attributes)


def with_meant(left: Side, right: Side) -> tuple[Side, Side]:
    """The two sides, of which numbers that both hold are meant as they are."""
    meant = Meant.by_both(*(_constants(side.function) for side in (left, right)))
    return replace(left, meant=meant), replace(right, meant=meant)


def _constants(function: Function) -> Iterator[Array]:
    """The floats that a function holds."""
    for op in function.walk():
        if op.name == "stablehlo.constant" and isinstance(op["value"], DenseAttr) and is_inexact(op.result.type):
            yield op["value"].array


def function_of(body: Block) -> Function:
    """The function `main` of this body."""
    types = FunctionType(tuple(value.type for value in body.arguments), tuple(body.terminator.operand_types))
    attributes = {"sym_name": "main", "function_type": types}
    function = make_op("func.func", [], [], attributes, [Region([body])])
    assert isinstance(function, Function)
    return function


def wide_runner(side: Side, body: Block) -> Callable[[Sequence[Array]], list[Array]]:
    """Return what runs a body that takes a side's arguments in 64-bit floats, and maybe more, by process.

    By NumPy: it runs a few times, and to make native code of ten ops for each takes longer.
    """
    wide = replace(side, function=function_of(body), peer=None, backends=("numpy",))

    run, floats = wide.runner(), [is_inexact(argument.type) for argument in body.arguments]
    return lambda inputs: run([as_wide(x) if wide else x for x, wide in zip(inputs, floats, strict=True)])


def is_observable(value: Value) -> bool:
    """Whether an array holds `value`: a tensor of known shape."""
    return isinstance(value.type, TensorType) and value.type.is_static
