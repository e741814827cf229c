"""The process grid that a module declares."""

from __future__ import annotations

from collectives.errors import GroupError
from collectives.grid import ProcessGrid
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Module
from spmd.ir.attributes import IntegerAttr


def grid_of(module: Module) -> ProcessGrid:
    """Return the module's own grid: `mhlo.num_replicas` by `mhlo.num_partitions`, 1 where absent."""
    counts = []
    for name in ("mhlo.num_replicas", "mhlo.num_partitions"):
        attribute = module.discardable.get(name)
        if attribute is not None and (not isinstance(attribute, IntegerAttr) or attribute.value < 1):
            raise CompileError(Diagnostic(module.location, f"{name} must be a positive integer", module.name))
        counts.append(attribute.value if isinstance(attribute, IntegerAttr) else 1)
    try:
        return ProcessGrid(*counts)
    except GroupError as error:
        raise CompileError(
            Diagnostic(module.location, f"mhlo.num_replicas, mhlo.num_partitions: {error}", module.name)
        ) from None
