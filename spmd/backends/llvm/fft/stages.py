"""The stages of Fourier transforms, in native code, of lengths whose prime factors are at most 13.

Stockham's algorithm: each stage takes a factor out of the length and leaves its results in their order, so that every
stage reads neighbours, and from the second or third on writes them. Real and imaginary parts lie apart, in planes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.fft.butterflies import BUTTERFLIES, NativeArithmetic, Parts
from spmd.backends.llvm.fft.split_complex import LANES, PlaneStep, PlaneWriter, planes
from spmd.support.arrays import Array


@dataclass(frozen=True)
class FftStage:
    """One factor of the length: `radix` parts, `apart` elements between neighbours of what is transformed already."""

    radix: int
    apart: int
    length: int

    @property
    def groups(self) -> int:
        """How many different rotations there are."""
        return self.length // (self.radix * self.apart)

    @property
    def lanes(self) -> int:
        """Elements that are taken at once."""
        whole = self.length // self.radix if self.radix in (2, 4) else self.apart
        return min(LANES, whole & -whole)

    @property
    def is_interleaved(self) -> bool:
        """Whether the lanes of one vector belong to different groups."""
        return self.lanes > self.apart

    def rotations(self) -> Array:
        """By group, real or imaginary, and part from the second on: what results are multiplied by. Where lanes belong
        to different groups there are `lanes` numbers of each kind in place of one.
        """
        turns = np.arange(1, self.radix) * np.arange(self.groups)[:, None] / (self.radix * self.groups)
        factors: Array = np.exp(-2j * np.pi * turns)
        if self.is_interleaved:
            factors = factors.repeat(self.apart, 0).reshape(-1, self.lanes, self.radix - 1).swapaxes(1, 2)
        return np.stack([factors.real, factors.imag], 1)


def stages_of(length: int) -> list[FftStage] | None:
    """Return the stages of a transform, the factors of 2 first; None of a length that has other factors."""
    stages: list[FftStage] = []
    rest = length
    for radix in (4, 2, 3, 5, 7, 11, 13):
        while rest % radix == 0:
            stages.append(FftStage(radix, length // rest, length))
            rest //= radix
    return stages if rest == 1 else None


def run_stages(
    text: FunctionText,
    bits: int,
    stages: Sequence[FftStage],
    tables: Sequence[str],
    here: Parts,
    there: Parts,
    *,
    apart: bool,
) -> tuple[Parts, Parts]:
    """Return the transform of what stands in `here`; `there` is as much memory. The planes that hold it, and the
    others.

    `tables` are the addresses of the stages' rotations, `apart` says whether the stages stand out of line.
    """
    for stage, table in zip(stages, tables, strict=True):
        spread = stage.apart if stage.is_interleaved else 0
        step = StageStep(bits, stage.radix, stage.lanes, spread, stage.groups > 1, stage.apart <= stage.lanes)
        sizes = [str(stage.length // stage.radix), str(stage.apart), str(stage.groups)]
        step.run(text, [*here, *there, table or here[0], *sizes], apart=apart)
        here, there = there, here
    return here, there


@dataclass(frozen=True)
class StageStep(PlaneStep):
    """A stage of any length: `radix` parts, `lanes` elements at once.

    `spread`: elements side by side in a vector whose lanes belong to different groups, 0 where they belong to one;
    `rotates`: there are several groups; `is_one`: a vector has all elements of a group, at least.
    """

    radix: int
    lanes: int
    spread: int
    rotates: bool
    is_one: bool

    takes = (*planes(), *planes("to"), "ptr %table", "i64 %count", "i64 %apart", "i64 %groups")

    @property
    def kind(self) -> str:
        ends = f"{'' if self.rotates else '.last'}{'.one' if self.is_one else ''}"
        return f"stage.{self.radix}.{self.lanes}.{self.spread}{ends}"

    def write(self, writer: PlaneWriter, *arguments: str) -> None:
        """Emit the stage: `count` short transforms, of elements as far from each other."""
        real, imaginary, to_real, to_imaginary, table, count, apart, groups = arguments
        source, target, text = (real, imaginary), (to_real, to_imaginary), writer.text
        if self.spread:
            start, _ = text.open_loop()
            values = self._transformed(writer, source, table, start, start, count)
            self._store_interleaved(writer, values, target, writer.product(start, self.radix))
            text.close_loop(count, self.lanes)
            return
        group, _ = text.open_loop()
        first = writer.product(group, apart)
        goal = writer.product(first, self.radix)
        place = "0" if self.is_one else text.open_loop()[0]
        values = self._transformed(writer, source, table, writer.sum(first, place), group, count)
        for number, parts in enumerate(values):
            to = writer.sum(goal, place, writer.product(apart, number))
            for plane, value in zip(target, parts, strict=True):
                writer.store(value, plane, to, self.lanes)
        if not self.is_one:
            text.close_loop(apart, self.lanes)
        text.close_loop(groups)

    def _transformed(
        self, writer: PlaneWriter, source: Parts, table: str, start: str, rotation: str, count: str
    ) -> list[Parts]:
        """Return the short transforms of elements `start` and those that belong to it, rotated."""
        inputs: list[Parts] = []
        for number in range(self.radix):
            place = writer.sum(start, writer.product(count, number))
            inputs.append((writer.load(source[0], place, self.lanes), writer.load(source[1], place, self.lanes)))
        calculate = NativeArithmetic(writer.text, writer.vector(self.lanes))
        values = BUTTERFLIES[self.radix](calculate, inputs)
        if not self.rotates:
            return values
        lanes = self.lanes if self.spread else 1
        first = writer.at(table, writer.product(rotation, 2 * (self.radix - 1)))
        rotated = values[:1]
        for number, value in enumerate(values[1:]):
            places = [(part * (self.radix - 1) + number) * lanes for part in range(2)]
            factors = [self._rotation(writer, first, place) for place in places]
            rotated.append(calculate.multiplied(value, (factors[0], factors[1])))
        return rotated

    def _rotation(self, writer: PlaneWriter, table: str, place: int) -> str:
        if self.spread or self.lanes == 1:
            return writer.load(table, place, self.lanes)
        return writer.splat(writer.load(table, place, 1), self.lanes)

    def _store_interleaved(self, writer: PlaneWriter, values: list[Parts], target: Parts, start: str) -> None:
        """Lanes of one group side by side, `spread` of each value after another."""
        lanes, radix = self.lanes, self.radix
        order = []
        for place in range(radix * lanes):
            group, number = divmod(place // self.spread, radix)
            order.append(number * lanes + group * self.spread + place % self.spread)
        for part, plane in enumerate(target):
            whole, size = [value[part] for value in values], lanes
            while len(whole) > 1:
                pairs = zip(whole[::2], whole[1::2], strict=True)
                whole, size = [writer.shuffled(one, other, size, range(2 * size)) for one, other in pairs], 2 * size
            writer.store(writer.shuffled(whole[0], "poison", size, order), plane, start, size)
