"""The result of a search, and its explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from spmd.ir import Function
from spmd.predict.events import Footprint
from spmd.predict.report import duration, table
from spmd.sharding_search.layouts import Spec, format_spec
from spmd.sharding_search.pricing import PricedLayout
from spmd.support.amounts import amount
from spmd.types import TensorType, Type

#: The number of arguments in `explain`, the largest first.
_MOST_TOLD = 32
#: From this fraction of the memory limit on, memory is the bottleneck.
_FULL = 0.9


@dataclass(frozen=True)
class ArgumentPlan:
    """The sharding of one argument, its `bytes` per process, and the next best sharding that was priced.

    `alternative` is its spec and the seconds that it would add to a step (None: no other fits, or was priced).
    """

    name: str
    type: Type
    spec: Spec | None
    bytes: int
    alternative: tuple[Spec, float] | None = None


@dataclass(frozen=True)
class ShardingPlan:
    """A layout of a program over `mesh` and the predicted step, in seconds and bytes per process.

    `annotated_inner` is the number of inner ops with a sharding, `tried` the number of layouts priced.
    """

    mesh: Mapping[str, int]
    arguments: Sequence[ArgumentPlan]
    results: Sequence[Spec | None]
    annotated_inner: int
    tried: int
    seconds: float
    computing: float
    communicating: float
    memory: Footprint
    limit: float | None
    #: The critical path: title and fraction of the step, the longest first.
    critical: Sequence[tuple[str, float]]

    @property
    def binding(self) -> str:
        """The bottleneck: "memory", "computing" or "communication"."""
        if self.limit is not None and self.memory.total > _FULL * self.limit:
            return "memory"
        return "computing" if self.computing >= self.communicating else "communication"

    def explain(self) -> str:
        """Return a description: the sharding of each argument with the next best one, memory, and the bottleneck."""
        mesh = ", ".join(f"{name}={size}" for name, size in self.mesh.items())
        lines = [
            f"a step of {duration(self.seconds)} on {prod(self.mesh.values()):,} processes ({mesh}): computing "
            f"{duration(self.computing)}, communicating {duration(self.communicating)}",
            f"memory of a process: {amount(self.memory.total)}"
            + ("" if self.limit is None else f" of {amount(self.limit)}")
            + f" (arguments {amount(self.memory.arguments)}, results {amount(self.memory.results)}, "
            f"temporaries {amount(self.memory.temporaries)})",
            f"bottleneck: {self.binding}; {self.tried:,} layouts were priced; "
            f"{self.annotated_inner} inner values are annotated",
            "",
        ]
        shown = sorted(range(len(self.arguments)), key=lambda index: (-self.arguments[index].bytes, index))[:_MOST_TOLD]
        lines += table(("argument", "type", "a process", "layout", "next best"), [self._row(i) for i in sorted(shown)])
        if len(self.arguments) > len(shown):
            lines.append(f"{len(self.arguments) - len(shown)} smaller arguments are not shown")
        lines += ["", "critical path:"]
        lines += [f"{share:6.1%}  {title}" for title, share in self.critical]
        return "\n".join(lines)

    def _row(self, index: int) -> tuple[str, ...]:
        each = self.arguments[index]
        other = "" if each.alternative is None else self._alternative(each.alternative)
        return each.name, str(each.type), amount(each.bytes), format_spec(each.spec), other

    def _alternative(self, alternative: tuple[Spec, float]) -> str:
        spec, seconds = alternative
        return f"{format_spec(spec)} +{seconds / (self.seconds or 1.0):.1%}"

    def __str__(self) -> str:
        return self.explain()


def make_plan(
    function: Function, mesh: Mapping[str, int], best: PricedLayout, priced: Sequence[PricedLayout], limit: float | None
) -> ShardingPlan:
    """Return the plan for `best`, one of the `priced` layouts of `function`."""
    prediction = best.prediction
    arguments = []
    for index, (type, spec) in enumerate(zip(function.type.inputs, best.layout.arguments, strict=True)):
        name = function.arguments[index].name_hint or str(index)
        arguments.append(
            ArgumentPlan(
                name, type, spec, local_bytes(type, spec, mesh), _alternative(index, spec, best, priced, limit)
            )
        )
    return ShardingPlan(
        dict(mesh),
        tuple(arguments),
        best.layout.results,
        len(best.layout.inner),
        len(priced),
        prediction.seconds,
        prediction.computing,
        prediction.communicating,
        prediction.memory,
        limit,
        tuple((share.title, share.share) for share in prediction.critical[:8]),
    )


def _alternative(
    index: int, spec: Spec | None, best: PricedLayout, priced: Sequence[PricedLayout], limit: float | None
) -> tuple[Spec, float] | None:
    """Return the best priced layout that shards an argument differently, and the added seconds."""
    others = [
        (each.seconds - best.seconds, other)
        for each in priced
        if (other := each.layout.arguments[index]) is not None
        and other != spec
        and (limit is None or each.bytes <= limit)
    ]
    if not others:
        return None
    seconds, other = min(others, key=lambda entry: (entry[0], format_spec(entry[1])))
    return other, seconds


def local_bytes(type: Type, spec: Spec | None, mesh: Mapping[str, int]) -> int:
    """Return the bytes of an argument on one process."""
    if not isinstance(type, TensorType) or not type.is_static:
        return 0
    blocks = [prod(mesh[axis] for axis in axes) for axes in spec] if spec is not None else [1] * type.rank
    return type.dtype.itemsize * prod(-(-size // count) for size, count in zip(type.static_shape, blocks, strict=True))


def too_large(function: Function, mesh: Mapping[str, int], smallest: PricedLayout, limit: float) -> str:
    """Return the message that no layout fits `limit`: what the smallest needs, and the largest arguments."""
    memory = smallest.prediction.memory
    sizes = [
        (local_bytes(type, spec, mesh), function.arguments[index].name_hint or str(index), type)
        for index, (type, spec) in enumerate(zip(function.type.inputs, smallest.layout.arguments, strict=True))
    ]
    largest = sorted(sizes, key=lambda entry: -entry[0])[:4]
    arrays = ", ".join(f"%{name}: {type} {amount(size)}" for size, name, type in largest if size)
    return (
        f"no layout of @{function.symbol} over {', '.join(f'{name}={size}' for name, size in mesh.items())} was found "
        f"that needs at most {amount(limit)} per process: the smallest needs {amount(memory.total)} (arguments "
        f"{amount(memory.arguments)}, results {amount(memory.results)}, temporaries {amount(memory.temporaries)}); "
        f"the largest arguments: {arrays}"
    )
