"""The interior of a loop nest: the points where index conditions are constant.

Pads, concatenates and comparisons of iotas test the index at each point. Away from the boundary all tests are constant:
they are folded away there, with the masks and the computation of boundary values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar import build
from spmd.analysis.scalar.expression import (
    I1,
    Expression,
    MachineType,
    Primitive,
    constant,
    constant_value,
    expression,
    is_constant,
    walk,
)
from spmd.compiler.schedule.nest import Leaf, Load, Nest, Position, Stage, Store

#: First iteration of a loop, and one past the last.
Span = tuple[int, int]

_EXTENSIONS = (Primitive.TRUNCATE, Primitive.SIGN_EXTEND, Primitive.ZERO_EXTEND)
#: Least difference of the operands for which each predicate holds, or fails; `eq` and `ne` change at 0 and 1.
_AT_LEAST = {"sge": 0, "sgt": 1, "uge": 0, "ugt": 1}
_LESS_THAN = {"slt": 0, "sle": 1, "ult": 0, "ule": 1}


@dataclass(frozen=True, slots=True)
class Interior:
    """Ranges of loops (whole loops are omitted), and the stage simplified for the points in them.

    `unguarded` are the loads of `stage`, without masks, whose mask is simpler in the interior.
    """

    spans: dict[Variable, Span]
    stage: Stage
    unguarded: frozenset[Load]


@dataclass(frozen=True, slots=True)
class Condition:
    """The comparison of `difference` with 0 by `predicate`."""

    difference: Affine
    predicate: str

    def thresholds(self) -> tuple[int, ...]:
        """Return the differences at which the outcome changes."""
        if self.predicate in _AT_LEAST:
            return (_AT_LEAST[self.predicate],)
        return (_LESS_THAN[self.predicate],) if self.predicate in _LESS_THAN else (0, 1)

    def holds(self, low: int, high: int) -> bool | None:
        """Return the outcome for all differences from `low` to `high`; None if it varies."""
        at_least = [low >= least for least in self.thresholds()]
        if at_least != [high >= least for least in self.thresholds()]:
            return None
        if self.predicate in ("eq", "ne"):
            return (at_least == [True, False]) is (self.predicate == "eq")
        return at_least[0] is (self.predicate in _AT_LEAST)


def interior_of(nest: Nest, stage: Stage) -> Interior | None:
    """Return the interior of `stage`, at least half of each loop; None if nothing is simplified there."""
    conditions = dict(conditions_of(nest, stage))
    spans: dict[Variable, Span] = {}
    for variable in stage.parallel:
        of_variable = [each for each in conditions.values() if _kept(each, stage) == [variable]]
        span = _longest(nest.extents, variable, of_variable)
        if span is not None:
            spans[variable] = span
    if not spans:
        return None
    answers = {
        node: constant(answer, I1)
        for node, condition in conditions.items()
        if (answer := condition.holds(*_bounds(condition.difference, nest.extents, spans))) is not None
    }
    return _inside(stage, spans, answers) if answers else None


def specialized_iterations(nest: Nest, stage: Stage, variable: Variable) -> list[Stage] | None:
    """Return the stage specialized for each iteration of a loop on which conditions depend alone; None if there are
    none.

    So a reduced concatenate reads each operand directly, without selects.
    """
    conditions = {node: each for node, each in conditions_of(nest, stage) if each.difference.coefficient(variable)}
    if not conditions or any(len(each.difference.terms) > 1 for each in conditions.values()):
        return None
    stages: list[Stage] = []
    for iteration in range(nest.extents[variable]):
        answers: dict[Expression, Expression] = {}
        for node, condition in conditions.items():
            place = _bounds(condition.difference, nest.extents, {variable: (iteration, iteration + 1)})
            answers[node] = constant(bool(condition.holds(*place)), I1)
        stages.append(_inside(stage, {}, answers).stage)
    return stages


def _kept(condition: Condition, stage: Stage) -> list[Variable]:
    """Return the parallel loops that a condition depends on."""
    return [variable for variable, _ in condition.difference.terms if variable not in stage.reduced]


def conditions_of(nest: Nest, stage: Stage) -> Iterator[tuple[Expression, Condition]]:
    """Yield the static index comparisons of `stage`."""
    masks = [load.mask for load in stage.loads() if load.mask is not None]
    roots = [*masks, *(store.code for store in stage.stores)]
    roots += [part for reduction in stage.reductions for part in reduction.inputs]
    forms: dict[Expression, Affine | None] = {}
    for node in walk(roots):
        forms[node] = _form(node, forms, stage, nest.extents)
        if node.primitive is not Primitive.COMPARE_INTEGER:
            continue
        left, right = (forms[operand] for operand in node.operands)
        if left is None or right is None:
            continue
        predicate = str(node.attribute)
        unsigned = predicate.startswith("u")
        if unsigned and any(_bounds(form, nest.extents, {})[0] < 0 for form in (left, right)):
            continue
        difference = left + right.scaled(-1)
        if difference.terms:
            yield node, Condition(difference, predicate)


def _form(
    node: Expression, forms: Mapping[Expression, Affine | None], stage: Stage, extents: Sequence[int]
) -> Affine | None:
    """Return `node` as an affine form; None if it depends on data or may overflow."""
    if node.type.is_float:
        return None
    form: Affine | None = None
    operands = [forms[operand] for operand in node.operands]
    known = [operand for operand in operands if operand is not None]
    if node.primitive is Primitive.CONSTANT:
        form = Affine(int(constant_value(node)))
    elif node.primitive is Primitive.PARAMETER:
        assert isinstance(node.attribute, int)
        leaf = stage.leaves[node.attribute] if node.attribute < len(stage.leaves) else None
        form = leaf.form if isinstance(leaf, Position) and not leaf.form.dynamic else None
    elif len(known) < len(operands):
        return None
    elif node.primitive is Primitive.ADD:
        form = known[0] + known[1]
    elif node.primitive is Primitive.SUB:
        form = known[0] + known[1].scaled(-1)
    elif node.primitive is Primitive.MUL and any(each.is_constant for each in known):
        factor, other = known if known[0].is_constant else known[::-1]
        form = other.scaled(factor.offset)
    elif node.primitive in _EXTENSIONS:
        negative = node.primitive is Primitive.ZERO_EXTEND and _bounds(known[0], extents, {})[0] < 0
        form = None if negative else known[0]
    return form if form is not None and _fits(form, node.type, extents) else None


def _fits(form: Affine, type: MachineType, extents: Sequence[int]) -> bool:
    low, high = _bounds(form, extents, {})
    half = 1 << (type.bits - 1)
    return -half <= low and high < half


def _bounds(form: Affine, extents: Sequence[int], spans: Mapping[Variable, Span]) -> Span:
    """Return the least and greatest values of `form` within `spans`, both inclusive."""
    low = high = form.offset
    for variable, coefficient in form.terms:
        first, stop = spans.get(variable, (0, extents[variable]))
        ends = coefficient * first, coefficient * (stop - 1)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _longest(extents: Sequence[int], variable: Variable, conditions: Sequence[Condition]) -> Span | None:
    """Return the longest range of a loop in which no outcome changes; None if that is the whole loop, or less than
    half.
    """
    extent = extents[variable]
    changes = {0, extent}
    for condition in conditions:
        factor = condition.difference.coefficient(variable)
        if not factor:
            continue
        rest = _bounds(condition.difference + Affine(0, ((variable, -factor),)), extents, {})
        for threshold in condition.thresholds():
            for other in rest:
                # First iteration at which factor * variable + other crosses the threshold.
                change = -((other - threshold) // factor) if factor > 0 else (threshold - other) // factor + 1
                if 0 < change < extent:
                    changes.add(change)
    ends = sorted(changes)
    first, stop = max(pairwise(ends), key=lambda span: span[1] - span[0])
    return (first, stop) if extent > stop - first >= extent / 2 else None


def _inside(stage: Stage, spans: dict[Variable, Span], answers: Mapping[Expression, Expression]) -> Interior:
    """Return `stage` simplified by the `answers` of conditions."""
    known = dict(answers)

    def rewritten(root: Expression) -> Expression:
        for node in walk([root], lambda node: () if node in known else node.operands):
            if node not in known:
                known[node] = _folded(node, [known[operand] for operand in node.operands])
        return known[root]

    unguarded: list[Load] = []

    def leaf(old: Leaf) -> Leaf:
        if isinstance(old, Position) or old.mask is None:
            return old
        mask = rewritten(old.mask)
        new = replace(old, mask=None if mask is constant(True, I1) else mask)
        if new.mask is not old.mask:
            unguarded.append(replace(new, mask=None))
        return new

    def store(old: Store) -> Store:
        return replace(old, code=rewritten(old.code))

    inside = stage.with_accesses(leaf, store)
    reductions = tuple(replace(old, inputs=tuple(map(rewritten, old.inputs))) for old in inside.reductions)
    return Interior(spans, replace(inside, reductions=reductions), frozenset(unguarded))


def _folded(node: Expression, operands: Sequence[Expression]) -> Expression:
    """Return `node` on `operands`, simplified if an operand is constant."""
    if node.primitive in (Primitive.SELECT, Primitive.RARELY) and is_constant(operands[0]):
        return build.select(*operands)
    if node.type is I1 and node.primitive in (Primitive.AND, Primitive.OR) and any(map(is_constant, operands)):
        one, other = operands if is_constant(operands[0]) else operands[::-1]
        neutral = bool(one.attribute) is (node.primitive is Primitive.AND)
        return other if neutral else one
    if node.type is I1 and node.primitive is Primitive.XOR and all(map(is_constant, operands)):
        return constant(operands[0].attribute != operands[1].attribute, I1)
    return node if not operands else expression(node.primitive, node.type, operands, node.attribute)
