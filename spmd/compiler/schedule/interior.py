"""The inside of a loop nest: the points where what is asked of indices has one answer.

Paddings, parts of concatenations, and comparisons of iotas ask at each point where it lies. Far from the ends all have
one answer: there nothing has to be asked, masks fall away, and with them what is computed for the ends alone.
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

#: From the first turn of a loop on, and before the last.
Span = tuple[int, int]

_EXTENSIONS = (Primitive.TRUNCATE, Primitive.SIGN_EXTEND, Primitive.ZERO_EXTEND)
#: By predicate, the least difference of its operands that holds, or that does not; only 0 matters to `eq` and `ne`.
_AT_LEAST = {"sge": 0, "sgt": 1, "uge": 0, "ugt": 1}
_LESS_THAN = {"slt": 0, "sle": 1, "ult": 0, "ule": 1}


@dataclass(frozen=True, slots=True)
class Interior:
    """Where the points lie, by loop (whole loops are not told), and what is computed there.

    `unguarded` are the loads of `stage`, without what is left of their masks, that had one which holds inside alone.
    """

    spans: dict[Variable, Span]
    stage: Stage
    unguarded: frozenset[Load]


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether `difference`, compared with 0 as `predicate` says, holds."""

    difference: Affine
    predicate: str

    def thresholds(self) -> tuple[int, ...]:
        """The differences from which on there is another answer."""
        if self.predicate in _AT_LEAST:
            return (_AT_LEAST[self.predicate],)
        return (_LESS_THAN[self.predicate],) if self.predicate in _LESS_THAN else (0, 1)

    def holds(self, low: int, high: int) -> bool | None:
        """The answer for all differences from `low` to `high`; None where there are several."""
        at_least = [low >= least for least in self.thresholds()]
        if at_least != [high >= least for least in self.thresholds()]:
            return None
        if self.predicate in ("eq", "ne"):
            return (at_least == [True, False]) is (self.predicate == "eq")
        return at_least[0] is (self.predicate in _AT_LEAST)


def interior_of(nest: Nest, stage: Stage) -> Interior | None:
    """The inside of `stage`, which holds most of each loop; None where there is nothing to be gained of it."""
    conditions = dict(conditions_of(nest, stage))
    spans: dict[Variable, Span] = {}
    for variable in stage.kept:
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


def turns_of(nest: Nest, stage: Stage, variable: Variable) -> list[Stage] | None:
    """What is computed at each turn of a loop, whose number is all that some conditions ask for; None without such.

    So the parts of a concatenation that is folded are read where each is, and none is chosen while running.
    """
    conditions = {node: each for node, each in conditions_of(nest, stage) if each.difference.coefficient(variable)}
    if not conditions or any(len(each.difference.terms) > 1 for each in conditions.values()):
        return None
    turns: list[Stage] = []
    for turn in range(nest.extents[variable]):
        answers: dict[Expression, Expression] = {}
        for node, condition in conditions.items():
            place = _bounds(condition.difference, nest.extents, {variable: (turn, turn + 1)})
            answers[node] = constant(bool(condition.holds(*place)), I1)
        turns.append(_inside(stage, {}, answers).stage)
    return turns


def _kept(condition: Condition, stage: Stage) -> list[Variable]:
    """The loops that a condition depends on, but for those that are folded."""
    return [variable for variable, _ in condition.difference.terms if variable not in stage.reduced]


def conditions_of(nest: Nest, stage: Stage) -> Iterator[tuple[Expression, Condition]]:
    """What `stage` asks of indices, without what is computed while running."""
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
    """The number that `node` is, where it follows from indices alone and none wraps on the way."""
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
    """The smallest and the largest number that `form` is within `spans`, both included."""
    low = high = form.offset
    for variable, coefficient in form.terms:
        first, stop = spans.get(variable, (0, extents[variable]))
        ends = coefficient * first, coefficient * (stop - 1)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _longest(extents: Sequence[int], variable: Variable, conditions: Sequence[Condition]) -> Span | None:
    """The longest stretch of a loop in which no answer changes; None where it is the whole loop, or a small part."""
    extent = extents[variable]
    changes = {0, extent}
    for condition in conditions:
        factor = condition.difference.coefficient(variable)
        if not factor:
            continue
        rest = _bounds(condition.difference + Affine(0, ((variable, -factor),)), extents, {})
        for threshold in condition.thresholds():
            for other in rest:
                # From where on factor * variable + other is at least the threshold, or is not.
                change = -((other - threshold) // factor) if factor > 0 else (threshold - other) // factor + 1
                if 0 < change < extent:
                    changes.add(change)
    ends = sorted(changes)
    first, stop = max(pairwise(ends), key=lambda span: span[1] - span[0])
    return (first, stop) if extent > stop - first >= extent / 2 else None


def _inside(stage: Stage, spans: dict[Variable, Span], answers: Mapping[Expression, Expression]) -> Interior:
    """`stage` where the conditions have the `answers`."""
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

    inside = stage.with_places(leaf, store)
    reductions = tuple(replace(old, inputs=tuple(map(rewritten, old.inputs))) for old in inside.reductions)
    return Interior(spans, replace(inside, reductions=reductions), frozenset(unguarded))


def _folded(node: Expression, operands: Sequence[Expression]) -> Expression:
    """`node` on `operands`, without what an answer leaves of it."""
    if node.primitive in (Primitive.SELECT, Primitive.RARELY) and is_constant(operands[0]):
        return build.select(*operands)
    if node.type is I1 and node.primitive in (Primitive.AND, Primitive.OR) and any(map(is_constant, operands)):
        one, other = operands if is_constant(operands[0]) else operands[::-1]
        neutral = bool(one.attribute) is (node.primitive is Primitive.AND)
        return other if neutral else one
    if node.type is I1 and node.primitive is Primitive.XOR and all(map(is_constant, operands)):
        return constant(operands[0].attribute != operands[1].attribute, I1)
    return node if not operands else expression(node.primitive, node.type, operands, node.attribute)
