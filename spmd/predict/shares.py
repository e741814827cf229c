"""Divides the time of a unit among its ops: an estimate, by the time of each op by itself."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.compiler.schedule.costs import bytes_of, work_as_unit
from spmd.ir import Op
from spmd.predict.machine import Machine


def shares(ops: Sequence[Op], machine: Machine) -> list[float]:
    """Return the fraction of a unit's time for each of its `ops`; their sum is 1.

    Fractions are proportional to the ops' seconds by themselves on `machine`; if none computes, to the bytes of their
    results.
    """
    if len(ops) == 1:
        return [1.0]
    seconds = [sum(map(machine.seconds, work_as_unit(op))) for op in ops]
    weights = seconds if any(seconds) else [float(sum(map(bytes_of, op.results))) for op in ops]
    total = sum(weights)
    return [weight / total if total else 1.0 / len(ops) for weight in weights]
