"""Prices layouts: partitions the program, completes the layout by propagation, and predicts the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from collectives.network import Network
from partitioner.partition import partition
from partitioner.program import ImportedProgram
from partitioner.propagation import propagate
from partitioner.reading import ShardingReader
from partitioner.sharding import Annotation, ShardedType, Sharding
from spmd.analysis.grid import grid_of
from spmd.compiler.pipeline.options import Options
from spmd.compiler.pipeline.prepare import Prepared
from spmd.dialects import sdy_attributes as sdy
from spmd.errors import CompileError
from spmd.ir import Module, Op, Value
from spmd.predict.machine import Machine
from spmd.predict.prediction import Prediction, predict
from spmd.sharding_search.layouts import ProgramLayout, Spec, annotated, is_given, specs_of


@dataclass(frozen=True)
class PricedLayout:
    """A complete layout, with every argument and result, and its predicted step."""

    layout: ProgramLayout
    prediction: Prediction

    @property
    def seconds(self) -> float:
        """The predicted seconds of a step."""
        return self.prediction.seconds

    @property
    def bytes(self) -> int:
        """Bytes per process at the peak."""
        return self.prediction.memory.total


@dataclass
class Pricer:
    """Prices layouts of `function` of `module` on a machine and a network, each once.

    `returned` maps each result to the argument whose next value it is, which is sharded alike (or None). `program` is
    imported by `reader` with the module's own annotations only.
    """

    module: Module
    function: str
    mesh: Op
    machine: Machine
    network: Network | None
    returned: Sequence[int | None]
    program: ImportedProgram
    reader: ShardingReader
    count: int = 0
    _known: dict[ProgramLayout, PricedLayout | None] = field(default_factory=dict)

    @cached_property
    def given(self) -> frozenset[Value]:
        """The arguments that the module annotates."""
        entries = zip(
            self.program.block.arguments, self.module.function(self.function).argument_attributes, strict=True
        )
        return frozenset(value for value, attributes in entries if is_given(attributes))

    @property
    def axes(self) -> Mapping[str, int]:
        """The axes of the mesh and their sizes."""
        return {axis.name: axis.size for axis in self.mesh["mesh"].axes}

    def propagated(self, layout: ProgramLayout) -> dict[Value, Sharding]:
        """Return the propagated sharding of every value of the program."""
        annotations = dict(self.program.annotations)
        for value, spec in zip(self.program.block.arguments, layout.arguments, strict=True):
            if spec is not None and value not in self.given:
                annotations[value] = self._annotation(value, spec, not layout.is_open)
        inner_specs = dict(layout.inner)
        for op, origin in self.program.origins.items() if inner_specs else ():
            if origin in inner_specs:
                annotations[op.result] = self._annotation(op.result, inner_specs[origin], True)
        return propagate(replace(self.program, annotations=annotations), self.reader)

    def _annotation(self, value: Value, spec: Spec, is_closed: bool) -> Annotation:
        mesh = self.mesh["mesh"]
        dimensions = tuple(self.reader.axes(list(map(sdy.AxisRef, axes)), mesh) for axes in spec)
        rank = value.tensor.rank
        return Annotation(Sharding(self.reader.mesh, dimensions), (is_closed,) * rank, (0,) * rank)

    def complete(self, layout: ProgramLayout) -> ProgramLayout | None:
        """Return `layout` with open arguments as propagation shards them; None if one is sharded along a sub-axis."""
        if layout.is_open or None in layout.arguments:
            layouts = self.propagated(layout)
            arguments = specs_of(
                [ShardedType(value.type, layouts.get(value)) for value in self.program.block.arguments], self.axes
            )
            if arguments is None:
                return None
            layout = ProgramLayout(arguments, layout.results, inner=layout.inner)
        results = [
            spec if back is None else layout.arguments[back]
            for spec, back in zip(layout.results, self.returned, strict=True)
        ]
        return ProgramLayout(layout.arguments, tuple(results), inner=layout.inner)

    def price(self, layout: ProgramLayout) -> PricedLayout | None:
        """Return the priced layout; None if the partitioner does not realize it."""
        whole = self.complete(layout)
        if whole is None:
            return None
        if whole not in self._known:
            self._known[whole] = self._priced(whole)
        return self._known[whole]

    def is_known(self, layout: ProgramLayout) -> bool:
        """Return whether `layout` has been priced."""
        return layout in self._known

    def _priced(self, layout: ProgramLayout) -> PricedLayout | None:
        self.count += 1
        module = annotated(self.module, self.mesh, layout, self.function)
        try:
            parts = partition(module, None, self.function)
        except CompileError:
            if self.count == 1:
                raise
            return None
        specs = specs_of(parts.out_shardings, self.axes)
        if specs is None:
            return None
        results = tuple([spec if given is None else given for given, spec in zip(layout.results, specs, strict=True)])
        options = Options(grid=grid_of(parts.module))
        prepared = Prepared(parts.module, parts.module.function(parts.function), options)
        return PricedLayout(replace(layout, results=results), predict(prepared, self.machine, self.network))
