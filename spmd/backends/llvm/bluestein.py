"""Fourier transforms of lengths with large prime factors, in native code: products with a chirp, and a convolution.

With w(k) = exp(-pi i k^2 / n), what is summed for element k of a transform of length n is x(j) w(j) / w(k - j), times
w(k): a convolution, which transforms of a longer length without such factors compute. Source: L. Bluestein, "A linear
filtering approach to the computation of discrete Fourier transform" (1970).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from spmd.arrays import Array
from spmd.backends.llvm.butterflies import NativeArithmetic, Parts
from spmd.backends.llvm.fft_stages import LANES, FftStage, StageWriter, stages_of

#: The prime factors that the longer length may have.
_RADICES = (2, 3, 5)


@dataclass(frozen=True)
class Bluestein:
    """A transform of `length`."""

    length: int

    @property
    def inner(self) -> int:
        """The length of the convolution: whole registers, and long enough for none of it to come round again."""
        return next(LANES * k for k in count(-(-(2 * self.length - 1) // LANES)) if _is_smooth(k))

    @property
    def stages(self) -> list[FftStage]:
        """The stages of the inner transforms."""
        stages = stages_of(self.inner)
        assert stages is not None
        return stages

    def chirp(self) -> Array:
        """w, by place."""
        places = np.arange(self.length, dtype=np.int64)
        numbers: Array = np.exp(-1j * np.pi / self.length * (places * places % (2 * self.length)))
        return numbers

    def factors(self) -> Array:
        """What the results of both inner transforms are multiplied by: the response, and 1 / w."""
        inverse = np.zeros(self.inner, np.complex128)
        inverse[: self.length] = self.chirp().conj()
        numbers: Array = np.stack([self._response(), inverse])
        return numbers

    def _response(self) -> Array:
        """The transform of 1 / w, of all places from 1 - length on, over the inner length."""
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
    writer: StageWriter, transform: Bluestein, tables: Sequence[str], here: Parts, there: Parts
) -> tuple[Parts, Parts]:
    """The transform of what stands in `here`; `there` is as much memory. The planes that hold it, and the others.

    `tables` are the addresses of the chirp, the factors and the rotations of the stages, real parts first.

    The inverse inner transform is the one of parts that have changed places, so that both are one loop. Numbers whose
    parts have changed places are multiplied by w where they are multiplied by 1 / w, its conjugate.
    """
    chirp, factors, *rotations = tables
    length, text = transform.length, writer.text
    _clear(writer, there, length - length % LANES, transform.inner)
    _multiply(writer, length, (chirp, length), here, there)
    number, _ = text.open_loop()
    table = writer.at(factors, text.value(f"mul i64 {number}, {transform.inner}"))
    results, _ = writer.run(transform.stages, rotations, there, here)
    _multiply(writer, transform.inner, (table, 2 * transform.inner), results, there[::-1])
    text.close_loop(2)
    return there, here


def _clear(writer: StageWriter, planes: Parts, first: int, stop: int) -> None:
    """Zeros from `first` on, as many as fill registers."""
    start, _ = writer.text.open_loop()
    for plane in planes:
        writer.store("zeroinitializer", plane, start, LANES)
    writer.text.close_loop(stop, LANES, str(first))


def _multiply(writer: StageWriter, length: int, table: tuple[str, int], source: Parts, target: Parts) -> None:
    """`length` numbers times those of a table, whose imaginary parts lie so many numbers behind the real ones."""
    for start, lanes in writer.blocks(length):
        calculate = NativeArithmetic(writer.text, writer.vector(lanes))
        value = writer.load(source[0], start, lanes), writer.load(source[1], start, lanes)
        factor = writer.load(table[0], start, lanes), writer.load(table[0], writer.sum(start, table[1]), lanes)
        for part, plane in zip(calculate.multiplied(value, factor), target, strict=True):
            writer.store(part, plane, start, lanes)
