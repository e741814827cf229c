"""The ends of channels of send and recv without pairs of processes."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.channels import Channels
from spmd.analysis.process_groups import channel_id
from spmd.errors import CollectiveError
from spmd.ir import Module
from spmd.runtime.process import Process


def endpoints(module: Module, function: str) -> tuple[set[int], set[int]]:
    """Return the channels on which a program sends, and those it receives from, without source_target_pairs."""
    sends: set[int] = set()
    receives: set[int] = set()
    functions = {each.symbol: each for each in module.functions}
    seen: set[str] = set()
    pending = [function]
    while pending:
        symbol = pending.pop()
        if symbol in seen or symbol not in functions:
            continue
        seen.add(symbol)
        for op in functions[symbol].walk():
            if op.name in ("func.call", "stablehlo.composite"):
                pending += [str(value) for value in op.attributes.values() if isinstance(value, str)]
            pairs = op.attributes.get("source_target_pairs")
            if op.name in ("stablehlo.send", "stablehlo.recv") and (pairs is None or not pairs.size):
                (sends if op.name == "stablehlo.send" else receives).add(channel_id(op))
    return sends, receives


def connect(process: Process, sends: Sequence[set[int]], receives: Sequence[set[int]]) -> None:
    """Give `process` the peers of each channel; CollectiveError for a channel with a missing end."""
    channels = Channels(sends, receives)
    faults = channels.faults()
    if faults:
        raise CollectiveError("\n".join(faults))
    process.bound[Channels] = channels
