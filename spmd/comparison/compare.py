"""`spmd.compare`: where two programs, or two ways of running one, first part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collectives.grid import ProcessGrid
from partitioner.sharding import shard_stacked, unshard_stacked
from spmd.analysis.grid import grid_of
from spmd.analysis.shardings import is_sharded
from spmd.comparison.distance import ROUNDING, farthest
from spmd.comparison.exact import Exactness, exactness
from spmd.comparison.search import Difference, Search
from spmd.comparison.sides import Peer, Side
from spmd.errors import UsageError
from spmd.io import arguments
from spmd.ir import Module
from spmd.support.arrays import Array
from spmd.support.usage import check_function, check_grid, check_module

#: Module, or module and what computes it: names of back ends, or a peer.
Program = Module | tuple[Module, str | Sequence[str] | Peer]


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison: `first` is the first value at which the sides part, None where they agree.

    `compared` values of `observed` of the left side had one on the right side to be compared with; `ulps` is how far
    apart values are that pass for equal, in units of the last place of an array's largest element.
    """

    first: Difference | None
    compared: int
    observed: int
    ulps: float = 0.0
    exact: Exactness | None = None

    @property
    def equal(self) -> bool:
        """Whether no difference was found that rounding does not explain."""
        return self.first is None or (self.exact is not None and self.exact.is_rounding)

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        exact = "" if self.exact is None else f"\n{self.exact}"
        if self.first is not None:
            return f"they part at {self.first}{exact}"
        return f"they agree, within {self.ulps:.3g} units in the last place of the largest element{exact}"


def compare(
    a: Program,
    b: Program | None = None,
    inputs: Sequence[Array] | Sequence[Sequence[Array]] | None = None,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    seed: int = 0,
    tolerance: float = ROUNDING,
    exact: bool = False,
) -> Comparison:
    """Runs two programs on the same inputs, and finds the first value at which they part.

    `a` and `b` are modules, or pairs of a module and what computes it: a back end's name, several, or a function of a
    module and arrays (a peer). Without `b`, `a` runs under "llvm" and under "numpy". Of a program with shardings and
    one of a single process, the first is partitioned. `inputs` are arrays of the arguments: whole ones of a program
    with shardings, else, on several processes, a sequence of arrays a process; made from `seed` where they are not
    given. Values part where they differ by more than `tolerance` units in the last place of the array's largest
    element; integers and booleans by anything.

    Where results part, values inside are compared that correspond to each other, and the first is found whose ops are
    given what agrees: in loops, in the first iteration in which it does. `exact` also runs both in integers modulo two
    primes, where sums and products in any order are equal, and in 64-bit floats: the comparison's `exact` then says
    whether what differs is rounding, which is no difference, and which side is nearer to the right values.

    Raises UsageError for programs that do not take the same arguments, and what compiling and running them raises.
    """
    check_grid(grid, "spmd.compare")
    check_function(function, "spmd.compare")
    left, right = _sides(a, b, grid, function)
    ours, theirs = _inputs(left, right, inputs, seed)
    found = _compare(left, right, ours, theirs, tolerance)
    return replace(found, exact=exactness(left, right, ours, theirs)) if exact else found


def _sides(a: Program, b: Program | None, grid: ProcessGrid | None, function: str) -> tuple[Side, Side]:
    first, ways = _program(a)
    second, other_ways = (first, ("numpy",)) if b is None else _program(b)
    if b is None and isinstance(a, Module):
        ways = ("llvm", "numpy")
    grids = grid_of(first), grid_of(second)
    grid = grid or max(grids, key=lambda each: each.size)
    sides = [
        _side(name, module, function, grid, given)
        for name, module, given in (("left", first, ways), ("right", second, other_ways))
    ]
    types = [_whole_types(side) for side in sides]
    if types[0] != types[1] and sides[0].function.type.inputs != sides[1].function.type.inputs:
        shown = [f"@{function}({', '.join(map(str, each))})" for each in types]
        raise UsageError(f"the programs take different arguments: {shown[0]} and {shown[1]}")
    return sides[0], sides[1]


def _whole_types(side: Side) -> tuple[object, ...]:
    """The types of the arguments as callers give them."""
    return tuple(side.function.type.inputs if side.layout is None else [each.type for each in side.layout.in_shardings])


def _program(given: Program) -> tuple[Module, tuple[str, ...] | Peer]:
    if isinstance(given, tuple):
        module, way = given
        check_module(module, "spmd.compare")
        return module, (way,) if isinstance(way, str) else way if callable(way) else tuple(way)
    check_module(given, "spmd.compare")
    return given, ("llvm", "numpy")


def _side(name: str, module: Module, function: str, grid: ProcessGrid, way: tuple[str, ...] | Peer) -> Side:
    if callable(way) and grid.size > 1:
        raise UsageError(f"a peer runs programs of one process, not on a {grid} process grid")
    if not is_sharded(module):
        return Side.of(name, module, function, grid, way)
    import partitioner  # loaded late: most programs have no shardings

    split = partitioner.partition(module, grid, function)
    return replace(Side.of(name, split.module, function, grid, way), layout=split, whole=module)


def _inputs(
    left: Side, right: Side, inputs: Sequence[Array] | Sequence[Sequence[Array]] | None, seed: int
) -> tuple[list[Array], list[Array]]:
    """Arrays of each side's arguments with a leading axis of processes."""
    size = left.grid.size
    layouts = left.layout or right.layout, right.layout or left.layout
    given = None if inputs is None else list(inputs)
    per_process = given and size > 1 and len(given) == size and all(isinstance(each, (list, tuple)) for each in given)
    if layouts[0] is not None and layouts[1] is not None and not per_process:
        of = right if left.whole is None else left
        assert of.whole is not None
        whole = [np.asarray(array) for array in given or arguments.make(of.whole, of.function.symbol, seed)]
        ours, theirs = (
            [shard_stacked(array, each, size) for array, each in zip(whole, layout.in_shardings, strict=True)]
            for layout in layouts
            if layout is not None
        )
        return ours, theirs
    symbol = left.function.symbol
    if given is None:
        given = [arguments.make(left.module, symbol, seed + rank) for rank in range(size)]
    elif not per_process:
        return [np.asarray(array)[None] for array in given], [np.asarray(array)[None] for array in given]
    stacked = [np.stack([np.asarray(array) for array in column]) for column in zip(*given, strict=True)]
    return stacked, stacked


def _compare(left: Side, right: Side, inputs: Sequence[Array], beside: Sequence[Array], tolerance: float) -> Comparison:
    pairs = list(zip(left.run(inputs), right.run(beside), strict=True))
    apart = None not in (left.layout, right.layout) and left.layout != right.layout
    if apart:  # in two layouts, it is whole results that are the same
        pairs = [(_whole(left, at, x), _whole(right, at, y)) for at, (x, y) in enumerate(pairs)]
    found = [farthest(ours, theirs) for ours, theirs in pairs]
    worst = max((each[1].relative for each in found if each is not None), default=0.0)
    parting = [each for each in found if each is not None and each[1].relative > tolerance]
    if not parting:
        return Comparison(None, len(pairs), len(pairs), worst)
    search = Search(tolerance)
    first = None if apart else search.within(left, right, inputs, beside)
    if first is None:
        process, far = parting[0]
        first = Difference(None, None, process, far)
    return Comparison(first, search.compared, search.observed, worst)


def _whole(side: Side, index: int, blocks: Array) -> Array:
    assert side.layout is not None
    return unshard_stacked(blocks, side.layout.out_shardings[index])[None]
