"""Which points of a stage are computed at a time, as the lanes of vectors.

They are neighbours in the lane loop. Where that loop is short (the channels of an image, the parts of a vector in
space) they are those of a few turns of the loop around it, turn by turn, so that vectors are full.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import Expression, Primitive, walk
from spmd.compiler.schedule.interior import turns_of
from spmd.compiler.schedule.nest import Load, Nest, Stage
from spmd.compiler.schedule.rows import FEW

#: Lanes of a loop that computes elements, and of one that folds them.
LANES, FOLDING_LANES = 16, 64
#: Bits of the vectors that lanes of narrow types fill.
_BITS = 512
#: Points of a stage that is written out without any loop.
_WRITTEN_OUT = 16
#: Pieces of memory that a vector's lanes are read from, where they do not lie evenly.
_MOST_PIECES = 8
#: Steps between lanes that are shuffled; others are gathered.
_MOST_STEP = 4
#: Turns of both loops of a block of an operand that lies transposed, and operands of a nest that are turned: their
#: blocks stay in the cache.
SIDE, _MOST_TURNED = 16, 8


@dataclass(frozen=True, slots=True)
class Lanes:
    """`width` points of the loop `variable`, or all of its `extent` for each of `turns` turns of the loop `around`.

    The latter may leave lanes that stand for no point. At each lane all turns of the loop `inner`, if any, are computed
    one after another.
    """

    variable: Variable | None = None
    width: int = 1
    around: Variable | None = None
    turns: int = 1
    extent: int = 1
    inner: Variable | None = None

    @property
    def outermost(self) -> Variable | None:
        """The loop whose turns are taken some at a time."""
        return self.variable if self.around is None else self.around

    @property
    def points(self) -> int:
        """The lanes that stand for points."""
        return self.width if self.around is None else self.turns * self.extent

    def taken(self) -> dict[Variable, int]:
        """How many turns of the loops are taken at a time."""
        if self.variable is None:
            return {}
        return (
            {self.variable: self.width}
            if self.around is None
            else {self.around: self.turns, self.variable: self.extent}
        )

    def step(self, form: Affine) -> int | None:
        """How far `form` goes from lane to lane, what is computed while running aside; None where that differs."""
        if self.variable is None:
            return 0
        step = form.coefficient(self.variable)
        if self.around is None or form.coefficient(self.around) == step * self.extent:
            return step
        return None

    def places(self, form: Affine) -> tuple[int, ...]:
        """How far `form` is at each lane from where it is at the first."""
        if self.variable is None:
            return (0,) * self.width
        step = form.coefficient(self.variable)
        if self.around is None:
            return tuple(step * lane for lane in range(self.width))
        leap = form.coefficient(self.around)
        return tuple(leap * (lane // self.extent) + step * (lane % self.extent) for lane in range(self.width))


def points_of(nest: Nest, stage: Stage) -> int:
    """The points of `stage` within one turn of the loops that stages share. Loops that are merged in others, which
    `nest.extents` still has, do not count."""
    return prod(nest.extents[variable] for variable in stage.loops if variable not in nest.outer)


def is_written_out(nest: Nest, stage: Stage) -> bool:
    """Whether `stage` is written point by point, without any loop: no part of it can be run alone."""
    return points_of(nest, stage) <= _WRITTEN_OUT


def lanes_of(nest: Nest, stage: Stage) -> Lanes:
    """The points of `stage` that are computed at a time."""
    points, written_out = points_of(nest, stage), is_written_out(nest, stage)
    if points <= 1:
        return Lanes()
    among = stage.loops
    kept = tuple(variable for variable in stage.kept if variable not in nest.outer)
    if stage.reductions and (_length(nest, stage) <= FEW or any(r.neutral is None for r in stage.reductions)):
        among = kept  # elements are folded in their order
    if stage.updates:
        among = stage.loops[-1:]
    if not set(among) - set(nest.outer):
        return Lanes()
    lane = max(among)
    extent = nest.extents[lane]
    most = FOLDING_LANES if stage.reductions and lane == max(stage.loops) else _most(stage)
    if has_short_rows(nest, stage, lane):
        return Lanes(lane, SIDE)
    if lane in kept[-1:] and not written_out:
        lanes = _turn_by_turn(nest, stage, kept, most) or _woven(nest, stage, kept, most)
        if lanes is not None:
            return lanes
    if turned_loop(nest, stage, Lanes(lane, SIDE)) is not None:
        most = SIDE
    width = 1
    while width < most and width < extent:
        width *= 2
    if written_out and (width != extent or points != extent):
        return Lanes()
    return Lanes(lane, width)


def has_short_rows(nest: Nest, stage: Stage, lane: Variable | None) -> bool:
    """Whether `stage` folds short rows, each a stretch of memory; `lane` is the loop over the rows."""
    if not stage.reductions or stage.updates or len(stage.reduced) != 1 or lane is None or (lane,) != stage.kept[-1:]:
        return False
    (last,) = stage.reduced
    if last != max(stage.loops) or nest.extents[lane] < SIDE or not 2 <= nest.extents[last] <= min(FEW, SIDE):
        return False
    types = [part.type for reduction in stage.reductions for part in (*reduction.inputs, *reduction.initial)]
    if any(type.bits < 8 for type in types) or turns_of(nest, stage, last) is not None:
        return False
    steps = {store.address.coefficient(last) for store in stage.stores}
    steps |= {load.address.coefficient(last) for load in stage.loads()}
    return steps <= {0, 1} and (bool(stage.stores) or any(is_apart(load, lane) for load in stage.loads()))


def is_apart(load: Load, lane: Variable) -> bool:
    """Whether the lanes' elements of a load lie apart from each other in memory."""
    return abs(load.address.coefficient(lane)) > _MOST_STEP


def turned_loop(nest: Nest, stage: Stage, lanes: Lanes) -> Variable | None:
    """The loop along which operands lie that are read across the lane loop; None where there is no such loop."""
    lane = lanes.variable
    if lane is None or lanes.width != SIDE or lanes.around is not None:
        return None
    if stage.reductions or stage.updates or nest.outer:
        return None
    counts: dict[Variable, int] = {}
    for load in stage.loads():
        variable = along(nest, load, lane)
        if variable is not None:
            counts[variable] = counts.get(variable, 0) + 1
    best = max(counts, key=lambda variable: counts[variable], default=None)
    return best if best is not None and counts[best] <= _MOST_TURNED else None


def along(nest: Nest, load: Load, lane: Variable) -> Variable | None:
    """The loop whose turns are neighbours in `load`, where they lie apart for the lane loop's."""
    if load.mask is not None or load.address.dynamic or abs(load.address.coefficient(lane)) < SIDE:
        return None
    return next((v for v, c in load.address.terms if c == 1 and nest.extents[v] >= SIDE), None)


def pieces(places: tuple[int, ...], width: int) -> list[tuple[int, int]]:
    """Stretches of memory, of up to `width` elements each, that hold all `places`: the first, and how many."""
    found: list[tuple[int, int]] = []
    for place in sorted(set(places)):
        if found and place - found[-1][0] < width:
            found[-1] = (found[-1][0], place - found[-1][0] + 1)
        else:
            found.append((place, 1))
    return found


def _length(nest: Nest, stage: Stage) -> int:
    """How many elements each fold has."""
    return prod(nest.extents[variable] for variable in stage.reduced)


def _most(stage: Stage) -> int:
    """The lanes that fill a vector of the widest type that `stage` computes with."""
    if stage.updates:
        return LANES
    return max(LANES, min(FOLDING_LANES, _BITS // _widest(stage)))


def _widest(stage: Stage) -> int:
    """Bits of the widest type that `stage` computes with."""
    roots = [store.code for store in stage.all_stores()]
    roots += [part for reduction in stage.reductions for part in reduction.inputs]
    return max(8, max((node.type.bits for node in walk(roots)), default=64))


def _turn_by_turn(nest: Nest, stage: Stage, kept: tuple[Variable, ...], most: int) -> Lanes | None:
    """Lanes of the loop around a short one whose turns compute different things; None where they do not."""
    if len(kept) < 2 or stage.updates or stage.reductions:
        return None
    around, inner = kept[-2:]
    extent = nest.extents[inner]
    most = max((count for count in (64, 32, 16) if count <= min(most, nest.extents[around])), default=0)
    if extent > _MOST_PIECES or not most:
        return None
    if any(
        store.address.dynamic or store.address.coefficient(inner) != 1 or store.address.coefficient(around) != extent
        for store in stage.stores
    ):
        return None
    turns = turns_of(nest, stage, inner)
    if turns is None:
        return None
    slow = [number for turn in turns for number, load in _used(turn) if not _is_vector(load, around)]
    # What several turns read of their neighbours is better read along the short loop.
    return Lanes(around, most, inner=inner) if len(set(slow)) == len(slow) else None


def _used(stage: Stage) -> list[tuple[int, Load]]:
    """The loads, by number, that what `stage` stores is computed of."""
    nodes = walk([store.code for store in stage.stores])
    numbers = (node.attribute for node in nodes if node.primitive is Primitive.PARAMETER)
    leaves = [(number, stage.leaves[number]) for number in numbers if isinstance(number, int)]
    return [(number, leaf) for number, leaf in leaves if isinstance(leaf, Load)]


def _is_vector(load: Load, lane: Variable) -> bool:
    """Whether the lanes of a load are read as whole vectors."""
    step = load.address.coefficient(lane)
    return not load.address.dynamic and (step in (0, 1) or (load.mask is None and is_shuffled(step)))


def is_shuffled(step: int) -> bool:
    """Whether elements `step` apart are read by whole vectors."""
    return step == -1 or 2 <= abs(step) <= _MOST_STEP


def _woven(nest: Nest, stage: Stage, kept: tuple[Variable, ...], most: int) -> Lanes | None:
    """Lanes of a few turns of the loop around a short one; None where they are no better."""
    if len(kept) < 2 or stage.updates:
        return None
    around, lane = kept[-2:]
    extent = nest.extents[lane]
    if _is_computed(stage, around):
        return None
    while most >= LANES:
        turns = min(most // extent, nest.extents[around])
        lanes = Lanes(lane, most, around, turns, extent)
        even = all(lanes.step(store.address) is not None for store in stage.all_stores())
        if turns >= 2 and even and all(_is_near(lanes, load) for load in stage.loads()):
            return lanes
        most //= 2
    return None


def _is_near(lanes: Lanes, load: Load) -> bool:
    """Whether the lanes of a load lie in few stretches of memory."""
    if lanes.step(load.address) is not None:
        return True
    return load.mask is None and len(pieces(lanes.places(load.address)[: lanes.points], lanes.width)) <= _MOST_PIECES


def _is_computed(stage: Stage, variable: Variable) -> bool:
    """Whether a place that is computed while running depends on the loop `variable`."""

    def depends(form: Affine) -> bool:
        return bool(form.coefficient(variable)) or any(varies(part) for part, _ in form.dynamic)

    def varies(root: Expression) -> bool:
        for node in walk([root]):
            if node.primitive is Primitive.PARAMETER and isinstance(node.attribute, int):
                if node.attribute >= len(stage.leaves):
                    continue
                leaf = stage.leaves[node.attribute]
                if depends(leaf.address if isinstance(leaf, Load) else leaf.form):
                    return True
        return False

    return any(varies(part) for form in stage.forms() for part, _ in form.dynamic)
