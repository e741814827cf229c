"""Split complex data: real parts in one plane, imaginary parts in another.

A step of an FFT over planes is a `PlaneStep`: emitted inline, or outlined as one function for all lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spmd.backends.llvm.emit.outlined import IrParameter, OutlinedFunction, body_of
from spmd.backends.llvm.emit.text import FunctionText

#: Elements of a vector.
LANES = 16


def rest_lanes(length: int) -> int:
    """Return the vector width of the remainder of `length`; 0 if there is none."""
    rest = length % LANES
    return rest & -rest


class PlaneWriter:
    """Emits operations on planes of numbers of `bits`. Indices and lengths are SSA names of i64, or numbers."""

    def __init__(self, text: FunctionText, bits: int) -> None:
        self.text, self.bits = text, bits
        self.type = "float" if bits == 32 else "double"

    def blocks(self, length: str, rest: int) -> Iterator[tuple[str, int]]:
        """Yield the start and size of blocks of `length` elements; code emitted meanwhile runs for each.

        Blocks are whole vectors, of which there is at least one if `length` is dynamic, then of size `rest`, unless 0.
        """
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
        """Return a scalar splatted to all lanes."""
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
    """Return the declarations of the two planes `of` something, or of the default ones."""
    before = f"{of}." if of else ""
    return f"ptr %{before}real", f"ptr %{before}imaginary"


@dataclass(frozen=True)
class PlaneStep(OutlinedFunction):
    """An outlined step on numbers of `bits` with parameters `takes`: LLVM types, or `scalar`, and names.

    `disjoint`: memory read and written does not overlap.
    """

    bits: int

    takes: ClassVar[tuple[str, ...]]
    disjoint: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """The unique part of the step's symbol."""
        raise NotImplementedError

    def write(self, writer: PlaneWriter, *arguments: str) -> None:
        """Emit the step inline."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The function's symbol: `spmd.fft.stage.4.16.f32`."""
        return f"spmd.fft.{self.kind}.f{self.bits}"

    @property
    def parameters(self) -> Sequence[IrParameter]:
        scalar = "float" if self.bits == 32 else "double"
        listed = []
        for each in self.takes:
            type, name = each.split()
            promise = "noalias" if type == "ptr" and self.disjoint else ""
            listed.append(IrParameter(scalar if type == "scalar" else type, name, promise))
        return listed

    def run(self, text: FunctionText, arguments: Sequence[str], *, outlined: bool) -> None:
        """Emit the step inline, or a call of it."""
        if outlined:
            self.write_call(text, arguments)
        else:
            self.write(PlaneWriter(text, self.bits), *arguments)

    def body(self) -> str:
        text = FunctionText()
        self.write(PlaneWriter(text, self.bits), *(each.name for each in self.parameters))
        return body_of(text)
