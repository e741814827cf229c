"""What ranks that run one program must have in common, in few bytes: they compare it at the first call.

The digest is of the ops, their types and how they hang together, of the attributes of what communicates, of the grid
and of those options that decide what is communicated, or which bits come out. Constants may differ between processes,
places in files may, too.
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
    """What tells `function` of `module`, compiled with `options`, from what another process may have compiled."""

    module: Module
    function: Function
    options: Options

    def agreement(self) -> Agreement:
        """What all ranks compare before the first call."""
        told = repr((self.function.symbol, tuple(self._settings().items()))).encode()
        digest = hashlib.blake2b(told, digest_size=16)
        for part in _structure(self.module):
            digest.update(part)
        return Agreement(self.what, digest.digest(), self._facts, _ADVICE)

    @property
    def what(self) -> str:
        """The first call, in words."""
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
    """An attribute in few steps: NumPy takes long to print an array."""
    if not isinstance(value, DenseAttr):
        return str(value)
    return f"{value.type} {value.array.tobytes().hex()}"


def _structure(module: Module) -> Iterator[bytes]:
    """The ops in their order, with the numbers of their operands and of their results' types."""
    words: list[str] = []
    edges: list[int] = []
    values: dict[Value, int] = {}
    types: dict[Type, int] = {}
    known: dict[int, int] = {}  # by their identity: a type is one object for many values
    for function in module.functions:
        words.append(f"@{function.symbol}{function.type}")
        for op in function.walk():
            words.append(op.name)
            edges += [values.setdefault(value, len(values)) for value in op.operands]
            for value in op.results:
                values.setdefault(value, len(values))
                number = known.get(id(value.type))
                if number is None:
                    number = known[id(value.type)] = types.setdefault(value.type, len(types))
                edges.append(number)
            edges.append(-1)
            if op.name in COMMUNICATING:
                words += [f"{key} {_written(value)}" for key, value in sorted(op.attributes.items())]
    yield "\n".join(words).encode()
    yield "\n".join(map(str, types)).encode()
    yield array("q", edges).tobytes()
