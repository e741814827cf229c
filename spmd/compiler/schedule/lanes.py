"""Vectorization: the points of a stage that are computed at a time, as the lanes of a vector.

Lanes are neighbours in the lane loop. If that loop is short (channels of an image, components of a vector) it is
flattened with the loop around it, so that vectors are full.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import Expression, Primitive, walk
from spmd.compiler.schedule.interior import specialized_iterations
from spmd.compiler.schedule.nest import Load, Nest, Stage
from spmd.compiler.schedule.rows import FEW

#: Lanes of a loop that computes elements, and of one that is reduced.
LANES, FOLDING_LANES = 16, 64
#: Vector width in bits that narrow types fill.
_BITS = 512
#: Most points of a stage that is fully unrolled.
_WRITTEN_OUT = 16
#: Most contiguous pieces of memory from which a vector with uneven lane offsets is assembled.
_MOST_PIECES = 8
#: Largest stride between lanes that is loaded by shuffles; others are gathered.
_MOST_STEP = 4
#: Side of the square blocks in which transposed operands are loaded, and most transposed operands of a nest: their
#: blocks stay in cache.
SIDE, _MOST_TRANSPOSED = 16, 8


@dataclass(frozen=True, slots=True)
class Lanes:
    """`width` iterations of the loop `variable`, or all of its `extent` iterations for `outer_width` ones of the loop
    `outer`.

    The flattened form may leave padding lanes. All iterations of the loop `inner`, if any, are unrolled within each
    lane.
    """

    variable: Variable | None = None
    width: int = 1
    outer: Variable | None = None
    outer_width: int = 1
    extent: int = 1
    inner: Variable | None = None

    @property
    def outermost(self) -> Variable | None:
        """The outermost vectorized loop."""
        return self.variable if self.outer is None else self.outer

    @property
    def points(self) -> int:
        """Lanes that are not padding."""
        return self.width if self.outer is None else self.outer_width * self.extent

    def tile_sizes(self) -> dict[Variable, int]:
        """Return how many iterations of each vectorized loop one vector covers."""
        if self.variable is None:
            return {}
        return (
            {self.variable: self.width}
            if self.outer is None
            else {self.outer: self.outer_width, self.variable: self.extent}
        )

    def step(self, form: Affine) -> int | None:
        """Return the stride of `form` between lanes, without its dynamic terms; None if it is not uniform."""
        if self.variable is None:
            return 0
        step = form.coefficient(self.variable)
        if self.outer is None or form.coefficient(self.outer) == step * self.extent:
            return step
        return None

    def offsets(self, form: Affine) -> tuple[int, ...]:
        """Return the offset of `form` at each lane relative to the first."""
        if self.variable is None:
            return (0,) * self.width
        step = form.coefficient(self.variable)
        if self.outer is None:
            return tuple(step * lane for lane in range(self.width))
        outer_step = form.coefficient(self.outer)
        return tuple(outer_step * (lane // self.extent) + step * (lane % self.extent) for lane in range(self.width))


def points_of(nest: Nest, stage: Stage) -> int:
    """Return the points of `stage` within one iteration of the shared loops. Collapsed loops, which `nest.extents`
    still has, do not count.
    """
    return prod(nest.extents[variable] for variable in stage.loops if variable not in nest.outer)


def is_unrolled(nest: Nest, stage: Stage) -> bool:
    """Return whether `stage` is fully unrolled, so that no loop of it can be split."""
    return points_of(nest, stage) <= _WRITTEN_OUT


def lanes_of(nest: Nest, stage: Stage) -> Lanes:
    """Return the lanes by which `stage` is vectorized."""
    points, unrolled = points_of(nest, stage), is_unrolled(nest, stage)
    if points <= 1:
        return Lanes()
    among = stage.loops
    parallel = tuple(variable for variable in stage.parallel if variable not in nest.outer)
    if stage.reductions and (_length(nest, stage) <= FEW or any(r.neutral is None for r in stage.reductions)):
        among = parallel  # elements are combined in order
    if stage.updates:
        among = stage.loops[-1:]
    if not set(among) - set(nest.outer):
        return Lanes()
    lane = max(among)
    extent = nest.extents[lane]
    most = FOLDING_LANES if stage.reductions and lane == max(stage.loops) else _most(stage)
    if has_small_axis(nest, stage, lane):
        return Lanes(lane, SIDE)
    if lane in parallel[-1:] and not unrolled:
        lanes = _with_unrolled_inner(nest, stage, parallel, most) or _flattened(nest, stage, parallel, most)
        if lanes is not None:
            return lanes
    if transposed_loop(nest, stage, Lanes(lane, SIDE)) is not None:
        most = SIDE
    width = 1
    while width < most and width < extent:
        width *= 2
    if unrolled and (width != extent or points != extent):
        return Lanes()
    return Lanes(lane, width)


def has_small_axis(nest: Nest, stage: Stage, lane: Variable | None) -> bool:
    """Return whether `stage` reduces a small contiguous axis; `lane` is the loop over the rows."""
    if (
        not stage.reductions
        or stage.updates
        or len(stage.reduced) != 1
        or lane is None
        or (lane,) != stage.parallel[-1:]
    ):
        return False
    (last,) = stage.reduced
    if last != max(stage.loops) or nest.extents[lane] < SIDE or not 2 <= nest.extents[last] <= min(FEW, SIDE):
        return False
    types = [part.type for reduction in stage.reductions for part in (*reduction.inputs, *reduction.initial)]
    if any(type.bits < 8 for type in types) or specialized_iterations(nest, stage, last) is not None:
        return False
    steps = {store.address.coefficient(last) for store in stage.stores}
    steps |= {load.address.coefficient(last) for load in stage.loads()}
    return steps <= {0, 1} and (bool(stage.stores) or any(has_large_stride(load, lane) for load in stage.loads()))


def has_large_stride(load: Load, lane: Variable) -> bool:
    """Return whether a load has a large stride between lanes."""
    return abs(load.address.coefficient(lane)) > _MOST_STEP


def transposed_loop(nest: Nest, stage: Stage, lanes: Lanes) -> Variable | None:
    """Return the loop along which operands with a large lane stride are contiguous; None if there is none."""
    lane = lanes.variable
    if lane is None or lanes.width != SIDE or lanes.outer is not None:
        return None
    if stage.reductions or stage.updates or nest.outer:
        return None
    votes: dict[Variable, int] = {}
    for load in stage.loads():
        variable = contiguous_loop(nest, load, lane)
        if variable is not None:
            votes[variable] = votes.get(variable, 0) + 1
    best = max(votes, key=lambda variable: votes[variable], default=None)
    return best if best is not None and votes[best] <= _MOST_TRANSPOSED else None


def contiguous_loop(nest: Nest, load: Load, lane: Variable) -> Variable | None:
    """Return the loop along which `load` is contiguous if its lane stride is large; else None."""
    if load.mask is not None or load.address.dynamic or abs(load.address.coefficient(lane)) < SIDE:
        return None
    return next((v for v, c in load.address.terms if c == 1 and nest.extents[v] >= SIDE), None)


def pieces(offsets: tuple[int, ...], width: int) -> list[tuple[int, int]]:
    """Return contiguous pieces of memory of up to `width` elements that cover all `offsets`, as (first, count)."""
    covered: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if covered and offset - covered[-1][0] < width:
            covered[-1] = (covered[-1][0], offset - covered[-1][0] + 1)
        else:
            covered.append((offset, 1))
    return covered


def _length(nest: Nest, stage: Stage) -> int:
    """Return the number of elements of each reduction."""
    return prod(nest.extents[variable] for variable in stage.reduced)


def _most(stage: Stage) -> int:
    """Return the lanes that fill a vector of the widest type that `stage` computes with."""
    if stage.updates:
        return LANES
    return max(LANES, min(FOLDING_LANES, _BITS // _widest(stage)))


def _widest(stage: Stage) -> int:
    """Return the bits of the widest type that `stage` computes with."""
    roots = [store.code for store in stage.all_stores()]
    roots += [part for reduction in stage.reductions for part in reduction.inputs]
    return max(8, max((node.type.bits for node in walk(roots)), default=64))


def _with_unrolled_inner(nest: Nest, stage: Stage, parallel: tuple[Variable, ...], most: int) -> Lanes | None:
    """Return lanes of the loop around a short one that is unrolled, its iterations being specialized; None if they are
    alike.
    """
    if len(parallel) < 2 or stage.updates or stage.reductions:
        return None
    outer, inner = parallel[-2:]
    extent = nest.extents[inner]
    most = max((count for count in (64, 32, 16) if count <= min(most, nest.extents[outer])), default=0)
    if extent > _MOST_PIECES or not most:
        return None
    if any(
        store.address.dynamic or store.address.coefficient(inner) != 1 or store.address.coefficient(outer) != extent
        for store in stage.stores
    ):
        return None
    iterations = specialized_iterations(nest, stage, inner)
    if iterations is None:
        return None
    slow = [number for iteration in iterations for number, load in _used(iteration) if not _is_vector(load, outer)]
    # Neighbours that several iterations load are better loaded along the short loop.
    return Lanes(outer, most, inner=inner) if len(set(slow)) == len(slow) else None


def _used(stage: Stage) -> list[tuple[int, Load]]:
    """Return the loads that stores of `stage` depend on, by leaf number."""
    nodes = walk([store.code for store in stage.stores])
    numbers = (node.attribute for node in nodes if node.primitive is Primitive.PARAMETER)
    leaves = [(number, stage.leaves[number]) for number in numbers if isinstance(number, int)]
    return [(number, leaf) for number, leaf in leaves if isinstance(leaf, Load)]


def _is_vector(load: Load, lane: Variable) -> bool:
    """Return whether a load needs whole vectors only, no gather."""
    step = load.address.coefficient(lane)
    return not load.address.dynamic and (step in (0, 1) or (load.mask is None and is_shuffled(step)))


def is_shuffled(step: int) -> bool:
    """Return whether stride `step` is loaded as whole vectors and shuffled."""
    return step == -1 or 2 <= abs(step) <= _MOST_STEP


def _flattened(nest: Nest, stage: Stage, parallel: tuple[Variable, ...], most: int) -> Lanes | None:
    """Return lanes of a short loop flattened with the one around it; None if vectors would not be fuller."""
    if len(parallel) < 2 or stage.updates:
        return None
    outer, lane = parallel[-2:]
    extent = nest.extents[lane]
    if _is_computed(stage, outer):
        return None
    while most >= LANES:
        outer_width = min(most // extent, nest.extents[outer])
        lanes = Lanes(lane, most, outer, outer_width, extent)
        even = all(lanes.step(store.address) is not None for store in stage.all_stores())
        if outer_width >= 2 and even and all(_is_near(lanes, load) for load in stage.loads()):
            return lanes
        most //= 2
    return None


def _is_near(lanes: Lanes, load: Load) -> bool:
    """Return whether the lanes of a load lie in few contiguous pieces of memory."""
    if lanes.step(load.address) is not None:
        return True
    return load.mask is None and len(pieces(lanes.offsets(load.address)[: lanes.points], lanes.width)) <= _MOST_PIECES


def _is_computed(stage: Stage, variable: Variable) -> bool:
    """Return whether a dynamic index of `stage` depends on the loop `variable`."""

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
