"""Conversions between interleaved complex numbers and planes of parts, at both ends of FFTs.

The transform of real numbers follows from that of pairs of them, and vice versa, from sums and differences of each
element and the conjugate of the mirrored one (Van Loan, "Computational Frameworks for the Fast Fourier Transform",
4.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from spmd.backends.llvm.fft.butterflies import NativeArithmetic, Parts
from spmd.backends.llvm.fft.split_complex import PlaneStep, PlaneWriter, planes


@dataclass(frozen=True)
class _Ends(PlaneStep):
    """A step over `length` numbers; `rest`: the vector width of the remainder."""

    rest: int


@dataclass(frozen=True)
class ToPlanes(_Ends):
    """Deinterleaves complex numbers."""

    takes = ("ptr %pairs", *planes(), "i64 %length")

    @property
    def kind(self) -> str:
        return f"apart.{self.rest}"

    def write(self, writer: PlaneWriter, *arguments: str) -> None:
        """Emit the planes of `length` complex numbers."""
        pairs, *planes, length = arguments
        for start, lanes in writer.blocks(length, self.rest):
            place = writer.product(start, 2)
            if lanes == 1:
                for part, plane in enumerate(planes):
                    writer.store(writer.load(pairs, writer.sum(place, part), 1), plane, start, 1)
            else:
                first, second = (writer.load(pairs, writer.sum(place, half), lanes) for half in (0, lanes))
                for part, plane in enumerate(planes):
                    value = writer.shuffled(first, second, lanes, range(part, 2 * lanes, 2))
                    writer.store(value, plane, start, lanes)


@dataclass(frozen=True)
class ToPairs(_Ends):
    """Interleaves complex numbers, each times `scale` if it `is_scaled`."""

    is_scaled: bool

    takes = (*planes(), "ptr %pairs", "i64 %length", "scalar %scale")

    @property
    def kind(self) -> str:
        return f"{'scaled' if self.is_scaled else 'together'}.{self.rest}"

    def write(self, writer: PlaneWriter, *arguments: str) -> None:
        """Emit `length` complex numbers."""
        real, imaginary, pairs, length, scale = arguments
        for start, lanes in writer.blocks(length, self.rest):
            calculate = NativeArithmetic(writer.text, writer.vector(lanes))
            place = writer.product(start, 2)
            parts = [writer.load(plane, start, lanes) for plane in (real, imaginary)]
            if self.is_scaled:
                factor = writer.splat(scale, lanes)
                parts = [calculate.multiply(part, factor) for part in parts]
            if lanes == 1:
                for part, value in enumerate(parts):
                    writer.store(value, pairs, writer.sum(place, part), 1)
            else:
                order = [lane // 2 + lanes * (lane % 2) for lane in range(2 * lanes)]
                for half in (0, lanes):
                    value = writer.shuffled(parts[0], parts[1], lanes, order[half : half + lanes])
                    writer.store(value, pairs, writer.sum(place, half), lanes)


@dataclass(frozen=True)
class PairsToHalves(_Ends):
    """Converts the transform of pairs to that of real numbers: one more than half of the elements."""

    takes = (*planes(), "ptr %pairs", "ptr %cosine", "ptr %sine", "i64 %length")

    @property
    def kind(self) -> str:
        return f"halves.{self.rest}"

    def write(self, writer: PlaneWriter, *arguments: str) -> None:
        """Emit the transform of twice `length` real numbers."""
        real, imaginary, pairs, *rotations, length = arguments
        for plane in (real, imaginary):
            writer.store(writer.load(plane, 0, 1), plane, length, 1)
        for start, lanes in writer.blocks(length, self.rest):
            calculate = NativeArithmetic(writer.text, writer.vector(lanes))
            even, odd = _halves(writer, (real, imaginary), start, lanes, length)
            cosine, sine = (writer.load(table, start, lanes) for table in rotations)
            odd = calculate.multiplied(odd, (cosine, sine))
            # even - i * odd, both doubled
            twice = calculate.add(even[0], odd[1]), calculate.subtract(even[1], odd[0])
            scaled = [calculate.scaled(part, 0.5) for part in twice]
            place = writer.product(start, 2)
            if lanes == 1:
                for part, value in enumerate(scaled):
                    writer.store(value, pairs, writer.sum(place, part), 1)
            else:
                order = [lane // 2 + lanes * (lane % 2) for lane in range(2 * lanes)]
                writer.store(writer.shuffled(scaled[0], scaled[1], lanes, order), pairs, place, 2 * lanes)
        last = NativeArithmetic(writer.text, writer.type)
        first, second = (writer.load(plane, 0, 1) for plane in (real, imaginary))
        end = writer.product(length, 2)
        writer.store(last.subtract(first, second), pairs, end, 1)
        writer.store("0.0", pairs, writer.sum(end, 1), 1)


@dataclass(frozen=True)
class HalvesToPairs(_Ends):
    """Converts half of the transform of real numbers to that of pairs, both doubled."""

    takes = ("ptr %pairs", *planes(), *planes("to"), "ptr %cosine", "ptr %sine", "i64 %length")

    @property
    def kind(self) -> str:
        return f"pairs.{self.rest}"

    def write(self, writer: PlaneWriter, *arguments: str) -> None:
        """Emit the transform of `length` pairs; the planes hold all but the last element of the half."""
        pairs, real, imaginary, to_real, to_imaginary, *rotations, length = arguments
        last = writer.load(pairs, writer.product(length, 2), 1)
        writer.store(last, real, length, 1)
        for end in ("0", length):
            writer.store("0.0", imaginary, end, 1)
        for start, lanes in writer.blocks(length, self.rest):
            calculate = NativeArithmetic(writer.text, writer.vector(lanes))
            even, odd = _halves(writer, (real, imaginary), start, lanes, length)
            cosine, sine = (writer.load(table, start, lanes) for table in rotations)
            odd = calculate.times_conjugate(odd, (cosine, sine))
            # even + i * odd
            writer.store(calculate.subtract(even[0], odd[1]), to_real, start, lanes)
            writer.store(calculate.add(even[1], odd[0]), to_imaginary, start, lanes)


def _halves(writer: PlaneWriter, planes: Parts, start: str, lanes: int, length: str) -> tuple[Parts, Parts]:
    """Return sums and differences of elements and the conjugates of the mirrored ones."""
    calculate = NativeArithmetic(writer.text, writer.vector(lanes))
    mirror = writer.text.value(f"sub i64 {writer.sum(length, 1 - lanes)}, {start}")
    here = [writer.load(plane, start, lanes) for plane in planes]
    there = [writer.load(plane, mirror, lanes) for plane in planes]
    if lanes > 1:
        there = [writer.shuffled(value, "poison", lanes, range(lanes - 1, -1, -1)) for value in there]
    sums = [calculate.add(one, other) for one, other in zip(here, there, strict=True)]
    gaps = [calculate.subtract(one, other) for one, other in zip(here, there, strict=True)]
    return (sums[0], gaps[1]), (gaps[0], sums[1])
