"""Planes of numbers, in native code: the real parts of complex numbers in one, the imaginary parts in another.

A step of a Fourier transform over planes is a piece of code of its own (`PlaneStep`): it stands where it is used, or
out of line, where one piece serves all lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spmd.backends.llvm.emit.outlined import OutOfLine, Parameter, body_of
from spmd.backends.llvm.emit.text import FunctionText

#: Elements of a register.
LANES = 16


def rest_lanes(length: int) -> int:
    """Elements that are taken at once of those that do not fill a register; 0 where there are none."""
    rest = length % LANES
    return rest & -rest


class PlaneWriter:
    """Writes what is done with planes of numbers of `bits`. Places and lengths are names of i64, or numbers."""

    def __init__(self, text: FunctionText, bits: int) -> None:
        self.text, self.bits = text, bits
        self.type = "float" if bits == 32 else "double"

    def blocks(self, length: str, rest: int) -> Iterator[tuple[str, int]]:
        """Blocks of `length` elements: where each begins, and its size: `rest`, if any, behind those of whole
        registers, which there are unless `length` is a number. What is written meanwhile is run for each."""
        known = length.isdigit()
        whole = str(int(length) // LANES * LANES) if known else self.text.value(f"and i64 {length}, {-LANES}")
        if whole != "0":
            start, _ = self.text.open_loop()
            yield start, LANES
            self.text.close_loop(whole, LANES)
        if rest:
            start, _ = self.text.open_loop()
            yield start, rest
            self.text.close_loop(length, rest, whole)

    # --- memory ---

    def at(self, pointer: str, place: str | int) -> str:
        return self.text.value(f"getelementptr {self.type}, ptr {pointer}, i64 {place}")

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

    def splat(self, value: str, lanes: int) -> str:
        """Return a number on all lanes."""
        if lanes == 1:
            return value
        one = self.text.value(f"insertelement {self.vector(lanes)} poison, {self.type} {value}, i64 0")
        return self.shuffled(one, "poison", lanes, [0] * lanes)

    def sum(self, *terms: str | int) -> str:
        total = str(terms[0])
        for term in terms[1:]:
            total = self.text.value(f"add i64 {total}, {term}")
        return total

    def product(self, place: str | int, factor: str | int) -> str:
        return self.text.value(f"mul i64 {place}, {factor}")


def planes(of: str = "") -> tuple[str, str]:
    """What a step takes that is told of the two planes `of` something, or of its own."""
    before = f"{of}." if of else ""
    return f"ptr %{before}real", f"ptr %{before}imaginary"


@dataclass(frozen=True)
class PlaneStep(OutOfLine):
    """What is done with numbers of `bits`, told what it `takes`: LLVM's types, or `scalar`, and names.

    `disjoint`: what is read and what is written do not overlap.
    """

    bits: int

    takes: ClassVar[tuple[str, ...]]
    disjoint: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """What tells the step from others, in its name."""
        raise NotImplementedError

    def write(self, writer: PlaneWriter, *arguments: str) -> None:
        """Emit the step where it stands."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.fft.stage.4.16.f32`."""
        return f"spmd.fft.{self.kind}.f{self.bits}"

    @property
    def parameters(self) -> Sequence[Parameter]:
        scalar = "float" if self.bits == 32 else "double"
        listed = []
        for each in self.takes:
            type, name = each.split()
            promise = "noalias" if type == "ptr" and self.disjoint else ""
            listed.append(Parameter(scalar if type == "scalar" else type, name, promise))
        return listed

    def run(self, text: FunctionText, arguments: Sequence[str], *, apart: bool) -> None:
        """Emit the step, or a call of it out of line."""
        if apart:
            self.write_call(text, arguments)
        else:
            self.write(PlaneWriter(text, self.bits), *arguments)

    def body(self) -> str:
        text = FunctionText()
        self.write(PlaneWriter(text, self.bits), *(each.name for each in self.parameters))
        return body_of(text)
