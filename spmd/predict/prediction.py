"""`predict`: the predicted step of a program on a machine, for any number of processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collectives.grid import ProcessGrid
from collectives.network import Network
from partitioner import Prices as PartitionerPrices
from spmd.analysis.collectives import DESCRIPTIONS
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import Options
from spmd.compiler.pipeline.prepare import Prepared
from spmd.errors import UsageError
from spmd.ir import Module, Op
from spmd.predict.events import UNKNOWN_TURNS, Footprint, PricedEvent, PricedSchedule, price_schedule
from spmd.predict.machine import Machine
from spmd.predict.timeline import OfNetwork, OneMachine, Timeline, TrafficPrices, timeline
from spmd.support.pictures import picture_of


@dataclass(frozen=True)
class Share:
    """The part of one event on the critical path: its seconds, and its fraction of the step."""

    title: str
    place: str
    seconds: float
    share: float


@dataclass(frozen=True)
class Prediction:
    """A predicted step. Seconds are means over the processes, except the step's own; see `Timeline`."""

    grid: ProcessGrid
    machine: str
    seconds: float
    computing: float
    communicating: float
    hidden: float
    waiting: float
    memory: Footprint
    #: Bytes that all processes send over each level of the network.
    levels: Mapping[str, float]
    #: The critical path by event, the longest first.
    critical: Sequence[Share]
    notes: Sequence[str]
    timeline: Timeline

    def _repr_html_(self) -> str:
        return picture_of(self)

    def to_json(self) -> dict[str, object]:
        """Return the prediction as JSON, in seconds and bytes."""
        return {
            "grid": [self.grid.num_replicas, self.grid.num_partitions],
            "machine": self.machine,
            "seconds": self.seconds,
            "computing": self.computing,
            "communicating": self.communicating,
            "hidden": self.hidden,
            "waiting": self.waiting,
            "memory": {
                "arguments": self.memory.arguments,
                "results": self.memory.results,
                "temporaries": self.memory.temporaries,
            },
            "levels": dict(self.levels),
            "critical": [vars(share) for share in self.critical],
            "notes": list(self.notes),
        }


def prices_of(machine: Machine, network: Network | None, size: int) -> TrafficPrices:
    """Return the cost model of collectives: of the network, or as measured on the machine.

    Raises UsageError for a network with fewer than `size` processes.
    """
    if network is None:
        return OneMachine(machine)
    last = network.levels[-1]
    if last.processes is not None and size > last.processes:
        text = f"level {last.name!r} of the network, the outermost, must have {size:,} processes"
        raise UsageError(f"{text}, got {last.processes:,}")
    return OfNetwork(machine, network)


def predict(
    prepared: Prepared, machine: Machine, network: Network | None = None, turns: int = UNKNOWN_TURNS
) -> Prediction:
    """Return the predicted step of a prepared program (spmd.compiler.pipeline.prepare) on processes of `machine`.

    They are connected by `network`, by default on one machine. `turns` is assumed for unknown trip counts.
    """
    return predict_on(prepared, machine, [network], turns)[0]


def predict_on(
    prepared: Prepared, machine: Machine, networks: Sequence[Network | None], turns: int = UNKNOWN_TURNS
) -> list[Prediction]:
    """Return the predictions for several networks."""
    lowering = ModuleLowering(prepared.module, prepared.options)
    priced = price_schedule(lowering, prepared.function, machine, turns)
    return [predicted(prepared, priced, machine, network) for network in networks]


def predicted(prepared: Prepared, priced: PricedSchedule, machine: Machine, network: Network | None) -> Prediction:
    """Return the prediction for a prepared program whose schedule is already priced."""
    grid = prepared.options.grid
    line = timeline(priced.events, grid.size, prices_of(machine, network, grid.size))
    return Prediction(
        grid,
        machine.name,
        line.seconds,
        float(np.mean(line.computing)),
        float(np.mean(line.communicating)),
        float(np.mean(line.hidden)),
        float(np.mean(line.waiting)),
        priced.footprint,
        dict(zip(line.levels, map(float, line.bytes), strict=True)),
        _shares(line),
        [*priced.notes, *prepared.notes, *_priced_by(priced.events, machine, network)],
        line,
    )


def _priced_by(events: Sequence[PricedEvent], machine: Machine, network: Network | None) -> list[str]:
    """Return notes on which collectives are priced as measured and which by the machine's link."""
    if network is not None or not machine.curves:
        return []
    named: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for collective in (event.collective for event in events if event.collective is not None):
        sizes = {2} if collective.groups is None else {len(group) for group in collective.groups}
        for operation in collective.messages:
            for size in sorted(sizes - {1}):
                is_measured = machine.measured(operation, size) is not None
                named[is_measured][f"{operation.name} of {size} processes"] = None
    ways = {True: "as measured ([[collective]] of the machine's file)", False: "by its messages ([link])"}
    return [f"priced {ways[way]}: {', '.join(each)}" for way, each in named.items() if each]


def partitioner_prices(machine: Machine, network: Network | None = None) -> PartitionerPrices:
    """Return prices for the partitioner's cost model, by the outermost level of a network."""
    link = machine.link if network is None else network.levels[-1]
    return PartitionerPrices(link.latency * link.bandwidth, machine.rates["product"] / link.bandwidth)


def collective_seconds(
    module: Module, grid: ProcessGrid, machine: Machine, network: Network | None = None
) -> Callable[[Op], float]:
    """Return a function that predicts the seconds of a collective op of `module`, the program of one process."""
    lowering = ModuleLowering(module, Options(grid=grid))
    prices = prices_of(machine, network, grid.size)

    def seconds(op: Op) -> float:
        event = PricedEvent(op.name, str(op.location), collective=DESCRIPTIONS[op.name](op, lowering))
        return timeline([event], grid.size, prices).seconds

    return seconds


def _shares(predicted: Timeline) -> list[Share]:
    """Return the critical path summed by event, the longest first."""
    seconds: dict[PricedEvent, float] = {}
    for event, took in predicted.critical_path():
        seconds[event] = seconds.get(event, 0.0) + took
    whole = predicted.seconds or 1.0
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return [Share(event.title, event.place, took, took / whole) for event, took in ordered if took > 0]
