"""One side of a comparison: a program, its processes, what runs it, and observation of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from collectives.grid import ProcessGrid
from partitioner.sharding import ShardedType, shard_stacked, unshard_stacked
from spmd.comparison.correspondence import corresponding_constants, holds_floats
from spmd.comparison.formats import Meant, as_wide, is_inexact
from spmd.compiler.pipeline.prepare import find_function
from spmd.compiler.transforms.inline import inline
from spmd.compiler.transforms.simplify import remove_dead
from spmd.dialects.make import make_op
from spmd.ir import Block, Function, Module, Region, Value, copy_arguments, copy_op
from spmd.runtime.compile import compile
from spmd.runtime.simulation import simulate
from spmd.support.arrays import Array
from spmd.types import FunctionType, TensorType

#: Runs a module's function `main` on arrays: a peer outside of spmd's back ends.
Peer = Callable[[Module, Sequence[Array]], Sequence[Array]]


class SideLayout(Protocol):
    """The layouts of a side's arguments and results over the processes, as a partitioner returns them."""

    @property
    def in_shardings(self) -> Sequence[ShardedType]: ...

    @property
    def out_shardings(self) -> Sequence[ShardedType]: ...


@dataclass(frozen=True)
class Side:
    """A program of one process, without calls, its grid, and the back ends, or a peer, that run it.

    `name` names the side in messages; `layout`, if it was partitioned, is how its whole arrays are divided, and `whole`
    the program before that. `meant` are constants that are exact.
    """

    name: str
    module: Module
    function: Function
    grid: ProcessGrid
    backends: tuple[str, ...] = ("llvm", "numpy")
    peer: Peer | None = None
    layout: SideLayout | None = None
    whole: Module | None = None
    meant: Meant = field(default_factory=Meant)

    @classmethod
    def of(cls, name: str, module: Module, function: str, grid: ProcessGrid, way: tuple[str, ...] | Peer) -> Side:
        """Return the side of `function` of `module`, with calls inlined; `way` is the back ends' names, or a peer."""
        flat = inline(module, find_function(module, function))
        if callable(way):
            return cls(name, module, flat, grid, peer=way)
        return cls(name, module, flat, grid, way)

    def has_other_layout(self, other: Side) -> bool:
        """Return whether both sides divide whole arrays, in different ways."""
        return self.layout is not None and other.layout is not None and self.layout != other.layout

    def joined(self, blocks: Sequence[Array]) -> list[Array]:
        """Return the whole arrays of which the side's results are blocks."""
        assert self.layout is not None
        return [unshard_stacked(x, each) for x, each in zip(blocks, self.layout.out_shardings, strict=True)]

    def run(self, inputs: Sequence[Array], values: Sequence[Value] = ()) -> list[Array]:
        """Return the results, or `values` of the function's own block, as arrays with a leading axis of processes.

        `inputs` have that axis as well, of size 1 if all processes get the same.
        """
        return self.runner(values)(inputs)

    def runner(self, values: Sequence[Value] = ()) -> Callable[[Sequence[Array]], list[Array]]:
        """Return a function that runs the side repeatedly, as `run` does."""
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
        """Return the side whose function is a block of a region, which also takes the values that the
        block captures.
        """
        values: dict[Value, Value] = {}
        body = copy_arguments(block, values)
        for value in captured:
            values[value] = body.add_argument(value.type)
        body.ops = [copy_op(op, values) for op in block.ops[:-1]]
        returned = [values.get(value, value) for value in block.terminator.operands]
        body.ops.append(make_op("func.return", returned, []))
        return replace(self, function=function_of(body))

    def _returning(self, values: Sequence[Value]) -> Module:
        """Return a module whose function `main` computes and returns only `values`."""
        copies: dict[Value, Value] = {}
        body = copy_arguments(self.function.body, copies)
        body.ops = [copy_op(op, copies) for op in self.function.body.ops[:-1]]
        body.ops.append(make_op("func.return", [copies.get(value, value) for value in values], []))
        remove_dead(body)
        kept = [op for op in self.module.body.ops if op.name != "func.func"]
        others = [function for function in self.module.functions if function.symbol != "main"]
        return self.module.with_ops([*kept, *others, self.entry(body)])

    def entry(self, body: Block) -> Function:
        """Return the function `main` of this body, with the parameters of the side's function."""
        return function_of(body)

    def plain(self) -> Side:
        """Return a side that computes the same values, without shardings."""
        return self


@dataclass(frozen=True)
class ShardedSide(Side):
    """A program with shardings that takes and returns whole arrays: a leading axis of size 1.

    It is partitioned anew for each set of values, so that inner values are whole as well. `original` is the function at
    first, whose results are computed by the program with its calls.
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
        """Return the function `main` of this body, with the layouts of the side's arguments, and of
        results if as many.
        """
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
    """Return the two sides, with constants that both have taken as exact, and those changed in the other as changed."""
    meant = Meant.by_both(*(_constants(side.function) for side in (left, right)))
    changed = corresponding_constants(left.function, right.function)
    meant = meant.and_changed((one["value"].array, other["value"].array) for one, other in changed)
    return replace(left, meant=meant), replace(right, meant=meant)


def _constants(function: Function) -> Iterator[Array]:
    """Return the float constants that a function holds and uses."""
    used = {operand for op in function.walk() for operand in op.operands}
    return (op["value"].array for op in function.walk() if holds_floats(op) and op.result in used)


def function_of(body: Block) -> Function:
    """Return the function `main` of this body."""
    types = FunctionType(tuple(value.type for value in body.arguments), tuple(body.terminator.operand_types))
    attributes = {"sym_name": "main", "function_type": types}
    function = make_op("func.func", [], [], attributes, [Region([body])])
    assert isinstance(function, Function)
    return function


def wide_runner(side: Side, body: Block) -> Callable[[Sequence[Array]], list[Array]]:
    """Return a function that runs a body that takes a side's arguments in 64-bit floats, and perhaps more.

    By NumPy: it runs a few times, and compiling ten ops for each op takes longer.
    """
    wide = replace(side, function=function_of(body), peer=None, backends=("numpy",))

    run, floats = wide.runner(), [is_inexact(argument.type) for argument in body.arguments]
    return lambda inputs: run([as_wide(x) if wide else x for x, wide in zip(inputs, floats, strict=True)])


def is_observable(value: Value) -> bool:
    """Return whether `value` is a tensor of known shape."""
    return isinstance(value.type, TensorType) and value.type.is_static
