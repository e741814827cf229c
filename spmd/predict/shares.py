"""How the time of a unit of several ops is divided over them: an estimate, by what each would compute by itself."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.compiler.schedule.costs import bytes_of, work_as_unit
from spmd.ir import Op
from spmd.predict.machine import Machine


def shares(ops: Sequence[Op], machine: Machine) -> list[float]:
    """Return the part of each of `ops` in the time of a unit of them: 1 in all.

    Parts are as the seconds that the ops compute by themselves on `machine`; of ops that compute nothing, as the bytes
    of their results.
    """
    if len(ops) == 1:
        return [1.0]
    seconds = [sum(map(machine.seconds, work_as_unit(op))) for op in ops]
    weights = seconds if any(seconds) else [float(sum(map(bytes_of, op.results))) for op in ops]
    total = sum(weights)
    return [weight / total if total else 1.0 / len(ops) for weight in weights]
