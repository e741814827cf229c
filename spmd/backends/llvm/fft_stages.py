"""The stages of Fourier transforms, in native code, of lengths whose prime factors are at most 13.

Stockham's algorithm: each stage takes a factor out of the length and leaves its results in their order, so that every
stage reads neighbours, and from the second or third on writes them. Real and imaginary parts lie apart, in planes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spmd.arrays import Array
from spmd.backends.llvm.butterflies import BUTTERFLIES, NativeArithmetic, Parts
from spmd.backends.llvm.text import FunctionText

#: Elements of a register.
LANES = 16


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
        """By part from the second on, and group, or element where lanes differ: what results are multiplied by."""
        turns = np.arange(1, self.radix)[:, None] * np.arange(self.groups) / (self.radix * self.groups)
        factors: Array = np.exp(-2j * np.pi * turns)
        return factors.repeat(self.apart, 1) if self.is_interleaved else factors


def stages_of(length: int) -> list[FftStage] | None:
    """The stages of a transform, the factors of 2 first; None of a length that has other factors."""
    stages: list[FftStage] = []
    rest = length
    for radix in (4, 2, 3, 5, 7, 11, 13):
        while rest % radix == 0:
            stages.append(FftStage(radix, length // rest, length))
            rest //= radix
    return stages if rest == 1 else None


class StageWriter:
    """Writes transforms of planes of numbers of `bits`."""

    def __init__(self, text: FunctionText, bits: int) -> None:
        self.text, self.bits = text, bits
        self.type = "float" if bits == 32 else "double"

    def run(self, stages: Sequence[FftStage], tables: Sequence[str], here: Parts, there: Parts) -> tuple[Parts, Parts]:
        """The transform of what stands in `here`; `there` is as much memory. The planes that hold it, and the others.

        `tables` are the addresses of the stages' rotations.
        """
        for stage, table in zip(stages, tables, strict=True):
            self._stage(stage, table, here, there)
            here, there = there, here
        return here, there

    def blocks(self, length: int) -> Iterator[tuple[str, int]]:
        """Blocks of `length` elements: where each begins, and its size. What is written meanwhile is run for each."""
        whole, rest = length - length % LANES, length % LANES
        for first, stop, lanes in ((0, whole, LANES), (whole, length, rest & -rest)):
            if first < stop:
                start, _ = self.text.open_loop()
                yield start, lanes
                self.text.close_loop(stop, lanes, str(first))

    # --- memory ---

    def at(self, pointer: str, place: str | int, type: str | None = None) -> str:
        return self.text.value(f"getelementptr {type or self.type}, ptr {pointer}, i64 {place}")

    def vector(self, lanes: int) -> str:
        return self.type if lanes == 1 else f"<{lanes} x {self.type}>"

    def load(self, pointer: str, place: str | int, lanes: int) -> str:
        address = self.at(pointer, place)
        return self.text.value(f"load {self.vector(lanes)}, ptr {address}, align {self.bits // 8}")

    def store(self, value: str, pointer: str, place: str | int, lanes: int) -> None:
        address = self.at(pointer, place)
        self.text.line(f"store {self.vector(lanes)} {value}, ptr {address}, align {self.bits // 8}")

    def shuffled(self, first: str, second: str, lanes: int, places: Sequence[int]) -> str:
        vector, order = self.vector(lanes), ", ".join(f"i32 {place}" for place in places)
        return self.text.value(f"shufflevector {vector} {first}, {vector} {second}, <{len(places)} x i32> <{order}>")

    def sum(self, *terms: str | int) -> str:
        total = str(terms[0])
        for term in terms[1:]:
            total = self.text.value(f"add i64 {total}, {term}")
        return total

    def product(self, place: str, factor: int) -> str:
        return self.text.value(f"mul i64 {place}, {factor}")

    # --- stages ---

    def _stage(self, stage: FftStage, table: str, source: Parts, target: Parts) -> None:
        if stage.is_interleaved:
            start, _ = self.text.open_loop()
            values = self._transformed(stage, table, source, start, start)
            self._store_interleaved(stage, values, target, self.product(start, stage.radix))
            self.text.close_loop(stage.length // stage.radix, stage.lanes)
            return
        group, _ = self.text.open_loop()
        first = self.product(group, stage.apart)
        goal = self.product(group, stage.apart * stage.radix)
        place, _ = self.text.open_loop()
        values = self._transformed(stage, table, source, self.sum(first, place), group)
        for number, parts in enumerate(values):
            for plane, value in zip(target, parts, strict=True):
                self.store(value, plane, self.sum(goal, place, number * stage.apart), stage.lanes)
        self.text.close_loop(stage.apart, stage.lanes)
        self.text.close_loop(stage.groups)

    def _transformed(self, stage: FftStage, table: str, source: Parts, start: str, rotation: str) -> list[Parts]:
        """The short transforms of elements `start` and those that belong to it, rotated."""
        lanes, apart = stage.lanes, stage.length // stage.radix
        inputs: list[Parts] = []
        for number in range(stage.radix):
            place = self.sum(start, number * apart)
            inputs.append((self.load(source[0], place, lanes), self.load(source[1], place, lanes)))
        calculate = NativeArithmetic(self.text, self.vector(lanes))
        values = BUTTERFLIES[stage.radix](calculate, inputs)
        if stage.groups == 1:
            return values
        entries = stage.groups * (stage.apart if stage.is_interleaved else 1)
        rotated = values[:1]
        for number, value in enumerate(values[1:]):
            places = [self.sum(rotation, (part * (stage.radix - 1) + number) * entries) for part in range(2)]
            factors = [self._rotation(stage, table, place) for place in places]
            rotated.append(calculate.multiplied(value, (factors[0], factors[1])))
        return rotated

    def _rotation(self, stage: FftStage, table: str, place: str) -> str:
        if stage.is_interleaved or stage.lanes == 1:
            return self.load(table, place, stage.lanes)
        vector = self.vector(stage.lanes)
        one = self.text.value(f"insertelement {vector} poison, {self.type} {self.load(table, place, 1)}, i64 0")
        return self.shuffled(one, "poison", stage.lanes, [0] * stage.lanes)

    def _store_interleaved(self, stage: FftStage, values: list[Parts], target: Parts, start: str) -> None:
        """Lanes of one group side by side, `apart` of each value after another."""
        lanes, apart, radix = stage.lanes, stage.apart, stage.radix
        order = []
        for place in range(radix * lanes):
            group, number = divmod(place // apart, radix)
            order.append(number * lanes + group * apart + place % apart)
        for part, plane in enumerate(target):
            whole, size = [value[part] for value in values], lanes
            while len(whole) > 1:
                pairs = zip(whole[::2], whole[1::2], strict=True)
                whole, size = [self.shuffled(one, other, size, range(2 * size)) for one, other in pairs], 2 * size
            self.store(self.shuffled(whole[0], "poison", size, order), plane, start, size)
