"""Stages of FFTs of lengths with prime factors up to 13.

Stockham's algorithm: each stage removes a factor from the length and leaves its results in order, so that every stage
loads contiguously, and stores contiguously from the second or third one on. Real and imaginary parts are in separate
planes.
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
    """One factor of the length: `radix`, with a stride of `stride` elements between transformed neighbours."""

    radix: int
    stride: int
    length: int

    @property
    def groups(self) -> int:
        """Number of distinct twiddle factors."""
        return self.length // (self.radix * self.stride)

    @property
    def lanes(self) -> int:
        """Elements per vector."""
        whole = self.length // self.radix if self.radix in (2, 4) else self.stride
        return min(LANES, whole & -whole)

    @property
    def is_interleaved(self) -> bool:
        """Whether lanes of a vector belong to different groups."""
        return self.lanes > self.stride

    def rotations(self) -> Array:
        """Return the twiddle factors by group, part (real, imaginary), and result from the second on.

        If lanes belong to different groups there are `lanes` numbers for each.
        """
        angles = np.arange(1, self.radix) * np.arange(self.groups)[:, None] / (self.radix * self.groups)
        factors: Array = np.exp(-2j * np.pi * angles)
        if self.is_interleaved:
            factors = factors.repeat(self.stride, 0).reshape(-1, self.lanes, self.radix - 1).swapaxes(1, 2)
        return np.stack([factors.real, factors.imag], 1)


def stages_of(length: int) -> list[FftStage] | None:
    """Return the stages of a transform, factors of 2 first; None for a length with other factors."""
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
    outlined: bool,
) -> tuple[Parts, Parts]:
    """Emit the transform of the planes `here`, using `there` as scratch; return the planes with the result, and the
    others.

    `tables` are the addresses of the stages' twiddle factors, `outlined` says whether stages are calls.
    """
    for stage, table in zip(stages, tables, strict=True):
        spread = stage.stride if stage.is_interleaved else 0
        step = StageStep(bits, stage.radix, stage.lanes, spread, stage.groups > 1, stage.stride <= stage.lanes)
        sizes = [str(stage.length // stage.radix), str(stage.stride), str(stage.groups)]
        step.run(text, [*here, *there, table or here[0], *sizes], outlined=outlined)
        here, there = there, here
    return here, there


@dataclass(frozen=True)
class StageStep(PlaneStep):
    """A stage of any length: radix `radix`, `lanes` elements per vector.

    `spread`: adjacent lanes of one group if lanes belong to different groups, else 0; `rotates`: there are twiddle
    factors; `is_one`: a vector covers a group.
    """

    radix: int
    lanes: int
    spread: int
    rotates: bool
    is_one: bool

    takes = (*planes(), *planes("to"), "ptr %table", "i64 %count", "i64 %stride", "i64 %groups")

    @property
    def kind(self) -> str:
        ends = f"{'' if self.rotates else '.last'}{'.one' if self.is_one else ''}"
        return f"stage.{self.radix}.{self.lanes}.{self.spread}{ends}"

    def write(self, writer: PlaneWriter, *arguments: str) -> None:
        """Emit the stage: `count` butterflies of elements with a stride of `count`."""
        real, imaginary, to_real, to_imaginary, table, count, stride, groups = arguments
        source, target, text = (real, imaginary), (to_real, to_imaginary), writer.text
        if self.spread:
            start, _ = text.open_loop()
            values = self._transformed(writer, source, table, start, start, count)
            self._store_interleaved(writer, values, target, writer.product(start, self.radix))
            text.close_loop(count, self.lanes)
            return
        group, _ = text.open_loop()
        first = writer.product(group, stride)
        goal = writer.product(first, self.radix)
        place = "0" if self.is_one else text.open_loop()[0]
        values = self._transformed(writer, source, table, writer.sum(first, place), group, count)
        for number, parts in enumerate(values):
            to = writer.sum(goal, place, writer.product(stride, number))
            for plane, value in zip(target, parts, strict=True):
                writer.store(value, plane, to, self.lanes)
        if not self.is_one:
            text.close_loop(stride, self.lanes)
        text.close_loop(groups)

    def _transformed(
        self, writer: PlaneWriter, source: Parts, table: str, start: str, rotation: str, count: str
    ) -> list[Parts]:
        """Return the butterflies of elements from `start` on, times twiddle factors."""
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
        """Store lanes grouped: `spread` lanes of each value after another."""
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
