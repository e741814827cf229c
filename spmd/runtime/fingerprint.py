"""A digest of what ranks that run one program must have in common, compared at the first call.

It covers the ops, their types and dataflow, the attributes of communicating ops, the grid, and the options that decide
what is communicated or which bits result. Constants and source locations may differ between processes.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collectives.agreement import Agreement
from spmd.analysis.collectives import COMMUNICATING
from spmd.compiler.pipeline.options import Options
from spmd.ir import Function, Module, Value
from spmd.ir.attributes import Attribute, DenseAttr
from spmd.types import Type

_ADVICE = (
    "where processes are meant to run different programs, compile them with mpmd=True, and their collectives alone "
    "have to match"
)


@dataclass(frozen=True)
class Fingerprint:
    """Identifies `function` of `module`, compiled with `options`, among what other processes may have compiled."""

    module: Module
    function: Function
    options: Options

    def agreement(self) -> Agreement:
        """Return the agreement that all ranks compare before the first call."""
        compared = repr((self.function.symbol, tuple(self._settings().items()))).encode()
        digest = hashlib.blake2b(compared, digest_size=16)
        for part in _structure(self.module):
            digest.update(part)
        return Agreement(self.what, digest.digest(), self._facts, _ADVICE)

    @property
    def what(self) -> str:
        """The first call, as text for messages."""
        first = next((op for op in self.function.walk() if op.name in COMMUNICATING), None)
        begins = "" if first is None else f", whose first collective is {first.name} at {first.location},"
        types = ", ".join(map(str, self.function.type.inputs))
        return f"the first call of @{self.function.symbol} at {self.function.location}{begins} on ({types})"

    def _settings(self) -> dict[str, str]:
        options = self.options
        return {
            "grid": str(options.grid),
            "reproducible": str(options.reproducible),
            "combine_threshold": str(options.combine_threshold),
            "overlap": str(options.overlap),
            "excess_precision": str(options.excess_precision),
            "check_collectives": str(options.check_collectives),
            "backends": ", ".join(options.backends),
        }

    def _facts(self) -> Mapping[str, str]:
        inputs = {f"argument {number}": str(type) for number, type in enumerate(self.function.type.inputs)}
        return self._settings() | inputs | {"program": self.module.to_string()}


def _written(value: Attribute) -> str:
    """Return an attribute as text; NumPy's printing of arrays is slow."""
    if not isinstance(value, DenseAttr):
        return str(value)
    return f"{value.type} {value.array.tobytes().hex()}"


def _structure(module: Module) -> Iterator[bytes]:
    """Yield the ops in order, with numbers of their operands and result types."""
    pieces: list[str] = []
    edges: list[int] = []
    values: dict[Value, int] = {}
    types: dict[Type, int] = {}
    known: dict[int, int] = {}  # by identity: many values share one type object
    for function in module.functions:
        pieces.append(f"@{function.symbol}{function.type}")
        for op in function.walk():
            pieces.append(op.name)
            edges += [values.setdefault(value, len(values)) for value in op.operands]
            for value in op.results:
                values.setdefault(value, len(values))
                number = known.get(id(value.type))
                if number is None:
                    number = known[id(value.type)] = types.setdefault(value.type, len(types))
                edges.append(number)
            edges.append(-1)
            if op.name in COMMUNICATING:
                pieces += [f"{key} {_written(value)}" for key, value in sorted(op.attributes.items())]
    yield "\n".join(pieces).encode()
    yield "\n".join(map(str, types)).encode()
    yield array("q", edges).tobytes()
