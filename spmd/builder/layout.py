"""Memory layouts of arrays: dimension order and padding.

Source: "Shapes and Layout" of the TensorFlow compiler framework document (minor_to_major, padded_dimensions,
padding_value).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from spmd.support.arrays import Array, DType, extreme


class PaddingValue(enum.Enum):
    """The value of a layout's padding elements."""

    ZERO_PAD = 1
    ONE_PAD = 2
    LOWEST_PAD = 3
    HIGHEST_PAD = 4


@dataclass(frozen=True)
class Layout:
    """A layout: `minor_to_major` lists the dimensions from the fastest varying in memory to the slowest.

    `padded_dimensions`, if not empty, gives the padded size of every dimension, in increasing dimension
    number; `padding_value` is a PaddingValue or the number in the padding elements.

    Raises ValueError if minor_to_major is not a permutation, or padded_dimensions has another rank.
    """

    minor_to_major: tuple[int, ...]
    padded_dimensions: tuple[int, ...] = ()
    padding_value: PaddingValue | float | None = None

    def __init__(
        self,
        minor_to_major: Sequence[int],
        padded_dimensions: Sequence[int] = (),
        padding_value: PaddingValue | float | None = None,
    ) -> None:
        object.__setattr__(self, "minor_to_major", tuple(int(d) for d in minor_to_major))
        object.__setattr__(self, "padded_dimensions", tuple(int(d) for d in padded_dimensions))
        object.__setattr__(self, "padding_value", padding_value)
        rank = len(self.minor_to_major)
        if sorted(self.minor_to_major) != list(range(rank)):
            raise ValueError(
                f"layout: minor_to_major {list(minor_to_major)} is no ordering of dimensions 0 to {rank - 1}"
            )
        if self.padded_dimensions and len(self.padded_dimensions) != rank:
            raise ValueError(f"layout: {len(self.padded_dimensions)} padded_dimensions for a shape of rank {rank}")
        if self.padding_value is not None and rank and not self.padded_dimensions:
            raise ValueError("layout: padding_value without padded_dimensions")

    @classmethod
    @lru_cache(maxsize=64)
    def row_major(cls, rank: int) -> Layout:
        """Return the default: the last dimension is the most minor ("dim 0 is major")."""
        return cls(range(rank - 1, -1, -1))

    @property
    def rank(self) -> int:
        return len(self.minor_to_major)

    @property
    def major_to_minor(self) -> tuple[int, ...]:
        return self.minor_to_major[::-1]

    @property
    def is_default(self) -> bool:
        """Return whether this is the row-major layout without padding."""
        return self.major_to_minor == tuple(range(self.rank)) and not self.padded_dimensions

    def memory_shape(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes in memory, from the most major dimension to the most minor one."""
        widths = self.padded_dimensions or tuple(dimensions)
        return tuple(widths[d] for d in self.major_to_minor)

    def check(self, dimensions: Sequence[int]) -> None:
        """Raise ValueError unless a shape of `dimensions` can have this layout."""
        if len(dimensions) != self.rank:
            raise ValueError(f"layout {self} of rank {self.rank} for a shape of rank {len(dimensions)}")
        for number, (width, size) in enumerate(zip(self.padded_dimensions, dimensions, strict=False)):
            if width < size:
                raise ValueError(f"layout: dimension {number} of size {size} is padded to the smaller width {width}")

    def to_memory(self, array: Array) -> Array:
        """Return `array` as linear memory: a 1-dimensional array in the layout's order, padding included."""
        self.check(array.shape)
        ordered = array.transpose(self.major_to_minor)
        if not self.padded_dimensions:
            return np.ascontiguousarray(ordered).reshape(-1)
        memory = np.full(self.memory_shape(array.shape), self._fill(array.dtype), dtype=array.dtype)
        memory[tuple(slice(0, size) for size in ordered.shape)] = ordered
        return memory.reshape(-1)

    def from_memory(self, memory: Array, dimensions: Sequence[int]) -> Array:
        """Return the array of `dimensions` whose linear memory is `memory`; raise ValueError if its length differs."""
        self.check(dimensions)
        shape = self.memory_shape(dimensions)
        flat = np.asarray(memory).reshape(-1)
        if flat.size != int(np.prod(shape, dtype=np.int64)):
            raise ValueError(f"layout {self}: memory of {flat.size} elements for padded sizes {list(shape)}")
        kept = flat.reshape(shape)[tuple(slice(0, dimensions[d]) for d in self.major_to_minor)]
        return np.array(kept.transpose(np.argsort(self.major_to_minor)), order="C")

    def _fill(self, dtype: DType) -> Array:
        value = self.padding_value
        if value is None or value is PaddingValue.ZERO_PAD:
            return np.zeros((), dtype)
        if value is PaddingValue.ONE_PAD:
            return np.ones((), dtype)
        if isinstance(value, PaddingValue):
            return extreme(dtype, largest=value is PaddingValue.HIGHEST_PAD)
        return np.array(value, dtype)

    def __str__(self) -> str:
        return "{" + ",".join(map(str, self.minor_to_major)) + "}"

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Read `{1,0}`; the part after a colon (tiling, memory space) does not affect values and is dropped."""
        match = re.fullmatch(r"\{\s*((?:\d+\s*(?:,\s*\d+\s*)*)?)(?::[^{}]*)?\}", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no layout such as {{1,0}}")
        return cls([int(d) for d in match[1].split(",") if d.strip()])
