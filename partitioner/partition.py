"""The entry point: from a global program to the program of one process."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.grid import ProcessGrid
from partitioner.core import Partitioned
from partitioner.lowering.assembly import assemble
from partitioner.manual import is_single_device, manual_body, manual_program, single_device_program
from partitioner.processes import devices_of, processes_of
from partitioner.program import import_program
from partitioner.propagation import propagate
from partitioner.reading import ShardingReader
from partitioner.record import PartitionRecord
from spmd.dialects.sdy_verify import verify_shardings
from spmd.errors import CompileError, Diagnostic, VerificationError
from spmd.ir import Function, Module
from spmd.support.recursion_guard import within_stack


def partition(
    module: Module,
    grid: ProcessGrid | None = None,
    function: str = "main",
    *,
    axis_priority: Sequence[str] = (),
    propagate_layouts: bool = True,
    conservative: bool = False,
    whole_boundary: bool = False,
    even_boundary: bool = False,
    record: PartitionRecord | None = None,
) -> Partitioned:
    """Return the program of one process for `function` of `module`, whose shardings refer to the processes of `grid`.

    The devices of the mesh are the partitions of each replica or, on a grid of one partition, the replicas.

    axis_priority      mesh axes in the order in which they are propagated
    propagate_layouts  whether to propagate; otherwise values without annotation are replicated
    conservative       whether to propagate less (partitioner.propagation)
    whole_boundary     whether arguments and results without annotation are replicated
    even_boundary      whether arguments and results are sharded into equal blocks along full axes only
    record             collects the decisions and their reasons

    Raises VerificationError for shardings that break a constraint, CompileError for a mesh that does not fit the grid.
    """
    entry = _function(module, function)
    reader = _reader(module, entry, grid)
    processes = processes_of(module, grid, reader.mesh.size)
    if processes is None:
        assert grid is not None
        where = next((op for op in module.body.ops if op.name == "sdy.mesh"), module)
        size = reader.mesh.size
        fitting = f"a {grid.num_replicas}x{size} grid fits"
        text = f"the grid must have the mesh's {size} devices as partitions, got {grid.num_partitions}: {fitting}"
        raise CompileError(Diagnostic(where.location, text, where.name))
    computation = manual_body(entry, reader)
    if computation is not None:
        return manual_program(module, entry, computation, reader, processes)
    if is_single_device(module, reader):
        return single_device_program(module, entry, reader, processes)
    with within_stack(CompileError, entry.location, f"@{function}"):
        program = import_program(module, entry, reader, whole_boundary=whole_boundary)
        layouts = propagate(
            program,
            reader,
            axis_priority,
            only_annotated=not propagate_layouts,
            conservative=conservative,
            record=record,
        )
        return assemble(module, program, reader, layouts, processes, record, even_boundary=even_boundary)


def grid_of_mesh(module: Module, function: str = "main") -> ProcessGrid:
    """Return the grid for `function` of a module that declares one process: the mesh's devices as partitions.

    Raises VerificationError for shardings that break a constraint.
    """
    return ProcessGrid(1, _reader(module, _function(module, function), None).mesh.size)


def _reader(module: Module, function: Function, grid: ProcessGrid | None) -> ShardingReader:
    faults = list(verify_shardings(module))
    if faults:
        raise VerificationError(faults)
    return ShardingReader(module, function, devices_of(module, grid))


def _function(module: Module, name: str) -> Function:
    try:
        return module.function(name)
    except KeyError as error:
        raise CompileError(Diagnostic(module.location, str(error.args[0]), module.name)) from None
