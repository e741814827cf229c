"""Bluestein's algorithm: FFTs of lengths with large prime factors, by a convolution with a chirp.

With w(k) = exp(-pi i k^2 / n), element k of a transform of length n is the sum of x(j) w(j) / w(k - j), times w(k): a
convolution, computed by FFTs of a longer, smooth length. Source: L. Bluestein, "A linear filtering approach to the
computation of discrete Fourier transform" (1970).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.fft.butterflies import NativeArithmetic, Parts
from spmd.backends.llvm.fft.split_complex import LANES, PlaneStep, PlaneWriter, planes, rest_lanes
from spmd.backends.llvm.fft.stages import FftStage, run_stages, stages_of
from spmd.support.arrays import Array

#: Prime factors of the inner length.
_RADICES = (2, 3, 5)


@dataclass(frozen=True)
class Bluestein:
    """A transform of `length` by Bluestein's algorithm."""

    length: int

    @property
    def inner(self) -> int:
        """The length of the convolution: a multiple of the lanes, long enough to avoid wraparound."""
        return next(LANES * k for k in count(-(-(2 * self.length - 1) // LANES)) if _is_smooth(k))

    @property
    def stages(self) -> list[FftStage]:
        """The stages of the inner transforms."""
        stages = stages_of(self.inner)
        assert stages is not None
        return stages

    def chirp(self) -> Array:
        """Return the chirp w, complex128 of shape (length,)."""
        places = np.arange(self.length, dtype=np.int64)
        numbers: Array = np.exp(-1j * np.pi / self.length * (places * places % (2 * self.length)))
        return numbers

    def factors(self) -> Array:
        """Return the factors after each inner transform: the response, and 1 / w; complex128 of shape (2, inner)."""
        inverse = np.zeros(self.inner, np.complex128)
        inverse[: self.length] = self.chirp().conj()
        numbers: Array = np.stack([self._response(), inverse])
        return numbers

    def _response(self) -> Array:
        """Return the inner transform of 1 / w, from index 1 - length on."""
        around = np.zeros(self.inner, np.complex128)
        inverse = self.chirp().conj()
        around[: self.length] = inverse
        around[self.inner - self.length + 1 :] = inverse[:0:-1]
        numbers: Array = np.fft.fft(around) / self.inner
        return numbers


def _is_smooth(number: int) -> bool:
    for radix in _RADICES:
        while number % radix == 0:
            number //= radix
    return number == 1


def write_bluestein(
    text: FunctionText,
    bits: int,
    transform: Bluestein,
    tables: Sequence[str],
    here: Parts,
    there: Parts,
    *,
    outlined: bool,
) -> tuple[Parts, Parts]:
    """Emit the transform of the planes `here`, using `there` as scratch; return the planes with the result, and the
    others.

    `tables` are the addresses of the chirp, the factors and the twiddle factors of the stages, real parts first;
    `outlined` says whether steps are calls.

    An inverse transform is a forward one with real and imaginary parts exchanged, so that both inner transforms are one
    loop. On exchanged parts, multiplying by 1 / w multiplies by its conjugate w.
    """
    chirp, factors, *rotations = tables
    writer = PlaneWriter(text, bits)
    length, inner = transform.length, transform.inner

    def multiply(count: int, table: str, distance: int, source: Parts, target: Parts) -> None:
        arguments = [writer.at(table, 0), writer.at(table, distance), *source, *target, str(count)]
        Multiplication(bits, rest_lanes(count)).run(text, arguments, outlined=outlined)

    for plane in there:
        size = (inner - length) * bits // 8
        text.line(f"call void @llvm.memset.p0.i64(ptr {writer.at(plane, length)}, i8 0, i64 {size}, i1 false)")
    multiply(length, chirp, length, here, there)
    number, _ = text.open_loop()
    table = writer.at(factors, writer.product(number, inner))
    results, _ = run_stages(text, bits, transform.stages, rotations, there, here, outlined=outlined)
    multiply(inner, table, 2 * inner, results, there[::-1])
    text.close_loop(2)
    return there, here


@dataclass(frozen=True)
class Multiplication(PlaneStep):
    """Multiplication by a table, possibly in place."""

    rest: int

    disjoint = False
    takes = (*planes("factor"), *planes(), *planes("to"), "i64 %length")

    @property
    def kind(self) -> str:
        return f"times.{self.rest}"

    def write(self, writer: PlaneWriter, *arguments: str) -> None:
        """Emit `length` products."""
        *planes, to_real, to_imaginary, length = arguments
        for start, lanes in writer.blocks(length, self.rest):
            calculate = NativeArithmetic(writer.text, writer.vector(lanes))
            one, other, real, imaginary = (writer.load(plane, start, lanes) for plane in planes)
            product = calculate.multiplied((real, imaginary), (one, other))
            for part, plane in zip(product, (to_real, to_imaginary), strict=True):
                writer.store(part, plane, start, lanes)
