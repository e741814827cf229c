"""Sliding windows. Source: StableHLO specification, "reduce_window" and "select_and_scatter"."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from spmd.dialects.shapes import dilated, window_count
from spmd.ir import Op


@dataclass(frozen=True)
class Windows:
    """Windows over a padded and dilated array: sizes, strides, dilations and padding per dimension."""

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    base_dilations: tuple[int, ...]
    window_dilations: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]

    @property
    def rank(self) -> int:
        """The rank of the array."""
        return len(self.shape)

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """The shape of the array after dilation and padding."""
        return tuple(
            max(0, low + dilated(size, dilation) + high)
            for size, dilation, (low, high) in zip(self.shape, self.base_dilations, self.padding, strict=True)
        )

    @property
    def reaches(self) -> tuple[int, ...]:
        """The extents of windows, with their dilation."""
        return tuple(map(dilated, self.sizes, self.window_dilations))

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of windows along each dimension."""
        return tuple(map(window_count, self.padded_shape, self.reaches, self.strides))

    @property
    def is_padded(self) -> bool:
        """Whether the array is padded or dilated."""
        return any(low or high for low, high in self.padding) or any(step != 1 for step in self.base_dilations)

    def passes(self, axis: int) -> bool:
        """Return whether windows are trivial along `axis`: size and stride 1, neither padding nor dilation."""
        return self.sizes[axis] == self.strides[axis] == self.base_dilations[axis] == 1 and not any(self.padding[axis])

    def places(self) -> list[tuple[slice, ...]]:
        """Return, for each offset within a window in row-major order, the slice of all windows' elements."""
        return [
            tuple(
                slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride) if count else slice(0, 0)
                for k, dilation, count, stride in zip(
                    place, self.window_dilations, self.counts, self.strides, strict=True
                )
            )
            for place in product(*map(range, self.sizes))
        ]

    def cumulative_axis(self) -> tuple[int, bool] | None:
        """Return (axis, backwards) if each window holds all elements up to its own, or all from it on; else None.

        Reductions of such windows are cumulative: a cumulative sum, product or maximum.
        """
        wide = [axis for axis in range(self.rank) if self.sizes[axis] != 1]
        plain = all(step == 1 for step in (*self.strides, *self.base_dilations, *self.window_dilations))
        if len(wide) != 1 or not plain or any(any(pair) for k, pair in enumerate(self.padding) if k != wide[0]):
            return None
        (axis,) = wide
        low, high = self.padding[axis]
        if self.sizes[axis] < self.shape[axis] or not self.shape[axis]:
            return None
        if (low, high) == (self.sizes[axis] - 1, 0):
            return axis, False
        return (axis, True) if (low, high) == (0, self.sizes[axis] - 1) else None


def windows_of(op: Op) -> Windows:
    """Return the windows of a reduce_window or select_and_scatter of static shape, defaults filled in."""
    shape = op.operands[0].tensor.static_shape
    ones = (1,) * len(shape)

    def per_dimension(name: str) -> tuple[int, ...]:
        value = op[name] if op.definition is not None and name in op.definition.attribute_table else None
        return ones if value is None else tuple(value)

    padding = op["padding"]
    pairs = ((0, 0),) * len(shape) if padding is None else tuple((int(low), int(high)) for low, high in padding)
    return Windows(
        shape,
        per_dimension("window_dimensions"),
        per_dimension("window_strides"),
        per_dimension("base_dilations"),
        per_dimension("window_dilations"),
        pairs,
    )
