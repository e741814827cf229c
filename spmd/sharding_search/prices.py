"""Cost model of the search: seconds of ops, and of collectives along an axis, on one machine and network."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from collectives.operations import AllGather, AllReduce, AllToAll, Operation, ReduceScatter
from collectives.reduction import ADD
from partitioner.mesh import Axes, DeviceMesh
from spmd.compiler.schedule.costs import Work, work_of_op
from spmd.ir import Op, Value
from spmd.predict.machine import Machine
from spmd.predict.timeline import TrafficPrices
from spmd.types import TensorType

#: The cost of a transcendental function and of a division, in additions.
_FUNCTION, _DIVISION = 16.0, 4.0
_FUNCTIONS = frozenset(
    "stablehlo." + name
    for name in ("exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "tanh", "sine", "cosine",
                 "tan", "power", "cbrt", "atan2")
)  # fmt: skip
_DIVISIONS = frozenset(("stablehlo.divide", "stablehlo.sqrt", "stablehlo.rsqrt", "stablehlo.remainder"))
#: Ops that neither move nor compute data by themselves.
_FREE = frozenset(
    ("stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.iota", "stablehlo.constant", "stablehlo.while")
)
#: The value whose elements an op touches, where its operand is larger.
_TOUCHED: dict[str, Callable[[Op], Value]] = {
    "stablehlo.slice": lambda op: op.results[0],
    "stablehlo.dynamic_slice": lambda op: op.results[0],
    "stablehlo.gather": lambda op: op.results[0],
    "stablehlo.dynamic_update_slice": lambda op: op.operands[1],
    "stablehlo.scatter": lambda op: op.operands[-1],
}
#: Sizes at which collectives are priced, with linear interpolation between them.
_BYTES = [float(1 << power) for power in range(6, 40, 2)]


def op_seconds(machine: Machine, op: Op) -> float:
    """Return the seconds that one process takes for the complete `op`, assumed to be fused where possible."""
    types = [value.type for value in (*op.operands, *op.results)]
    if op.name in _FREE or not all(isinstance(type, TensorType) and type.is_static for type in types):
        return 0.0
    works = work_of_op(op)
    if works:
        return sum(map(machine.seconds, works))
    touched = _TOUCHED.get(op.name)
    values = (*op.operands, *op.results) if touched is None else (touched(op),)
    points = max((prod(value.tensor.static_shape) for value in values), default=0)
    kind, each = "elementwise", 1.0
    if op.name in _FUNCTIONS or op.name.startswith("chlo."):
        kind, each = "function", _FUNCTION
    elif op.name in _DIVISIONS:
        kind, each = "division", 1.0
    computing = machine.seconds(Work(kind, points * each))
    written = op.results if touched is None else values
    moved = sum(prod(value.tensor.static_shape) * value.tensor.dtype.itemsize for value in written)
    return computing + machine.writing(moved, moved) / 2


@dataclass
class AxisPrices:
    """Seconds of collectives along the axes of a mesh, cached."""

    traffic: TrafficPrices
    mesh: DeviceMesh
    axes: Sequence[Axes]
    _tables: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    _known: dict[tuple[str, int, float], float] = field(default_factory=dict)

    def moving(self, kind: str, axis: int, nbytes: float) -> float:
        """Return the seconds of a collective along an axis: see partitioner.search.integer.ReshardingPrices."""
        key = kind, axis, nbytes
        seconds = self._known.get(key)
        if seconds is None:
            seconds = self._known[key] = self._between(kind, axis, nbytes)
        return seconds

    def _between(self, kind: str, axis: int, nbytes: float) -> float:
        table = self._tables.get((kind, axis))
        if table is None:
            table = self._tables[kind, axis] = self._table(kind, axis)
        at = min(max(bisect(_BYTES, nbytes), 1), len(_BYTES) - 1)
        low, high = _BYTES[at - 1], _BYTES[at]
        share = max(0.0, (nbytes - low) / (high - low))
        return table[at - 1] + share * (table[at] - table[at - 1])

    def _table(self, kind: str, axis: int) -> list[float]:
        groups = self.mesh.groups(self.axes[axis])
        size = groups.shape[1]
        seconds = []
        for nbytes in _BYTES:
            count = max(int(nbytes) // 4 // size, 1) * size
            taken = self.traffic.of(_operation(kind, count, size), groups).seconds
            seconds.append(float(taken.max(initial=0.0)))
        return seconds


def _operation(kind: str, count: int, size: int) -> Operation:
    dtype = np.dtype(np.float32)
    if kind == "all_gather":
        return AllGather((count // size,), dtype, 0)
    if kind == "all_to_all":
        return AllToAll((count,), dtype, 0, 0, size)
    return AllReduce((count,), dtype, ADD) if kind == "all_reduce" else ReduceScatter((count,), dtype, ADD, 0)
