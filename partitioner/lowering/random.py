"""Lowers random number generation: every process computes all bits and keeps its block."""

from __future__ import annotations

from partitioner.lowering.core import Lowering, lowers
from partitioner.sharding import replicated
from spmd.ir import Op
from spmd.types import TensorType


@lowers("stablehlo.rng_bit_generator", "stablehlo.rng")
def rng(lowering: Lowering, op: Op) -> None:
    """Lower random bits as replicated; `rng`, which differs between processes, as those of the first process."""
    operands = [lowering.replicated(value) for value in op.operands]
    layouts = [replicated(lowering.mesh, value.tensor.rank) for value in op.results]
    for value, local, layout in zip(op.results, lowering.clone(op, operands, layouts), layouts, strict=True):
        if op.name == "stablehlo.rng" and isinstance(value.type, TensorType):
            axes = tuple(range(len(lowering.mesh.sub_axes)))
            emitter = lowering.emitter
            first = emitter.is_first(axes)
            zero = emitter.splat(0, local.tensor)
            local = emitter.select(emitter.broadcast(first, local.tensor.shape), local, zero)
            name = "stablehlo.or" if str(local.tensor.element_type) == "i1" else "stablehlo.add"
            local = emitter.all_reduce(local, axes, name)
        lowering.set(value, local, layout)
