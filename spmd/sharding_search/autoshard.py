"""`autoshard`: a program with shardings that were searched for."""

from __future__ import annotations

from collections.abc import Mapping
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
from spmd.sharding_search.plan import Plan, make_plan, too_large
from spmd.sharding_search.search import Search
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
) -> tuple[Module, Plan]:
    """`module` laid out over a mesh as is predicted to be the fastest, and what was chosen.

    The module that is given back has `sdy.sharding` on the arguments and results of `function`, and on those values
    inside that propagation would lay out in another way; what the program lays out itself stays so. Layouts are
    priced as `spmd predict` does, after the partitioner; the search is deterministic.

    :param mesh: sizes of the axes by name, major first, such as {"data": 8, "model": 4}.
    :param memory: bytes that a process has, a number or a text such as "16GB".
    :param topology: the network, or the file that describes it (spmd.predict.topology); by default $SPMD_TOPOLOGY, or
        one machine.
    :param machine: the machine, or the file that `spmd calibrate` wrote; by default $SPMD_MACHINE, or a nominal core.
    :returns: the module, and the plan: `plan.explain()` is a page of text.
    :raises CompileError: where no layout that takes so little memory is found, with what the smallest takes; and for a
        program with shardings over another mesh.
    :raises UsageError: for a mesh, memory, topology or machine that is none.
    """
    check_module(module, _TAKER)
    check_function(function, _TAKER)
    axes = checked_mesh(mesh)
    limit = checked_memory(memory)
    known = _machine(machine)
    network = _network(topology, known)
    entry = find_function(module, function)
    check_meaning(module)
    search = Search(module, function, mesh_op_of(module, axes), known, network, limit)
    best = search.run()
    if best is None:
        assert limit is not None
        text = too_large(entry, axes, search.priced[0], limit)
        raise CompileError(Diagnostic(entry.location, text, entry.name))
    plan = make_plan(entry, axes, best, search.priced, limit)
    return annotated(module, search.mesh, best.layout, function), plan


def checked_mesh(mesh: object) -> dict[str, int]:
    """Return a mesh as a dictionary; UsageError for what is no mapping of names to sizes."""
    if not isinstance(mesh, Mapping) or not mesh:
        raise UsageError(f'mesh is a mapping of names to sizes, such as {{"data": 8, "model": 4}}, got {mesh!r}')
    for name, size in mesh.items():
        if not isinstance(name, str) or not name or isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"mesh gives a name its size, an integer from 1 on, got {name!r}: {size!r}")
    if prod(mesh.values()) < 2:
        raise UsageError(f"mesh has one process: there is nothing to lay out, got {dict(mesh)!r}")
    return dict(mesh)


def checked_memory(memory: object) -> float | None:
    """Bytes; UsageError for what is no number of bytes."""
    if memory is None:
        return None
    found = read_amount(memory) if isinstance(memory, str) else memory
    if isinstance(found, bool) or not isinstance(found, int | float) or not found > 0:
        raise UsageError(f'memory is a positive number of bytes, or a text such as "16GB", got {memory!r}')
    return float(found)


def _machine(machine: object) -> Machine:
    if machine is None:
        return default_machine()
    if isinstance(machine, str | PathLike):
        return read_machine(fspath(machine))
    if not isinstance(machine, Machine):
        raise UsageError(f"machine is a file that spmd calibrate wrote, got {kind_of(machine)}")
    return machine


def _network(topology: object, machine: Machine) -> Network | None:
    if topology is None:
        return default_network(machine)
    if isinstance(topology, str | PathLike):
        return read_topology(fspath(topology), machine.rates["folding"])
    if not isinstance(topology, Network):
        raise UsageError(f"topology is a file that describes a network, got {kind_of(topology)}")
    return topology
