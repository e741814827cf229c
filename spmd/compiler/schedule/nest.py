"""Loop nests as data: an iteration space, what is read at each of its points, what is computed, and what is written.

Values in registers are scalar expressions (spmd.analysis.scalar); their parameters are numbered by `Nest.leaves`, each
a machine value in memory or the number that an index is. Nothing here knows how loops are run: LLVM's text, costs and
printing all read the same nest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import Expression, MachineType
from spmd.ir import Value
from spmd.types import ElementType


@dataclass(frozen=True, slots=True)
class Load:
    """A machine value from the buffer of `value`, read where `mask` holds (everywhere when None).

    `address` counts machine values of `type`, of which a complex element has two.
    """

    value: Value
    address: Affine
    type: MachineType
    mask: Expression | None = None

    @property
    def is_part(self) -> bool:
        """Whether elements have two parts, of which this reads one: at even places the first, at odd the second."""
        element = self.value.tensor.element_type
        return isinstance(element, ElementType) and element.is_complex and self.type.bits < element.bits


@dataclass(frozen=True, slots=True)
class Position:
    """The number that an affine form is at a point, an i64."""

    form: Affine


Leaf = Load | Position


@dataclass(frozen=True, slots=True)
class Store:
    """`code`, a machine value, is written to the buffer of `value`; `address` as in `Load`."""

    value: Value
    address: Affine
    code: Expression


#: The number of the first parameter that stands for a folded value; lower ones are those of leaves.
FOLDED = 1 << 20


@dataclass(frozen=True, slots=True)
class LoopReduction:
    """Machine values folded over a stage's reduced variables.

    `combine` has as parameters, from number `FOLDED` on, n folded values, then n more, and gives n. `initial` is the
    first of what is folded. `neutral` is what parts of a fold may start from, any number of them: a neutral element, or
    `initial` itself where folding it again changes nothing; None where no such is known, and the order of elements is
    then kept. `stores` have the n folded values as parameters. `later`, where it is another, is what `combine` comes to
    where the second values are those of an element after all of the first.
    """

    inputs: tuple[Expression, ...]
    initial: tuple[Expression, ...]
    combine: tuple[Expression, ...]
    neutral: tuple[Expression, ...] | None
    stores: tuple[Store, ...]
    later: tuple[Expression, ...] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Machine values in memory that new ones take the place of, where `mask` holds (everywhere when None).

    `writes` are (value, address, code), codes having the parameters `old`: what stands there before. Points that
    write to one place do so in their order.
    """

    writes: tuple[tuple[Value, Affine, Expression], ...]
    old: tuple[Expression, ...]
    mask: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Loops over `loops`, outermost first; those in `reduced` come last, whatever their place in memory order.

    `leaves` are what the parameters of the stage's expressions stand for. Of `updates`, only what the loops
    `side_by_side` go over is known to lie at different places.
    """

    leaves: tuple[Leaf, ...]
    loops: tuple[Variable, ...]
    reduced: tuple[Variable, ...]
    stores: tuple[Store, ...]
    reductions: tuple[LoopReduction, ...] = ()
    updates: tuple[Update, ...] = ()
    side_by_side: frozenset[Variable] = frozenset()

    @property
    def kept(self) -> tuple[Variable, ...]:
        """The loops that are not folded."""
        return tuple(variable for variable in self.loops if variable not in self.reduced)

    def all_stores(self) -> Iterator[Store]:
        """All that is written but by updates."""
        yield from self.stores
        for reduction in self.reductions:
            yield from reduction.stores

    def loads(self) -> Iterator[Load]:
        """All that is read."""
        return (leaf for leaf in self.leaves if isinstance(leaf, Load))

    def forms(self) -> Iterator[Affine]:
        """All that counts with loop variables."""
        for leaf in self.leaves:
            yield leaf.address if isinstance(leaf, Load) else leaf.form
        for store in self.all_stores():
            yield store.address
        for update in self.updates:
            yield from (address for _, address, _ in update.writes)

    def with_places(self, leaf: Callable[[Leaf], Leaf], store: Callable[[Store], Store]) -> Stage:
        """The stage, which updates nothing, with other leaves and stores in place of its own."""
        reductions = tuple(replace(old, stores=tuple(map(store, old.stores))) for old in self.reductions)
        leaves, stores = tuple(map(leaf, self.leaves)), tuple(map(store, self.stores))
        return replace(self, leaves=leaves, stores=stores, reductions=reductions)


@dataclass(frozen=True, slots=True)
class Nest:
    """Stages that run one after another; within each turn of the loops `outer`, which they share.

    Variables are numbered in memory order, outermost first: `extents` says how far each one runs.
    """

    extents: tuple[int, ...]
    stages: tuple[Stage, ...]
    outer: tuple[Variable, ...] = ()

    def loads(self) -> Iterator[Load]:
        """All that is read."""
        for stage in self.stages:
            yield from stage.loads()

    def stores(self) -> Iterator[Store]:
        """All that is written but by updates."""
        for stage in self.stages:
            yield from stage.all_stores()
