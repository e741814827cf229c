"""Performance of a machine: rates of one process's computation, and times of its collectives.

It is stored as a TOML file that `spmd calibrate` writes and users may edit. Units are seconds, bytes per second, and
work per second of one process; kinds of work are those of spmd.compiler.schedule.costs.Work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from math import exp, log
from pathlib import Path

import numpy as np

from collectives.algorithms import HALVING, wire_bytes
from collectives.network import Level, Network
from collectives.operations import Operation, ReducingOperation
from spmd.compiler.schedule.costs import Work
from spmd.errors import UsageError
from spmd.predict.tables import (
    COUNT,
    NUMBER,
    NUMBERS,
    TEXT,
    WHOLE,
    WHOLES,
    FileTable,
    number_text,
    one_of,
    quoted,
    record_lines,
)

#: Fixed overheads in seconds, with descriptions for the file.
OVERHEADS = {
    "call": "a native function that Python calls",
    "kernel": "an op that NumPy runs",
    "collective": "a collective of next to nothing, beside its messages",
}
#: Rates per second, with descriptions for the file.
RATES = {
    "elementwise": "additions of 32 bits, or what takes as long, in native loops",
    "division": "divisions and square roots of 32 bits, in native loops",
    "function": "additions of 32 bits, or what takes as long, inside of exponentials and their kin",
    "serial": "additions each of which waits for the one before",
    "strided": "numbers read by native loops from places far from each other",
    "aliased": "the same, at distances by which caches keep few of them",
    "indexed": "numbers read by native loops at places that are computed",
    "updated": "numbers written by native loops at places that are computed",
    "product": "multiplications and additions of matrix products where none is in [[product]]",
    "sort": "comparisons of sorts",
    "fft": "operations of fast Fourier transforms",
    "solve": "multiplications and additions of factorizations and triangular systems",
    "random": "random numbers",
    "kernel": "bytes that an op reads and writes which NumPy runs",
    "folding": "bytes that are folded into others by a reduction between processes",
}
#: Kinds of work whose time is proportional to the element width, in units of 32 bits.
_WIDENED = ("elementwise", "division", "function", "strided", "aliased")
#: Forms of products: see Work.
FORMS = ("nn", "nt", "window", "batch")
#: How an operation is implemented: by an MPI call, by one in a wider type, or by exchanging operands and reducing.
HOW = ("mpi", "widened", "exchanged")


@dataclass(frozen=True)
class MemoryBandwidth:
    """Bandwidths of loops, in bytes per second, on data with a reuse distance of `bytes`."""

    bytes: float = field(metadata=WHOLE)
    read: float = field(metadata=NUMBER)
    write: float = field(metadata=NUMBER)


@dataclass(frozen=True)
class MeasuredProduct:
    """The measured `rate`, in operations per second, of products of `bits`, `form` and `sizes` (see Work)."""

    bits: int = field(metadata=COUNT)
    form: str = field(metadata=one_of(FORMS))
    sizes: tuple[float, ...] = field(metadata=WHOLES)
    rate: float = field(metadata=NUMBER)


@dataclass(frozen=True)
class Curve:
    """Seconds of a collective on `ranks` processes by the bytes of an operand on the wire."""

    name: str = field(metadata=TEXT)
    how: str = field(metadata=one_of(HOW))
    ranks: int = field(metadata=COUNT)
    bytes: tuple[float, ...] = field(metadata=WHOLES)
    seconds: tuple[float, ...] = field(metadata=NUMBERS)

    def at(self, nbytes: float) -> float:
        """Return the seconds for operands of `nbytes`: interpolated, or extrapolated in proportion."""
        if nbytes > self.bytes[-1]:
            return self.seconds[-1] * nbytes / self.bytes[-1]
        return exp(float(np.interp(log(max(nbytes, 1.0)), np.log(self.bytes), np.log(self.seconds))))


@dataclass(frozen=True)
class Machine:
    """One machine. `link` describes messages between its processes, for collectives without a curve."""

    name: str
    overhead: Mapping[str, float]
    rates: Mapping[str, float]
    memory: tuple[MemoryBandwidth, ...]
    link: Level
    products: tuple[MeasuredProduct, ...] = ()
    curves: tuple[Curve, ...] = ()

    # --- computing ---

    def seconds(self, work: Work) -> float:
        """Return the seconds of `work`."""
        if work.kind == "product":
            return work.amount / self._product_rate(work)
        wide = work.bits / 32 if work.kind in _WIDENED else 1.0
        return work.amount * wide / self.rates[work.kind]

    def _product_rate(self, work: Work) -> float:
        """Return the rate of a product: the mean of measured ones, weighted by similarity of their sizes."""
        alike = [each for each in self.products if each.bits == work.bits]
        known = [each for each in alike if each.form == work.form] or alike
        if not known:
            return self.rates["product"] * 32 / work.bits
        logarithms = np.log(np.maximum(work.sizes, 1.0))
        apart = np.array([np.sum((np.log(each.sizes) - logarithms) ** 2) for each in known])
        weights = 1.0 / (apart + 1e-6) ** 2
        return exp(float(np.sum(weights * np.log([each.rate for each in known])) / weights.sum()))

    def reading(self, nbytes: float, distance: float) -> float:
        """Return the seconds of reading data with a reuse distance of `distance` bytes."""
        return nbytes / self._bandwidth([each.read for each in self.memory], distance)

    def writing(self, nbytes: float, distance: float) -> float:
        """Return the seconds of writing to data with a reuse distance of `distance` bytes."""
        return nbytes / self._bandwidth([each.write for each in self.memory], distance)

    def _bandwidth(self, rates: Sequence[float], distance: float) -> float:
        sizes = np.log([each.bytes for each in self.memory])
        return exp(float(np.interp(log(max(distance, 1.0)), sizes, np.log(rates))))

    # --- communicating ---

    @property
    def network(self) -> Network:
        """The network of the machine's processes, a single level."""
        return Network((self.link,), self.rates["folding"])

    def measured(self, operation: Operation, size: int) -> float | None:
        """Return the measured seconds of `operation` on `size` processes; None without a curve for that size."""
        wanted = operation.name, how(operation), size
        curve = next((each for each in self.curves if (each.name, each.how, each.ranks) == wanted), None)
        return None if curve is None else curve.at(wire_bytes(operation))

    # --- files ---

    def to_toml(self) -> str:
        """Return the text of the file."""
        lines = [
            "# What a machine does in what time: seconds, bytes a second, work a second of one process.",
            f"name = {quoted(self.name)}",
            "",
            "[overhead]  # seconds",
            *_described(self.overhead, OVERHEADS),
            "",
            "[rates]  # a second",
            *_described(self.rates, RATES),
            "",
            "# A message from one process to another, fitted to the collectives below; prices all others.",
            "[link]",
            f"latency = {number_text(self.link.latency)}  # seconds",
            f"bandwidth = {number_text(self.link.bandwidth)}  # bytes a second",
            "",
            "# Bytes a second that loops read and write of what was touched so many bytes ago: caches, then memory.",
        ]
        for each in self.memory:
            lines += record_lines("memory", each)
        lines += [
            "",
            "# Matrix products, and convolutions as such: batch, rows, depth and columns; operations a second.",
        ]
        for product in self.products:
            lines += record_lines("product", product)
        lines += ["", "# Collectives as measured, on so many ranks: seconds by bytes of an operand; how they travel."]
        for curve in self.curves:
            lines += record_lines("collective", curve)
        return "\n".join(lines) + "\n"


def how(operation: Operation) -> str:
    """Return how `operation` is implemented: one of HOW."""
    if isinstance(operation, ReducingOperation):
        if operation.is_exchanged:
            return "exchanged"
        if operation.arithmetic.widened:
            return "widened"
    return "mpi"


def read_machine(path: str | Path) -> Machine:
    """Return the machine in the file at `path`; raises UsageError that names the invalid entry."""
    return _machine(FileTable.read(path))


@cache
def nominal() -> Machine:
    """Return the nominal machine: round figures of one core of a server."""
    text = resources.files("spmd.predict").joinpath("nominal.toml").read_text(encoding="utf-8")
    return _machine(FileTable.parse(text, "nominal.toml"))


def default_machine() -> Machine:
    """Return the machine of the file $SPMD_MACHINE, or the nominal one if it is not set."""
    path = os.environ.get("SPMD_MACHINE")
    return read_machine(path) if path else nominal()


def _machine(table: FileTable) -> Machine:
    link = table.table("link")
    level = Level("machine", None, link.number("latency"), link.number("bandwidth"), HALVING)
    link.done()
    memory = sorted([each.record(MemoryBandwidth) for each in table.tables("memory")], key=lambda each: each.bytes)
    if not memory:
        raise table.fault("memory", "tables, [[memory]], at least one")
    machine = Machine(
        table.text("name"),
        _numbers(table.table("overhead"), OVERHEADS),
        _numbers(table.table("rates"), RATES),
        tuple(memory),
        level,
        tuple(map(_product, table.tables("product"))),
        tuple(map(_curve, table.tables("collective"))),
    )
    table.done()
    return machine


def _numbers(table: FileTable, names: Mapping[str, str]) -> dict[str, float]:
    numbers = {name: table.number(name) for name in names}
    table.done()
    return numbers


def _product(table: FileTable) -> MeasuredProduct:
    product = table.record(MeasuredProduct)
    if len(product.sizes) != 4:
        raise table.fault("sizes", "batch, rows, depth and columns")
    return product


def _curve(table: FileTable) -> Curve:
    curve = table.record(Curve)
    if len(curve.bytes) != len(curve.seconds) or any(np.diff(curve.bytes) <= 0):
        raise UsageError(f"{table.where}: bytes must be increasing, and seconds must have as many entries")
    return curve


def _described(values: Mapping[str, float], names: Mapping[str, str]) -> Sequence[str]:
    return [f"{name} = {number_text(values[name])}  # {what}" for name, what in names.items()]
