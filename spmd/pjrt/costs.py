"""What a program computes, moves and takes, by its schedule and its prices: compiled.cost_analysis() of JAX.

The names are those of XLA's analysis (xla/service/hlo_cost_analysis.h), as far as there is such a thing here.
"""

from __future__ import annotations

from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.prepare import Prepared
from spmd.predict.events import Footprint, PricedSchedule, price_schedule
from spmd.predict.machine import default_machine
from spmd.predict.prediction import predicted

#: The kinds of work that compute (spmd.compiler.schedule.costs.Work); others look up, compare or move.
_COMPUTING = ("elementwise", "division", "function", "product", "solve", "fft")


class Costs:
    """The costs of a program of one process, on the machine that $SPMD_MACHINE names, or a nominal one."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._machine = default_machine()
        lowering = ModuleLowering(prepared.module, prepared.options)
        self._priced: PricedSchedule = price_schedule(lowering, prepared.function, self._machine)

    @property
    def memory(self) -> Footprint:
        """The bytes of arguments, of results, and of what lies beside them."""
        return self._priced.footprint

    def by_name(self) -> dict[str, float]:
        """Return additions and multiplications (of functions what takes as long), bytes, and seconds of a run."""
        events = self._priced.events
        work = [(event.turns, each) for event in events for each in event.work if each.kind in _COMPUTING]
        return {
            "flops": float(sum(turns * each.amount for turns, each in work)),
            "bytes accessed": float(sum(event.turns * event.moved for event in events)),
            "optimal_seconds": predicted(self._prepared, self._priced, self._machine, None).seconds,
        }
