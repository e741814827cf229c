"""Loop nests as data: an iteration space with the loads, expressions and stores at each point.

Register values are scalar expressions (spmd.analysis.scalar) whose parameters are indices into `Stage.leaves`: loads,
or values of affine forms. How loops are executed is not represented: code generators, costs and printing read the same
nest.
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
    """A load of a machine value from the buffer of `value`, predicated by `mask` if there is one.

    `address` counts machine values of `type`, of which a complex element has two.
    """

    value: Value
    address: Affine
    type: MachineType
    mask: Expression | None = None

    @property
    def is_part(self) -> bool:
        """Whether it loads the real (even address) or imaginary (odd address) part of a complex element."""
        element = self.value.tensor.element_type
        return isinstance(element, ElementType) and element.is_complex and self.type.bits < element.bits


@dataclass(frozen=True, slots=True)
class Position:
    """The value of an affine form at a point, an i64."""

    form: Affine


Leaf = Load | Position


@dataclass(frozen=True, slots=True)
class Store:
    """A store of `code`, a machine value, to the buffer of `value`; `address` as in `Load`."""

    value: Value
    address: Affine
    code: Expression


#: Parameters from this number on are accumulators; lower ones index leaves.
FOLDED = 1 << 20


@dataclass(frozen=True, slots=True)
class LoopReduction:
    """A reduction over a stage's reduced variables.

    `combine` maps 2n parameters, numbered from `FOLDED`: n accumulators and n further values, to n values. `initial` is
    the first accumulator. `neutral` is a value from which any number of partial reductions may start: an identity, or
    `initial` itself if the reduction is idempotent; None if there is none, and then elements are combined in order.
    `stores` have the n accumulators as parameters. `ordered_combine`, if given, is a cheaper `combine` that is valid if
    the second operand comes from a later element than all of the first.
    """

    inputs: tuple[Expression, ...]
    initial: tuple[Expression, ...]
    combine: tuple[Expression, ...]
    neutral: tuple[Expression, ...] | None
    stores: tuple[Store, ...]
    ordered_combine: tuple[Expression, ...] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A read-modify-write of memory, predicated by `mask` if there is one.

    `writes` are (value, address, code); parameters of the codes are `old`, the previous contents. Points that write to
    the same address do so in loop order.
    """

    writes: tuple[tuple[Value, Affine, Expression], ...]
    old: tuple[Expression, ...]
    mask: Expression | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Loops over `loops`, outermost first; those in `reduced` are innermost, whatever their memory order.

    `leaves` are the values of expression parameters. Updates are known to have distinct addresses only along the loops
    in `independent`.
    """

    leaves: tuple[Leaf, ...]
    loops: tuple[Variable, ...]
    reduced: tuple[Variable, ...]
    stores: tuple[Store, ...]
    reductions: tuple[LoopReduction, ...] = ()
    updates: tuple[Update, ...] = ()
    independent: frozenset[Variable] = frozenset()

    @property
    def parallel(self) -> tuple[Variable, ...]:
        """The loops that are not reduced."""
        return tuple(variable for variable in self.loops if variable not in self.reduced)

    def all_stores(self) -> Iterator[Store]:
        """Yield all stores except updates."""
        yield from self.stores
        for reduction in self.reductions:
            yield from reduction.stores

    def loads(self) -> Iterator[Load]:
        """Yield all loads."""
        return (leaf for leaf in self.leaves if isinstance(leaf, Load))

    def forms(self) -> Iterator[Affine]:
        """Yield all affine forms of loop variables."""
        for leaf in self.leaves:
            yield leaf.address if isinstance(leaf, Load) else leaf.form
        for store in self.all_stores():
            yield store.address
        for update in self.updates:
            yield from (address for _, address, _ in update.writes)

    def with_accesses(self, leaf: Callable[[Leaf], Leaf], store: Callable[[Store], Store]) -> Stage:
        """Return the stage, which has no updates, with leaves and stores replaced."""
        reductions = tuple(replace(old, stores=tuple(map(store, old.stores))) for old in self.reductions)
        leaves, stores = tuple(map(leaf, self.leaves)), tuple(map(store, self.stores))
        return replace(self, leaves=leaves, stores=stores, reductions=reductions)


@dataclass(frozen=True, slots=True)
class Nest:
    """Stages that run in sequence, within each iteration of the shared loops `outer`.

    Variables are numbered in memory order, outermost first; `extents` are their trip counts.
    """

    extents: tuple[int, ...]
    stages: tuple[Stage, ...]
    outer: tuple[Variable, ...] = ()

    def loads(self) -> Iterator[Load]:
        """Yield all loads."""
        for stage in self.stages:
            yield from stage.loads()

    def stores(self) -> Iterator[Store]:
        """Yield all stores except updates."""
        for stage in self.stages:
            yield from stage.all_stores()
