"""How a fused unit reaches the values that it reads: at its points themselves, or through chains of index maps.

A chain may lead back to the point itself: a gather reads each number of its start indices alone, and where these were
concatenated, and got the dimension that they lie along by a broadcast, each comes from the point's own place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from spmd.analysis.affine import Affine, Split
from spmd.analysis.index_maps import INDEX_MAPS, Index, element_type
from spmd.analysis.scalar.elements import Element, register_types
from spmd.analysis.scalar.expression import I64, Expression, parameter
from spmd.compiler.schedule.fusibility import CONCATENATE
from spmd.compiler.schedule.sliding import is_sliding
from spmd.ir import Op, Value

#: How a unit reaches a value: `POINT` is the point itself, other numbers stand for chains of index maps.
Path = int
POINT: Path = 0
#: The path of what is read once, whatever the point.
ONCE: Path = -1
#: The path of what a unit reads as memory, whole.
MEMORY: Path = -2
GATHER = "stablehlo.gather"
#: Turns of the innermost loops that are too few to make up for what is computed once for all of them, in no lanes.
SHORT = 64


class Paths:
    """The paths of the units of a block that has `ops`."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._chained = chained(ops)
        self._numbers: dict[tuple[Op, Path, tuple[int, ...], tuple[int, ...], int], Path] = {}
        self._repeating: set[Path] = set()
        #: Where a path leads from a point, in terms of the unit's dimensions: to one element or several; where known.
        self._places: dict[Path, tuple[Index, ...]] = {}

    def repeat(self, paths: Iterable[Path]) -> bool:
        """Whether, on one of `paths`, elements are computed more often than they need be, or alone."""
        return any(path in self._repeating for path in paths)

    def is_chosen(self, op: Op, paths: Iterable[Path]) -> bool:
        """Whether `op` is a concatenate of which each of `paths` is known to read one operand."""
        if op.name != CONCATENATE:
            return False
        places = [self._places.get(path) for path in paths]
        return all(at is not None and all(index[op["dimension"]].is_constant for index in at) for at in places)

    def through(self, op: Op, path: Path, shape: tuple[int, ...], reduced: tuple[int, ...], place: int = 0) -> Path:
        """The path that leads on, behind `path` of a unit over `shape`, to operand `place` of `op`."""
        key = (op, path, shape, reduced if path == POINT else (), place)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers) + 1
            if path in self._repeating or repeats(op, key[3]):
                self._repeating.add(number)
        return number

    def beyond(
        self, op: Op, path: Path, shape: tuple[int, ...], reduced: tuple[int, ...]
    ) -> Iterator[tuple[Value, Path]]:
        """The operands of `op`, an index map that a unit over `shape` reaches by `path`, and how it reaches them."""
        read = self._read(op, path, shape)
        for place, operand in enumerate(dict.fromkeys(op.operands)):
            at = read.get(operand, ())
            if at and shape and operand.tensor.static_shape == shape and set(at) == {_identity(shape)}:
                yield operand, POINT
                continue
            number = self.through(op, path, shape, reduced, place)
            if at:
                self._places[number] = at
            yield operand, number

    def _read(self, op: Op, path: Path, shape: tuple[int, ...]) -> dict[Value, tuple[Index, ...]]:
        """Where `op` reads those operands of which that is known."""
        if not prod(shape) or op in self._chained:
            return {}
        starts = self._places.get(path)
        if path == POINT and op.result.tensor.static_shape == shape and may_lead_back(op):
            starts = (_identity(shape),)
        if starts is None or len(starts[0]) != op.result.tensor.rank:  # the place of another operand's element
            return {}
        reader = _Recorder(shape)
        try:
            for index in starts:
                INDEX_MAPS[op.name](op, index, reader)
        except Split:
            return {}
        return {value: tuple(at) for value, at in reader.read_at.items() if at is not None}


def may_lead_back(op: Op) -> bool:
    """Whether `op` looks numbers up at its start indices, or takes some of what was concatenated."""
    at: Op | None = op
    while at is not None and at.name in ("stablehlo.slice", "stablehlo.reshape"):
        at = at.operands[0].defining_op
        if at is not None and at.name == CONCATENATE:
            return True
    return at is op and op.name == GATHER


def chained(ops: Sequence[Op]) -> set[Op]:
    """The gathers whose start indices are computed of what another one found.

    At a point each would wait for the one before; apart from it, many points are under way.
    """
    found: set[Value] = set()
    gathers: set[Op] = set()
    for op in ops:
        if op.name == GATHER and op.operands[1] in found:
            gathers.add(op)
        if op.name == GATHER or (not op.regions and any(operand in found for operand in op.operands)):
            found.update(op.results)
    return gathers


def repeats(op: Op, reduced: Sequence[int] = ()) -> bool:
    """Whether an element of the operand is computed more often than it need be, or alone where many could be at once.

    That is so where the loops inside of which it is used again and again are not the innermost, those over `reduced`
    dimensions being inside of all others; or where they are, and so short that lanes gain nothing.
    """
    if op.name not in ("stablehlo.broadcast_in_dim", "stablehlo.broadcast", GATHER):
        return is_sliding(op) or op.name in ("stablehlo.concatenate", "stablehlo.pad", "stablehlo.dot_general")
    if op.name != "stablehlo.broadcast_in_dim":
        return True
    shape = op.operands[0].tensor.static_shape
    result = op.result.tensor.static_shape
    order = [d for d in range(len(result)) if d not in reduced] + list(reduced)
    taken = {d for size, d in zip(shape, op["broadcast_dimensions"], strict=True) if size != 1}
    used = [place for place, d in enumerate(order) if d in taken]
    added = [place for place, d in enumerate(order) if d not in taken and result[d] != 1]
    if not used or not added:
        return False
    return min(added) < max(used) or prod(result[order[place]] for place in added) < SHORT


def _identity(shape: Sequence[int]) -> Index:
    return tuple(Affine.of(d) if size > 1 else Affine() for d, size in enumerate(shape))


class _Recorder:
    """Where rules read operands; None where that is known while running alone, or asked for under conditions."""

    def __init__(self, extents: Sequence[int]) -> None:
        self.extents = extents
        self.read_at: dict[Value, dict[Index, None] | None] = {}
        self._conditions = 0

    def read(self, value: Value, index: Index) -> Element:
        if self._conditions or any(part.dynamic for part in index):
            self.read_at[value] = None
        else:
            at = self.read_at.setdefault(value, {})
            if at is not None:
                at[index] = None
        return tuple(parameter(number, type) for number, type in enumerate(register_types(element_type(value))))

    @contextmanager
    def under(self, condition: Expression) -> Iterator[None]:
        self._conditions += 1
        yield
        self._conditions -= 1

    def position(self, form: Affine) -> Expression:
        return parameter(0, I64)
