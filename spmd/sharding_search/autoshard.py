"""`autoshard`: finds shardings for a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from os import PathLike, fspath

from collectives.network import Network
from spmd.compiler.pipeline.prepare import find_function
from spmd.compiler.pipeline.verify import check_meaning
from spmd.errors import CompileError, Diagnostic, UsageError
from spmd.ir import Module
from spmd.predict.machine import Machine, default_machine, read_machine
from spmd.predict.topology import default_network, read_topology
from spmd.sharding_search.layouts import annotated, mesh_op_of
from spmd.sharding_search.plan import ShardingPlan, make_plan, too_large
from spmd.sharding_search.search import ShardingSearch
from spmd.support.amounts import read_amount
from spmd.support.usage import check_function, check_module, kind_of

_TAKER = "spmd.autoshard"


def autoshard(
    module: Module,
    *,
    mesh: Mapping[str, int],
    memory: float | str | None = None,
    topology: str | PathLike[str] | Network | None = None,
    machine: str | PathLike[str] | Machine | None = None,
    function: str = "main",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Module, ShardingPlan]:
    """Return `module` with the shardings over `mesh` that are predicted to be fastest, and the plan.

    The module has `sdy.sharding` on the arguments and results of `function`, and on inner values that propagation would
    shard differently; existing annotations are kept. Candidates are partitioned and priced as by `spmd predict`; the
    search is deterministic.

    :param mesh: sizes of the axes by name, major first, such as {"data": 8, "model": 4}.
    :param memory: memory of a process in bytes, a number or a text such as "16GB".
    :param topology: the network, or the file that describes it (spmd.predict.topology); by default $SPMD_TOPOLOGY, or
        one machine.
    :param machine: the machine, or the file that `spmd calibrate` wrote; by default $SPMD_MACHINE, or a nominal core.
    :param progress: is called with the number of each layout before it is priced, from 1, and the largest number.
    :returns: the module, and the plan: `plan.explain()` is a page of text.
    :raises CompileError: if no layout fits the memory (the message names what the smallest needs), or if the program
        has shardings over another mesh.
    :raises UsageError: for an invalid mesh, memory, topology or machine.
    """
    check_module(module, _TAKER)
    check_function(function, _TAKER)
    axes = checked_mesh(mesh)
    limit = checked_memory(memory)
    known = _machine(machine)
    network = _network(topology, known)
    entry = find_function(module, function)
    check_meaning(module)
    search = ShardingSearch(module, function, mesh_op_of(module, axes), known, network, limit, progress)
    best = search.run()
    if best is None:
        assert limit is not None
        text = too_large(entry, axes, search.priced[0], limit)
        raise CompileError(Diagnostic(entry.location, text, entry.name))
    plan = make_plan(entry, axes, best, search.priced, limit)
    return annotated(module, search.mesh, best.layout, function), plan


def checked_mesh(mesh: object) -> dict[str, int]:
    """Return a mesh as a dictionary; raises UsageError unless it maps names to sizes and has several processes."""
    if not isinstance(mesh, Mapping) or not mesh:
        raise UsageError(f'mesh must be a mapping of names to sizes, such as {{"data": 8, "model": 4}}, got {mesh!r}')
    for name, size in mesh.items():
        if not isinstance(name, str) or not name or isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"sizes in mesh must be positive integers by name, got {name!r}: {size!r}")
    if prod(mesh.values()) < 2:
        raise UsageError(f"mesh must have at least two processes, got {dict(mesh)!r}")
    return dict(mesh)


def checked_memory(memory: object) -> float | None:
    """Return a number of bytes; raises UsageError for anything else."""
    if memory is None:
        return None
    found = read_amount(memory) if isinstance(memory, str) else memory
    if isinstance(found, bool) or not isinstance(found, int | float) or not found > 0:
        raise UsageError(f'memory must be a positive number of bytes, or a text such as "16GB", got {memory!r}')
    return float(found)


def _machine(machine: object) -> Machine:
    if machine is None:
        return default_machine()
    if isinstance(machine, str | PathLike):
        return read_machine(fspath(machine))
    if not isinstance(machine, Machine):
        raise UsageError(f"machine must be a file written by spmd calibrate, or a Machine, got {kind_of(machine)}")
    return machine


def _network(topology: object, machine: Machine) -> Network | None:
    if topology is None:
        return default_network(machine)
    if isinstance(topology, str | PathLike):
        return read_topology(fspath(topology), machine.rates["folding"])
    if not isinstance(topology, Network):
        raise UsageError(f"topology must be a file that describes a network, or a Network, got {kind_of(topology)}")
    return topology
