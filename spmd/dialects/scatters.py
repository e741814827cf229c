"""What becomes of a scatter's update whose window lies partly outside of the operand.

By the specification each element of an update is told apart: one whose place is outside is left out, its neighbours
are written. XLA leaves out the whole update, and what JAX and PyTorch/XLA lower relies on it
(`x.at[3:].set(y)` with a start known at run time, `mode="drop"`). Both hold: a scatter of a program that XLA's front
ends have made is marked as one that leaves out whole windows, and so are those of HLO text. All others are the
specification's, those of XlaBuilder too, as XLA's operation semantics say. Of front ends, an attribute of the `jax`
dialect on the module, a function, its arguments or results is a sign, and one of `mhlo` on the module, but for the
number of replicas and partitions (the process grid, which programs written by hand declare as well) and
frontend_attributes, which change no meaning.
Source: StableHLO specification, "scatter"; XLA's operation semantics, "Scatter".
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.ir import Module, Op
from spmd.ir.attributes import UnitAttr

SCATTER = "stablehlo.scatter"
#: The mark of a scatter that leaves out whole windows.
WHOLE_WINDOWS = "spmd.whole_windows"
_JAX, _MHLO = "jax.", "mhlo."
#: Attributes that say nothing of who made a program: its process grid, and what front ends keep in it for themselves.
_NO_SIGN = frozenset(("mhlo.num_replicas", "mhlo.num_partitions", "mhlo.frontend_attributes"))


def is_of_xla(module: Module) -> bool:
    """Return whether one of XLA's front ends has made the program."""
    if any(name.startswith((_JAX, _MHLO)) and name not in _NO_SIGN for name in module.discardable):
        return True
    return any(
        name.startswith(_JAX)
        for function in module.functions
        for names in (function.discardable, *function.argument_attributes, *function.result_attributes)
        for name in names
    )


def drops_whole_windows(op: Op) -> bool:
    """Return whether a scatter leaves out an update of which any element lies outside of the operand."""
    return WHOLE_WINDOWS in op.discardable


def mark_whole_windows(op: Op) -> None:
    """Has a scatter leave out whole windows, if some of them may lie partly outside."""
    if has_wide_windows(op):
        op.discardable = {**op.discardable, WHOLE_WINDOWS: UnitAttr()}


def has_wide_windows(op: Op) -> bool:
    """Return whether windows have several elements along a dimension that indices count.

    Only those may be partly outside, and only they may overlap so that the order of updates is not that of indices.
    """
    numbers = op["scatter_dimension_numbers"]
    sizes = dict(zip(_windowed(op), _window_shape(op), strict=True))
    return any(sizes.get(dimension, 1) != 1 for dimension in numbers.scatter_dims_to_operand_dims)


def update_order(op: Op) -> Sequence[int]:
    """Return the dimensions of the updates from the slowest to the fastest, in the order in which updates are done.

    Window by window, as XLA does; row by row where that is the same.
    """
    windows = op["scatter_dimension_numbers"].update_window_dims
    rank = op.operands[-1].tensor.rank
    if not has_wide_windows(op):
        return range(rank)
    return [*(d for d in range(rank) if d not in windows), *sorted(windows)]


def _windowed(op: Op) -> list[int]:
    """Return the operand's dimensions that updates have."""
    numbers = op["scatter_dimension_numbers"]
    absent = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    return [d for d in range(op.operands[0].tensor.rank) if d not in absent]


def _window_shape(op: Op) -> list[int | None]:
    numbers = op["scatter_dimension_numbers"]
    return [op.operands[-1].tensor.shape[d] for d in sorted(numbers.update_window_dims)]
