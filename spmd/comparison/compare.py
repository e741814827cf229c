"""`spmd.compare`: the first difference of two programs, or of two ways of running one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from collectives.grid import ProcessGrid
from partitioner.sharding import ShardedType, shard_stacked, unshard_stacked, without_padding
from spmd.analysis.collectives import COMMUNICATING
from spmd.analysis.shardings import is_sharded
from spmd.comparison.exact import Exactness, exactness
from spmd.comparison.observation import Observation, Observed, parting
from spmd.comparison.search import Difference, Search
from spmd.comparison.sides import Peer, ShardedSide, Side, with_meant
from spmd.compiler.pipeline.prepare import declared_grid
from spmd.errors import UsageError
from spmd.io import arguments
from spmd.ir import Module, Op
from spmd.support.arrays import Array
from spmd.support.usage import check_function, check_grid, check_module

if TYPE_CHECKING:
    from partitioner import Partitioned

#: A module, or a module and what runs it: names of back ends, or a peer.
Program = Module | tuple[Module, str | Sequence[str] | Peer]
_Inputs = Sequence[Array] | Sequence[Sequence[Array]] | None


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: `first` is the first value that differs, None if the sides agree.

    `compared` of the left side's `observed` values have a counterpart on the right side. `farthest` is the result that
    differs most, relative to what rounding explains; None if all are equal bitwise.
    """

    first: Difference | None
    compared: int
    observed: int
    farthest: Difference | None = None
    exact: Exactness | None = None

    @property
    def equal(self) -> bool:
        """Whether there is no difference beyond rounding."""
        if self.exact is not None and self.exact.is_decided:
            return self.exact.is_rounding
        return self.first is None

    def __bool__(self) -> bool:
        return self.equal

    @property
    def verdict(self) -> str:
        """The meaning of `equal` in words."""
        if self.equal:
            return "they agree" if self.farthest is not None else "they agree in every bit"
        return "they part"

    def __str__(self) -> str:
        if self.first is not None:
            at = (
                f": by rounding, which is more than the tolerance allows at {self.first}"
                if self.equal
                else f" at {self.first}"
            )
        else:
            at = "" if self.farthest is None else f": what differs most, by rounding, is {self.farthest}"
        return f"{self.verdict}{at}" + ("" if self.exact is None else f"\n{self.exact}")

    def to_json(self) -> dict[str, object]:
        """Return the comparison as JSON: `equal` is the verdict, and elements are text."""
        return {
            "equal": self.equal,
            "verdict": self.verdict,
            "first": None if self.first is None else self.first.to_json(),
            "farthest": None if self.farthest is None else self.farthest.to_json(),
            "compared": self.compared,
            "observed": self.observed,
            "exact": None if self.exact is None else {**asdict(self.exact), "is_rounding": self.exact.is_rounding},
        }


def compare(
    a: Program,
    b: Program | None = None,
    inputs: _Inputs = None,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    seed: int = 0,
    tolerance: float = 1.0,
    exact: bool = False,
) -> Comparison:
    """Run two programs on the same inputs, and find the first value that differs.

    `a` and `b` are modules, or pairs of a module and what runs it: the name of a back end, several, or a function of a
    module and arrays (a peer). Without `b`, `a` runs under "llvm" and under "numpy". A program with shardings is
    partitioned; compared with one of the same whole arrays, with other shardings or with none, whole values are
    compared. A program of one of several processes can be compared with the whole one: if neither states how arrays are
    divided, a layout is searched under which they agree, or nearly do. `inputs` are arrays of the arguments: whole ones
    if a side takes them, else, on several processes, a sequence of arrays per process; generated from `seed` by
    default. Values differ if an element does by more than `tolerance` times the rounding error of that element on both
    sides, or if the programs in 64-bit floats do by more than rounding explains there; integers and booleans must be
    equal, except for choices that rounding may decide. Constants that their type cannot represent (0.1) may be off by a
    rounding.

    If results differ, corresponding inner values are compared to find the first op whose operands agree and whose
    results do not: in a loop, in its first such iteration. `exact` also runs both in integers modulo two primes, where
    sums and products are equal in any order, and in 64-bit floats: the comparison's `exact` then says whether the
    difference is rounding, which counts as equal, and which side is more accurate.

    Raises UsageError for programs with different arguments or result types, and the errors of compiling and running
    them.
    """
    check_grid(grid, "spmd.compare")
    check_function(function, "spmd.compare")
    if not 0 <= tolerance < np.inf:
        raise UsageError(f"tolerance must be a non-negative number, got {tolerance}")
    left, right, inputs = _sides(a, b, inputs, grid, function, seed)
    ours, theirs = _inputs(left, right, inputs, seed)
    _check_results(left, right)
    left, right = with_meant(left, right)
    results = _results(left, right, ours, theirs)
    found = _compare(left, right, ours, theirs, results, tolerance)
    return replace(found, exact=exactness(left, right, ours, theirs, results)) if exact else found


@dataclass(frozen=True)
class _Given:
    """A program to compare, as given."""

    name: str
    module: Module
    function: str
    way: tuple[str, ...] | Peer
    declared: ProcessGrid

    @classmethod
    def of(cls, name: str, module: Module, function: str, way: tuple[str, ...] | Peer) -> _Given:
        return cls(name, module, function, way, declared_grid(module, function))

    @property
    def is_sharded(self) -> bool:
        """Whether the program states how arrays are divided among processes."""
        return is_sharded(self.module)

    @property
    def is_alone(self) -> bool:
        """Whether it is a program of a single process, by its declarations and its ops."""
        return self.declared.size == 1 and not self.is_sharded and not any(map(_is_of_processes, self.module.walk()))

    def side(self, grid: ProcessGrid) -> Side:
        """Return the side for one process of `grid`; a program with shardings is partitioned."""
        if callable(self.way) and grid.size > 1:
            raise UsageError(f"a peer runs programs of one process, not on a {grid} process grid")
        if not self.is_sharded:
            return Side.of(self.name, self.module, self.function, grid, self.way)
        split = _partitioned(self.module, grid, self.function)
        side = Side.of(self.name, split.module, self.function, grid, self.way)
        return replace(side, layout=split, whole=self.module)

    def beside(self, way: tuple[str, ...] | Peer, grid: ProcessGrid) -> tuple[Side, Side]:
        """Return the sides for one process of `grid` that compute the same function in this way and in another."""
        side, other = self.side(grid), replace(self, way=way)
        if callable(way) and grid.size > 1:
            other.side(grid)  # raises the error
        peer = way if callable(way) else None
        return side, replace(side, name="right", peer=peer, backends=side.backends if callable(way) else way)

    def whole_side(self, grid: ProcessGrid) -> Side:
        """Return the side that takes and returns whole arrays, on one process or partitioned over `grid`."""
        if not self.is_sharded:
            return Side.of(self.name, self.module, self.function, ProcessGrid(1, 1), self.way)
        return ShardedSide.of(self.name, self.module, self.function, grid, self.way)


def _partitioned(module: Module, grid: ProcessGrid, function: str) -> Partitioned:
    import partitioner  # loaded late: most programs have no shardings

    return partitioner.partition(module, grid, function)


def _is_of_processes(op: Op) -> bool:
    return op.name in COMMUNICATING or op.name in ("stablehlo.partition_id", "stablehlo.replica_id")


def _sides(
    a: Program, b: Program | None, inputs: _Inputs, grid: ProcessGrid | None, function: str, seed: int
) -> tuple[Side, Side, _Inputs]:
    """Return both sides in forms with equal arguments, both of one process or both of whole arrays, and the inputs.

    For two programs whose blocks belong to the same whole arrays, the inputs are those.
    """
    first, ways = _program(a)
    second, other_ways = (first, ("numpy",)) if b is None else _program(b)
    if b is None and isinstance(a, Module):
        ways = ("llvm", "numpy")
    left, right = _Given.of("left", first, function, ways), _Given.of("right", second, function, other_ways)
    grids = _grids(left, right, grid)
    if first is second:
        return *left.beside(other_ways, grids[0]), inputs
    both_local = not left.is_sharded and not right.is_sharded and left.is_alone == right.is_alone
    if not both_local or _are_per_process(inputs, grids[0].size):
        return *_with_whole(left, right, grids, inputs, seed), inputs
    sides = left.side(grids[0]), right.side(grids[1])
    is_same_size = grids[0].size == grids[1].size
    if left.is_alone and is_same_size:
        return *_alike(*sides), inputs
    return _jointly(*sides, inputs, seed)


def _with_whole(
    left: _Given, right: _Given, grids: tuple[ProcessGrid, ProcessGrid], inputs: _Inputs, seed: int
) -> tuple[Side, Side]:
    """Return the sides of two programs of which at least one has whole arrays, or whose inputs are per process."""
    is_same_size = grids[0].size == grids[1].size
    if left.is_sharded and right.is_sharded:
        if is_same_size:
            sides = left.side(grids[0]), right.side(grids[1])
            if sides[0].layout == sides[1].layout and sides[0].function.type == sides[1].function.type:
                return sides
        return _alike(left.whole_side(grids[0]), right.whole_side(grids[1]))
    if left.is_sharded or right.is_sharded:
        if left.is_alone or right.is_alone:
            whole = left.whole_side(grids[0]), right.whole_side(grids[1])
            if whole[0].function.type.inputs == whole[1].function.type.inputs:
                return whole
        plain = left if left.is_sharded else right
    elif left.is_alone != right.is_alone and not _are_per_process(inputs, grids[0].size):
        plain = left if left.is_alone else right
    elif is_same_size:
        return _alike(left.side(grids[0]), right.side(grids[1]))
    else:
        _refuse_sizes(*grids)
    other, at = (right, 1) if plain is left else (left, 0)
    local = other.side(grids[at])
    split = plain.side(grids[at]) if plain.is_sharded and is_same_size else None
    if split is None or split.function.type.inputs != local.function.type.inputs:
        split = _in_blocks(plain, local, inputs, seed)
    return _alike(split, local) if plain is left else _alike(local, split)


def _jointly(left: Side, right: Side, inputs: _Inputs, seed: int) -> tuple[Side, Side, _Inputs]:
    """Return the sides of two programs of one process each, with layouts of the same whole arrays if they need some.

    Programs of the same types on as many processes get the same blocks, unless their collectives have different groups
    and there are layouts that explain the groups and under which the programs agree.
    """
    from spmd.comparison import joint_layouts, layouts  # loaded late: they partition

    is_alike = left.grid.size == right.grid.size and left.function.type == right.function.type
    if is_alike and layouts.hints_of(left) == layouts.hints_of(right):
        return left, right, inputs
    joint = joint_layouts.joint_layouts(
        left, right, None if inputs is None else [np.asarray(array) for array in inputs], seed
    )
    if is_alike and not (joint is not None and joint.agrees and joint.is_explained):
        return left, right, inputs
    if joint is None and left.grid.size != right.grid.size:
        _refuse_sizes(left.grid, right.grid)
    if joint is None:
        _refuse(left, right)
    return replace(left, layout=joint.left), replace(right, layout=joint.right), joint.inputs


def _grids(left: _Given, right: _Given, grid: ProcessGrid | None) -> tuple[ProcessGrid, ProcessGrid]:
    """Return the grids of the sides: the given one, or what each declares if that has another size.

    A program without a declared grid runs on the other's.
    """
    common = grid or max(left.declared, right.declared, key=lambda each: each.size)

    def of(side: _Given) -> ProcessGrid:
        own = side.declared
        return own if own.size > 1 and (grid is None or own.size != grid.size) else common

    return of(left), of(right)


def _in_blocks(plain: _Given, local: Side, inputs: _Inputs, seed: int) -> Side:
    """Return the side of `plain`, which has whole arrays, partitioned like `local`, a program of one process."""
    from spmd.comparison import layouts  # loaded late: it partitions

    grid = local.grid
    whole = plain.whole_side(plain.declared if plain.declared.size > 1 else grid)
    blocks = local.function.type.inputs
    if not layouts.are_blocks(whole.function.type.inputs, blocks, grid.size):
        _refuse(whole, local)
    made = inputs or arguments.make(plain.module, plain.function, seed)
    arrays = [np.asarray(array)[None] for array in made]

    def partition(module: Module) -> Side:
        return replace(plain, module=module).side(grid)

    laid = layouts.laid_out(whole, local, arrays, partition)
    if laid is None:
        _refuse(whole, local)
    return partition(laid)


def _alike(left: Side, right: Side) -> tuple[Side, Side]:
    """Return the two sides; UsageError if their arguments differ."""
    if left.function.type.inputs != right.function.type.inputs:
        _refuse(left, right)
    return left, right


def _check_results(left: Side, right: Side) -> None:
    """Raise UsageError if the sides return different types."""
    if left.has_other_layout(right):
        return  # their results have layouts of the same whole types
    ours, theirs = (side.function.type.results for side in (left, right))
    if ours != theirs:
        shown = [f"({', '.join(map(str, types))})" for types in (ours, theirs)]
        raise UsageError(f"the programs give different results: {shown[0]} and {shown[1]}")


def _refuse_sizes(left: ProcessGrid, right: ProcessGrid) -> NoReturn:
    sizes = " and ".join(f"{each} of {each.size} processes" for each in (left, right))
    raise UsageError(f"the programs run on grids of different sizes: {sizes}")


def _refuse(left: Side, right: Side) -> NoReturn:
    shown = [f"@{each.function.symbol}({', '.join(map(str, _whole_types(each)))})" for each in (left, right)]
    raise UsageError(f"the programs take different arguments: {shown[0]} and {shown[1]}")


def _whole_types(side: Side) -> tuple[object, ...]:
    """Return the types of the arguments as callers pass them."""
    return tuple(side.function.type.inputs if side.layout is None else [each.type for each in side.layout.in_shardings])


def _program(given: Program) -> tuple[Module, tuple[str, ...] | Peer]:
    if isinstance(given, tuple):
        module, way = given
        check_module(module, "spmd.compare")
        return module, (way,) if isinstance(way, str) else way if callable(way) else tuple(way)
    check_module(given, "spmd.compare")
    return given, ("llvm", "numpy")


def _are_per_process(inputs: _Inputs, size: int) -> bool:
    """Return whether `inputs` are arrays for each of several processes."""
    given = list(inputs or ())
    return size > 1 and len(given) == size and all(isinstance(each, (list, tuple)) for each in given)


def _inputs(left: Side, right: Side, inputs: _Inputs, seed: int) -> tuple[list[Array], list[Array]]:
    """Return arrays of each side's arguments with a leading axis of processes."""
    size, symbol = max(left.grid.size, right.grid.size), left.function.symbol
    per_process = _are_per_process(inputs, size)
    layout, other = left.layout or right.layout, right.layout or left.layout
    if layout is not None and other is not None and not per_process:
        if inputs is None:
            of = left.whole or right.whole
            assert of is not None
            inputs = arguments.make(of, symbol, seed)
        ours, theirs = (
            [shard_stacked(np.asarray(x), each, count) for x, each in zip(inputs, laid.in_shardings, strict=True)]
            for laid, count in ((layout, left.grid.size), (other, right.grid.size))
        )
        return ours, theirs if left.has_other_layout(right) else ours
    if isinstance(left, ShardedSide) or isinstance(right, ShardedSide):
        if per_process:
            raise UsageError("these programs take whole arrays, and not those of each process")
        stacked = [array[None] for array in _arrays(inputs, left.module, symbol, seed)]
        return stacked, stacked
    if inputs is not None and not per_process:
        stacked = [np.asarray(array)[None] for array in inputs]
        return stacked, stacked
    rows = inputs or [arguments.make(left.module, symbol, seed + rank) for rank in range(size)]
    stacked = [np.stack([np.asarray(array) for array in column]) for column in zip(*rows, strict=True)]
    return stacked, stacked


def _arrays(inputs: _Inputs, module: Module, function: str, seed: int) -> list[Array]:
    """Return whole arrays of the arguments: given, or generated from `seed`."""
    return [np.asarray(array) for array in (inputs or arguments.make(module, function, seed))]


def _compare(
    left: Side,
    right: Side,
    inputs: Sequence[Array],
    beside: Sequence[Array],
    results: Sequence[tuple[Observation, Observation]],
    tolerance: float,
) -> Comparison:
    count = len(left.function.body.terminator.operands)
    found = [
        Difference(_giving(left, at % count), _giving(right, at % count), *far, result=at % count)
        for at, pair in enumerate(results)
        if (far := parting(*pair, tolerance)) is not None
    ]
    farthest = max(found, key=lambda each: each.distance.share, default=None)
    if farthest is None or farthest.distance.share <= 1:
        return Comparison(None, count, count, farthest)
    search = Search(tolerance)
    first = None if left.has_other_layout(right) else search.within(left, right, inputs, beside)
    first = first or next(each for each in found if each.distance.share > 1)
    return Comparison(first, search.compared, search.observed, farthest)


def _giving(side: Side, result: int) -> Op | None:
    """Return the op that defines a result of a side's function; None if it is an argument."""
    return side.function.body.terminator.operands[result].defining_op


def _results(
    left: Side, right: Side, inputs: Sequence[Array], beside: Sequence[Array]
) -> list[tuple[Observation, Observation]]:
    """Return the results of both sides, without the padding of blocks.

    If the sides have different layouts, the results of each in blocks of the left layout, then of the right one.
    """
    results = list(Observed((left, right), (inputs, beside)))
    layout, other = left.layout or right.layout, right.layout or left.layout
    if layout is None or other is None:
        return results
    if not left.has_other_layout(right):
        cut = [partial(without_padding, layout=each) for each in layout.out_shardings]
        return [(x.map(each), y.map(each)) for (x, y), each in zip(results, cut, strict=True)]
    found: list[tuple[Observation, Observation]] = []
    for ways in ((left, layout, other), (right, other, layout)):
        side, own, others = ways
        for (x, y), one, there in zip(results, own.out_shardings, others.out_shardings, strict=True):
            here, far = (x, y) if side is left else (y, x)
            moved = far.map(partial(_laid_otherwise, layout=there, wanted=one, processes=side.grid.size))
            kept = here.map(partial(without_padding, layout=one))
            found.append((kept, moved) if side is left else (moved, kept))
    return found


def _laid_otherwise(blocks: Array, layout: ShardedType, wanted: ShardedType, processes: int) -> Array:
    """Return the blocks of another layout of the same whole array."""
    from spmd.comparison.layouts import of_dtype  # loaded late: it partitions

    whole = unshard_stacked(blocks, of_dtype(layout, blocks))
    return without_padding(shard_stacked(whole, of_dtype(wanted, blocks), processes), wanted)
