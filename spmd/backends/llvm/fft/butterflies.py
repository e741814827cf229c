"""Butterflies: transforms of a few complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import cos, pi, sin

import numpy as np

from spmd.backends.llvm.emit.text import FunctionText

#: SSA names of the real and the imaginary part.
Parts = tuple[str, str]


def real_number(value: float, bits: int) -> str:
    """Return LLVM's spelling of `value` rounded to a float of 32 or 64 `bits`."""
    wide = float(np.float32(value)) if bits == 32 else value
    return f"0x{int(np.float64(wide).view(np.uint64)):016X}"


@dataclass(frozen=True)
class NativeArithmetic:
    """Emits arithmetic on values of LLVM type `type`, a float or a vector of floats.

    FMAs are explicit, the same on every processor: LLVM's own contraction would depend on the context.
    """

    text: FunctionText
    type: str

    def add(self, x: str, y: str) -> str:
        return self.text.value(f"fadd {self.type} {x}, {y}")

    def subtract(self, x: str, y: str) -> str:
        return self.text.value(f"fsub {self.type} {x}, {y}")

    def multiply(self, x: str, y: str) -> str:
        return self.text.value(f"fmul {self.type} {x}, {y}")

    def negated(self, x: str) -> str:
        return self.text.value(f"fneg {self.type} {x}")

    def scaled(self, x: str, factor: float) -> str:
        """Return `x` times `factor`, rounded to its type."""
        return self.multiply(x, self._constant(factor))

    def _constant(self, value: float) -> str:
        bits = real_number(value, 32 if "float" in self.type else 64)
        return f"splat ({self.type.split(' x ')[1][:-1]} {bits})" if " x " in self.type else bits

    def sum(self, x: Parts, y: Parts) -> Parts:
        return self.add(x[0], y[0]), self.add(x[1], y[1])

    def difference(self, x: Parts, y: Parts) -> Parts:
        return self.subtract(x[0], y[0]), self.subtract(x[1], y[1])

    def times(self, x: Parts, factor: float) -> Parts:
        return self.scaled(x[0], factor), self.scaled(x[1], factor)

    def plus_times(self, total: Parts, x: Parts, factor: float) -> Parts:
        """Return `total` + `x` * `factor`, fused."""
        number = self._constant(factor)
        return self.fused(x[0], number, total[0]), self.fused(x[1], number, total[1])

    def times_minus_i(self, x: Parts) -> Parts:
        """Return `x` times -i."""
        return x[1], self.negated(x[0])

    def multiplied(self, x: Parts, y: Parts) -> Parts:
        """Return the complex product."""
        real = self.fused(x[0], y[0], self.negated(self.multiply(x[1], y[1])))
        return real, self.fused(x[0], y[1], self.multiply(x[1], y[0]))

    def times_conjugate(self, x: Parts, y: Parts) -> Parts:
        """Return the complex product of `x` and the conjugate of `y`."""
        real = self.fused(x[0], y[0], self.multiply(x[1], y[1]))
        return real, self.fused(x[1], y[0], self.negated(self.multiply(x[0], y[1])))

    def fused(self, x: str, y: str, z: str) -> str:
        """Return x y + z, fused."""
        lanes, _, scalar = self.type.strip("<>").rpartition(" x ")
        name = f"{'v' if lanes else ''}{lanes}{'f32' if scalar == 'float' else 'f64'}"
        return self.text.value(f"call {self.type} @llvm.fma.{name}({self.type} {x}, {self.type} {y}, {self.type} {z})")


def _two(calculate: NativeArithmetic, x: Sequence[Parts]) -> list[Parts]:
    return [calculate.sum(x[0], x[1]), calculate.difference(x[0], x[1])]


def _three(calculate: NativeArithmetic, x: Sequence[Parts]) -> list[Parts]:
    total = calculate.sum(x[1], x[2])
    middle = calculate.plus_times(x[0], total, -0.5)
    side = calculate.times_minus_i(calculate.times(calculate.difference(x[1], x[2]), sin(pi / 3)))
    return [calculate.sum(x[0], total), calculate.sum(middle, side), calculate.difference(middle, side)]


def _four(calculate: NativeArithmetic, x: Sequence[Parts]) -> list[Parts]:
    even, odd = calculate.sum(x[0], x[2]), calculate.sum(x[1], x[3])
    middle, side = calculate.difference(x[0], x[2]), calculate.times_minus_i(calculate.difference(x[1], x[3]))
    return [
        calculate.sum(even, odd),
        calculate.sum(middle, side),
        calculate.difference(even, odd),
        calculate.difference(middle, side),
    ]


def _odd(calculate: NativeArithmetic, x: Sequence[Parts]) -> list[Parts]:
    """Return the transform of an odd count: elements symmetric about the center share twiddle factors, by sums and
    differences.
    """
    count = len(x)
    pairs = [(x[place], x[count - place]) for place in range(1, count // 2 + 1)]
    sums, gaps = [calculate.sum(*pair) for pair in pairs], [calculate.difference(*pair) for pair in pairs]
    results = {0: calculate.sum(x[0], reduce(calculate.sum, sums))}
    for number in range(1, count // 2 + 1):
        angles = [2 * pi * number * place / count for place in range(1, count // 2 + 1)]
        middle = x[0]
        for each, angle in zip(sums, angles, strict=True):
            middle = calculate.plus_times(middle, each, cos(angle))
        across = calculate.times(gaps[0], sin(angles[0]))
        for each, angle in zip(gaps[1:], angles[1:], strict=True):
            across = calculate.plus_times(across, each, sin(angle))
        side = calculate.times_minus_i(across)
        results[number], results[count - number] = calculate.sum(middle, side), calculate.difference(middle, side)
    return [results[number] for number in range(count)]


#: Kernels by radix.
BUTTERFLIES: dict[int, Callable[[NativeArithmetic, Sequence[Parts]], list[Parts]]] = {
    2: _two,
    3: _three,
    4: _four,
    5: _odd,
    7: _odd,
    11: _odd,
    13: _odd,
}
