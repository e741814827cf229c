"""A program as data for a page, in JSON; numbers are indices into its tables."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

from collectives.network import Network
from spmd.analysis.grid import grid_of
from spmd.analysis.shardings import is_sharded
from spmd.compiler.schedule.costs import bytes_of
from spmd.ir import Value
from spmd.version import __version__
from spmd.viewing import memory, timing
from spmd.viewing.callers import Callers
from spmd.viewing.communication import CommunicationTable, find_collectives
from spmd.viewing.layouts import Layouts
from spmd.viewing.places import LocationTable
from spmd.viewing.profile import read_profile
from spmd.viewing.program import Origins, ProgramTables
from spmd.viewing.subject import Subject
from spmd.viewing.tables import Json, Texts, short
from spmd.viewing.values import run_steps

if TYPE_CHECKING:
    from partitioner.sharding import ShardedType


def document(
    subject: Subject, *, profile: str | PathLike[str] | None = None, seed: int | None = None
) -> dict[str, Json]:
    """Return the data for all panels of one program.

    `profile` is the trace of a run; with a `seed`, the program is run on arguments that it generates.
    """
    texts = Texts()
    places = LocationTable(subject.module, texts)
    layouts = Layouts(texts, places, subject.record)
    prepared = subject.prepared
    entry = prepared.function
    kept = {each.symbol for each in prepared.module.functions}
    callers = Callers(subject.module, entry.symbol, kept, places)
    program = ProgramTables(texts, places, layouts, subject.record, callers)
    program.add_functions(entry, prepared.module.functions)
    results = program.results(entry)
    program.lay_out(range(len(entry.body.arguments)), prepared.in_shardings)
    program.lay_out(results, prepared.out_shardings)
    found: dict[str, Json] = {
        "spmd": __version__,
        "title": short(subject.title),
        "function": texts.of(entry.symbol),
        "results": results,
        "in": _boundary(layouts, texts, prepared.in_shardings, entry.body.arguments),
        "out": _boundary(layouts, texts, prepared.out_shardings, entry.body.terminator.operands),
        "units": [],
        "timeline": None,
        "memory": None,
        "prediction": None,
        "measured": None,
        "run": None,
    }
    origins = Origins(program)
    found["collectives"], groups = _communication(subject, program, origins)
    _add_schedule(found, subject, program, origins)
    if profile is not None:
        found["measured"] = read_profile(profile, texts)
    found["span"] = timing.span(found["timeline"], found["measured"])
    if seed is not None:
        found["run"] = run_steps(subject, program, seed)
    if any(value[2] is None and value[3] for value in program.values):
        subject.notes.append("values with dynamic shapes are assumed to take no memory and no time")
    return found | {
        "grid": _grid(subject, layouts),
        "ops": program.ops,
        "values": program.values,
        "scopes": program.scopes,
        "reshards": program.reshards,
        "groups": groups,
        "globals": layouts.globals.entries,
        "shardings": layouts.shardings.entries,
        "meshes": layouts.meshes.entries,
        "places": places.entries,
        "sources": places.sources(),
        "texts": texts.entries,
        "notes": [short(note) for note in subject.notes],
    }


def _communication(subject: Subject, program: ProgramTables, origins: Origins) -> tuple[list[Json], list[Json]]:
    table = CommunicationTable(subject.grid.size, program, origins)
    prediction, flat = subject.prediction, subject.flat
    if flat is not None:
        timeline = prediction.timeline if prediction is not None else None
        found = subject.tried("no communication", lambda: list(find_collectives(subject.lowering, flat.body)))
        table.add(found or (), timeline)
    return table.entries, table.groups.entries


def _add_schedule(found: dict[str, Json], subject: Subject, program: ProgramTables, origins: Origins) -> None:
    prediction, priced = subject.prediction, subject.priced
    if prediction is not None:
        content = prediction.to_json()
        found["prediction"] = {name: value for name, value in content.items() if name not in ("critical", "notes")}
        subject.notes += [note for note in prediction.notes if note not in subject.notes]
        found["units"] = timing.units(prediction, subject.machine, program.texts, origins)
        found["timeline"] = timing.timeline(prediction)
    if priced is not None:
        lowering = subject.lowering
        schedule = lowering.schedule(priced.function.body)
        found["memory"] = memory.memory(schedule, lowering.schedule, program, origins) | {
            "footprint": vars(priced.footprint),
            "arguments": [bytes_of(value) for value in priced.function.body.arguments],
            "results": [bytes_of(value) for value in priced.function.body.terminator.operands],
        }


def _boundary(
    layouts: Layouts, texts: Texts, sharded: Sequence[ShardedType] | None, values: Sequence[Value]
) -> list[Json]:
    """Return [global type, sharding, type of a block] of each argument or result."""
    if sharded is None:
        return [[texts.of(str(value.type)), -1, texts.of(str(value.type))] for value in values]
    return [
        [texts.of(str(each.type)), layouts.sharding(each.sharding), texts.of(str(each.local_type))] for each in sharded
    ]


def _grid(subject: Subject, layouts: Layouts) -> dict[str, Json]:
    grid, record = subject.grid, subject.record
    mesh = record.mesh if record is not None else None
    if mesh is None and subject.prepared.in_shardings:
        shardings = [each.sharding for each in subject.prepared.in_shardings if each.sharding is not None]
        mesh = shardings[0].mesh if shardings else None
    return {
        "replicas": grid.num_replicas,
        "partitions": grid.num_partitions,
        "size": grid.size,
        "mesh": -1 if mesh is None else layouts.mesh(mesh),
        "sharded": is_sharded(subject.module),
        "declared": str(grid_of(subject.module)),
        "machine": short(subject.machine.name),
        "levels": _levels(subject.network),
    }


def _levels(network: Network | None) -> list[Json]:
    """Return the levels of a network, innermost first: [name, processes (None: all), latency, bandwidth, uplink]."""
    levels = network.levels if network is not None else ()
    return [[short(each.name), each.processes, each.latency, each.bandwidth, each.uplink] for each in levels]
