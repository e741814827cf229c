"""Reads network descriptions, which consist of levels.

name = "a cluster"
[[level]]
name = "node"             # from the innermost level to the outermost
processes = 8             # of one unit; the outermost level needs none
latency = 1e-6            # seconds a message
bandwidth = 1e10          # bytes a second from one process to another
algorithm = "ring"        # or tree, recursive_halving, hierarchical
[[level]]
name = "rack"
latency = 4e-6
bandwidth = 1.2e10
uplink = 2.5e10           # bytes a second that all processes of a node share
algorithm = "hierarchical"
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from collectives.algorithms import ALGORITHMS
from collectives.network import HIERARCHICAL, Level, Network
from spmd.errors import UsageError
from spmd.predict.machine import Machine
from spmd.predict.tables import FileTable


def read_topology(path: str | Path, folding: float) -> Network:
    """Return the network in the file at `path`; `folding` as in Network.

    Raises UsageError for an invalid entry, or if levels are not nested.
    """
    table = FileTable.read(path)
    if "name" in table.entries:
        table.text("name")
    levels = tuple(map(_level, table.tables("level")))
    if not levels:
        raise table.fault("level", "tables, [[level]], at least one")
    table.done()
    for inner, outer in pairwise(levels):
        if inner.processes is None or (outer.processes is not None and outer.processes % inner.processes):
            text = f"processes must be a multiple of those of {inner.name!r}, the previous level"
            raise UsageError(f"{table.where}: level {outer.name!r}: {text}")
    return Network(levels, folding)


def default_network(machine: Machine) -> Network | None:
    """Return the network of the file $SPMD_TOPOLOGY; None, for a single machine, if it is not set."""
    path = os.environ.get("SPMD_TOPOLOGY")
    return read_topology(path, machine.rates["folding"]) if path else None


def _level(table: FileTable) -> Level:
    level = Level(
        table.text("name"),
        table.optional_count("processes"),
        table.number("latency"),
        table.number("bandwidth"),
        table.text("algorithm", (*ALGORITHMS, HIERARCHICAL)),
        table.optional_number("uplink"),
    )
    table.done()
    return level
