"""Access paths: how a fused unit reads its inputs, at its own points or through chains of index maps.

A chain may reduce to the identity: a gather reads each component of its start indices separately, and if they were
concatenated from broadcasts, each component comes from the point itself.
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

#: An access path: `POINT` is the identity, other numbers stand for chains of index maps.
Path = int
POINT: Path = 0
#: The path of values read once, independently of the point.
ONCE: Path = -1
#: The path of values read as whole memory.
MEMORY: Path = -2
GATHER = "stablehlo.gather"
#: Fewest iterations of the innermost loops for which loading a precomputed value beats recomputing it.
SHORT = 64


class Paths:
    """The access paths of the units of a block with `ops`."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._chained = chained(ops)
        self._dilating = dilating(ops)
        self._numbers: dict[tuple[Op, Path, tuple[int, ...], tuple[int, ...], int], Path] = {}
        self._repeating: set[Path] = set()
        #: Paths through padding between elements.
        self._dilated: set[Path] = set()
        #: Indices, in the unit's dimensions, that a path reads at each point, if known.
        self._places: dict[Path, tuple[Index, ...]] = {}

    def repeat(self, paths: Iterable[Path]) -> bool:
        """Return whether one of `paths` recomputes elements, or computes them without vectors."""
        return any(path in self._repeating for path in paths)

    def nests_dilations(self, op: Op, paths: Iterable[Path]) -> bool:
        """Return whether both one of `paths` and `op`, or what is computed for it, put padding between elements.

        Together they would need two short loops, of which one alone has vectors.
        """
        return op in self._dilating and any(path in self._dilated for path in paths)

    def is_chosen(self, op: Op, paths: Iterable[Path]) -> bool:
        """Return whether `op` is a concatenate of which each of `paths` statically reads one operand."""
        if op.name != CONCATENATE:
            return False
        places = [self._places.get(path) for path in paths]
        return all(at is not None and all(index[op["dimension"]].is_constant for index in at) for at in places)

    def through(self, op: Op, path: Path, shape: tuple[int, ...], reduced: tuple[int, ...], operand: int = 0) -> Path:
        """Return the path of operand number `operand` of `op`, which a unit over `shape` reaches by `path`."""
        key = (op, path, shape, reduced if path == POINT else (), operand)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers) + 1
            if path in self._repeating or repeats(op, key[3]):
                self._repeating.add(number)
            if path in self._dilated or dilates(op):
                self._dilated.add(number)
        return number

    def beyond(
        self, op: Op, path: Path, shape: tuple[int, ...], reduced: tuple[int, ...]
    ) -> Iterator[tuple[Value, Path]]:
        """Yield the operands of `op`, an index map that a unit over `shape` reaches by `path`, with their paths."""
        read = self._read(op, path, shape)
        for position, operand in enumerate(dict.fromkeys(op.operands)):
            at = read.get(operand, ())
            if at and shape and operand.tensor.static_shape == shape and set(at) == {_identity(shape)}:
                yield operand, POINT
                continue
            number = self.through(op, path, shape, reduced, position)
            if at:
                self._places[number] = at
            yield operand, number

    def _read(self, op: Op, path: Path, shape: tuple[int, ...]) -> dict[Value, tuple[Index, ...]]:
        """Return the indices at which `op` reads its operands, for those where they are known."""
        if not prod(shape) or op in self._chained:
            return {}
        starts = self._places.get(path)
        if path == POINT and op.result.tensor.static_shape == shape and may_lead_back(op):
            starts = (_identity(shape),)
        if starts is None or len(starts[0]) != op.result.tensor.rank:  # the index is one into another operand
            return {}
        reader = _Recorder(shape)
        try:
            for index in starts:
                INDEX_MAPS[op.name](op, index, reader)
        except Split:
            return {}
        return {value: tuple(at) for value, at in reader.read_at.items() if at is not None}


def may_lead_back(op: Op) -> bool:
    """Return whether `op` is a gather, or slices or reshapes a concatenate."""
    at: Op | None = op
    while at is not None and at.name in ("stablehlo.slice", "stablehlo.reshape"):
        at = at.operands[0].defining_op
        if at is not None and at.name == CONCATENATE:
            return True
    return at is op and op.name == GATHER


def chained(ops: Sequence[Op]) -> set[Op]:
    """Return the gathers whose start indices depend on another gather.

    Fused, each would wait for the one before at every point; separate gathers overlap the latency of many points.
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
    """Return whether fusing the producer of an operand of `op` recomputes elements, or computes them without vectors.

    That is so if the loops that reuse an element are not innermost (`reduced` dimensions are inside all others), or are
    innermost but too short for vectors to pay.
    """
    if op.name not in ("stablehlo.broadcast_in_dim", "stablehlo.broadcast", GATHER):
        return is_sliding(op) or op.name in ("stablehlo.concatenate", "stablehlo.pad", "stablehlo.dot_general")
    if op.name != "stablehlo.broadcast_in_dim":
        return True
    shape = op.operands[0].tensor.static_shape
    result = op.result.tensor.static_shape
    order = [d for d in range(len(result)) if d not in reduced] + list(reduced)
    taken = {d for size, d in zip(shape, op["broadcast_dimensions"], strict=True) if size != 1}
    used = [position for position, d in enumerate(order) if d in taken]
    added = [position for position, d in enumerate(order) if d not in taken and result[d] != 1]
    if not used or not added:
        return False
    return min(added) < max(used) or prod(result[order[position]] for position in added) < SHORT


def dilates(op: Op) -> bool:
    """Return whether `op` is a pad that puts padding between the elements of the last dimension."""
    return op.name == "stablehlo.pad" and bool(op["interior_padding"]) and op["interior_padding"][-1] > 0


def dilating(ops: Sequence[Op]) -> set[Op]:
    """Return the ops that put padding between elements, and those that compute with results of these."""
    found: set[Op] = set()
    for op in ops:
        computes = op.name not in INDEX_MAPS and not op.regions
        if dilates(op) or (computes and any(operand.defining_op in found for operand in op.operands)):
            found.add(op)
    return found


def _identity(shape: Sequence[int]) -> Index:
    return tuple(Affine.of(d) if size > 1 else Affine() for d, size in enumerate(shape))


class _Recorder:
    """Records the indices at which rules read operands; None if they are dynamic or conditional."""

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
