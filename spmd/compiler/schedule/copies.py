"""Loop nests that only copy: rows of neighbours from one array to another, with a constant around them where they are
padded. Slices, concatenations, paddings and transpositions that leave rows whole are such.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spmd.analysis.affine import Affine, Variable
from spmd.analysis.scalar.expression import Expression, MachineType
from spmd.compiler.schedule.nest import Nest, Stage
from spmd.compiler.schedule.padded_loads import bounds_of, padded_load
from spmd.ir import Value


@dataclass(frozen=True, slots=True)
class CopyLoop:
    """A loop over `extent` places, and how far source and target go on with each; there is nothing to be read before
    the place `first` and from `stop` on."""

    variable: Variable
    extent: int
    source: int
    target: int
    first: int
    stop: int

    @property
    def is_padded(self) -> bool:
        """Whether there are places at which nothing is read."""
        return (self.first, self.stop) != (0, self.extent)

    def around(self, inner: CopyLoop) -> CopyLoop | None:
        """Both loops as one; None where they are not."""
        whole = (self.source, self.target) == (inner.source * inner.extent, inner.target * inner.extent)
        if inner.is_padded or not whole:
            return None
        size = inner.extent
        return replace(inner, extent=self.extent * size, first=self.first * size, stop=self.stop * size)


@dataclass(frozen=True, slots=True)
class Copy:
    """Machine values of `type` that are copied from `source` to `target`, from these places on, by `loops`, the last of
    which goes over neighbours. `padding` is what stands where nothing is read.

    The places are numbers of elements, with the terms of loops of the nest that are not the copy's own.
    """

    type: MachineType
    source: Value
    target: Value
    read_from: Affine
    write_from: Affine
    loops: tuple[CopyLoop, ...]
    padding: Expression | None


def copy_of(nest: Nest, outside: Variable | None = None) -> Copy | None:
    """What `nest` copies, each turn of the loop `outside` by itself; None where it does anything else."""
    if len(nest.stages) != 1:
        return None
    (stage,) = nest.stages
    if stage.reductions or stage.updates or len(stage.stores) != 1:
        return None
    (store,) = stage.stores
    read = padded_load(stage, store.code)
    if read is None or read[0].type is not store.code.type:
        return None
    load, padding = read
    if load.address.dynamic or store.address.dynamic:
        return None
    ranges = _ranges(nest, stage, load.mask)
    if ranges is None or outside in ranges:
        return None
    loops = _loops(nest, stage, load.address, store.address, ranges, outside)
    if loops is None:
        return None
    own = {variable for variable in stage.loops if variable != outside}
    first, written = (_without(form, own) for form in (load.address, store.address))
    return Copy(load.type, load.value, store.value, first, written, loops, padding)


def _without(form: Affine, own: set[Variable]) -> Affine:
    return Affine(form.offset, tuple((variable, factor) for variable, factor in form.terms if variable not in own))


def _ranges(nest: Nest, stage: Stage, mask: Expression | None) -> dict[Variable, tuple[int, int]] | None:
    """The places of each loop where `mask` holds, and only they; None where it asks for more than that."""
    ranges: dict[Variable, tuple[int, int]] = {}
    bounds = bounds_of(nest, stage, mask)
    if bounds is None:
        return None
    for form, is_least, number in bounds:
        if len(form.terms) != 1 or form.terms[0][1] != 1:
            return None
        ((variable, _),) = form.terms
        first, stop = ranges.get(variable, (0, nest.extents[variable]))
        ranges[variable] = (max(first, number), stop) if is_least else (first, min(stop, number))
    return ranges if all(first < stop for first, stop in ranges.values()) else None


def _loops(
    nest: Nest,
    stage: Stage,
    read: Affine,
    written: Affine,
    ranges: dict[Variable, tuple[int, int]],
    outside: Variable | None,
) -> tuple[CopyLoop, ...] | None:
    """As few loops as there may be, the last one over neighbours; None where there are none such."""
    loops: list[CopyLoop] = []
    for variable in stage.loops:
        extent = nest.extents[variable]
        if variable == outside or (extent == 1 and variable not in ranges):
            continue
        first, stop = ranges.get(variable, (0, extent))
        factors = read.coefficient(variable), written.coefficient(variable)
        loops.append(CopyLoop(variable, extent, *factors, first, stop))
    merged: list[CopyLoop] = []
    for loop in sorted(loops, key=lambda loop: -loop.target):
        both = merged[-1].around(loop) if merged else None
        if both is not None:
            merged[-1] = both
        else:
            merged.append(loop)
    return tuple(merged) if merged and merged[-1].source == merged[-1].target == 1 else None
