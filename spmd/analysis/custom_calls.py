"""What is known of the targets of custom calls."""

from __future__ import annotations

#: Targets that give their operand back: hints on where values lie.
HINTS = frozenset(
    {
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.LocalToGlobalShape",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.PropagationBarrier",
        "LayoutConstraint",
        "MoveToHost",
        "MoveToDevice",
        "annotate_device_placement",
        "AssumeGatherIndicesInBound",
        "AssumeReplicated",
        "Pin",
        "Unpin",
        "OptimizationBarrier",
    }
)

#: What JAX's pure_callback, io_callback and debug callbacks lower to; spmd.jax gives each a target of its own.
PYTHON_CALLBACK = "xla_ffi_python_cpu_callback"

_BATCHES: set[str] = set(HINTS)


def declare_batch(target: str, *, takes: bool = True) -> None:
    """Says whether `target` takes operands that all have one more leading dimension, as its results then have."""
    (_BATCHES.add if takes else _BATCHES.discard)(target)


def takes_batch(target: str) -> bool:
    """Whether one call of `target` may do the work of several: operands and results have a leading axis more."""
    return target in _BATCHES
