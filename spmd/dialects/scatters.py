"""Semantics of scatter updates whose window is partly out of bounds.

By the specification, elements of an update are independent: those out of bounds are ignored, others are written. XLA
ignores the complete update, on which programs of JAX and PyTorch/XLA rely (`x.at[3:].set(y)` with a run-time start,
`mode="drop"`). Both are supported: scatters in programs from XLA's frontends, and in HLO text, are marked as ignoring
complete windows. All others follow the specification, including those of XlaBuilder, as XLA's operation semantics say.
A program is from a frontend if the module, a function, its arguments or results have an attribute of the `jax` dialect,
or the module has one of `mhlo` other than the number of replicas and partitions (the process grid, which hand-written
programs declare, too) and frontend_attributes, which have no semantics.
Source: StableHLO specification, "scatter"; XLA's operation semantics, "Scatter".
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.ir import Module, Op
from spmd.ir.attributes import UnitAttr

SCATTER = "stablehlo.scatter"
#: The mark of a scatter that ignores complete windows.
WHOLE_WINDOWS = "spmd.whole_windows"
_JAX, _MHLO = "jax.", "mhlo."
#: Attributes that do not identify the producer: the process grid, and frontends' own data.
_NO_SIGN = frozenset(("mhlo.num_replicas", "mhlo.num_partitions", "mhlo.frontend_attributes"))


def is_of_xla(module: Module) -> bool:
    """Return whether one of XLA's frontends made the program."""
    if any(name.startswith((_JAX, _MHLO)) and name not in _NO_SIGN for name in module.discardable):
        return True
    return any(
        name.startswith(_JAX)
        for function in module.functions
        for names in (function.discardable, *function.argument_attributes, *function.result_attributes)
        for name in names
    )


def drops_whole_windows(op: Op) -> bool:
    """Return whether a scatter ignores an update if any of its elements is out of bounds."""
    return WHOLE_WINDOWS in op.discardable


def mark_whole_windows(op: Op) -> None:
    """Mark a scatter as ignoring complete windows, if windows may be partly out of bounds."""
    if has_wide_windows(op):
        op.discardable = {**op.discardable, WHOLE_WINDOWS: UnitAttr()}


def has_wide_windows(op: Op) -> bool:
    """Return whether windows have several elements along an indexed dimension.

    Only those may be partly out of bounds, or overlap such that the order of updates is not that of indices.
    """
    numbers = op["scatter_dimension_numbers"]
    sizes = dict(zip(_windowed(op), _window_shape(op), strict=True))
    return any(sizes.get(dimension, 1) != 1 for dimension in numbers.scatter_dims_to_operand_dims)


def update_order(op: Op) -> Sequence[int]:
    """Return the dimensions of the updates, slowest first, in the order in which updates are applied.

    Updates are applied window by window, as in XLA, or row by row if that is equivalent.
    """
    windows = op["scatter_dimension_numbers"].update_window_dims
    rank = op.operands[-1].tensor.rank
    if not has_wide_windows(op):
        return range(rank)
    return [*(d for d in range(rank) if d not in windows), *sorted(windows)]


def _windowed(op: Op) -> list[int]:
    """Return the operand's window dimensions."""
    numbers = op["scatter_dimension_numbers"]
    absent = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    return [d for d in range(op.operands[0].tensor.rank) if d not in absent]


def _window_shape(op: Op) -> list[int | None]:
    numbers = op["scatter_dimension_numbers"]
    return [op.operands[-1].tensor.shape[d] for d in sorted(numbers.update_window_dims)]
