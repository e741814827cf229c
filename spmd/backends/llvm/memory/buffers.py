"""The memory of values while a block is written as native code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from spmd.compiler.schedule.fusion import Unit
from spmd.ir import Value
from spmd.types import TokenType

#: Bytes of a value that may lie on the stack.
SLOT = 64


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory: the name of its address, and its number in the arena (None: it lies elsewhere).

    `owned` buffers belong to the block being written: they may be overwritten when nobody reads them again.
    """

    pointer: str
    nbytes: int
    number: int | None = None
    owned: bool = False
    values: list[Value] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Frame:
    """A block while it is written: when each value is read last, and where results are to be put.

    `lent`: by value, the place of a result that is made of it. `buffers` are those that the block has made and that
    somebody may still read.
    """

    units: list[Unit]
    last_read: dict[Value, int]
    placed: dict[Value, Buffer]
    lent: dict[Value, Buffer] = field(default_factory=dict)
    index: int = 0
    buffers: dict[Buffer, None] = field(default_factory=dict)
    #: By buffer: how many values stood on it when it was looked at last, and the unit that reads them last.
    _reads: dict[Buffer, tuple[int, int]] = field(default_factory=dict)

    def is_last_read(self, buffer: Buffer) -> bool:
        """Whether nobody reads `buffer` after the unit that is being written."""
        count, last = self._reads.get(buffer, (-1, -1))
        if count != len(buffer.values):
            last = max((self.last_read.get(value, -1) for value in buffer.values), default=-1)
            self._reads[buffer] = len(buffer.values), last
        return last <= self.index


def nbytes(value: Value) -> int:
    """Bytes of a tensor as its array holds it; none of a token."""
    if isinstance(value.type, TokenType):
        return 0
    tensor = value.tensor
    return prod(tensor.static_shape) * tensor.dtype.itemsize


def through_views(placed: Mapping[Value, Buffer]) -> dict[Value, Buffer]:
    """Also the operands of views that are to be put somewhere."""
    buffers = dict(placed)
    for value, buffer in placed.items():
        op = value.defining_op
        while op is not None and op.name == "stablehlo.reshape":
            value = op.operands[0]
            buffers.setdefault(value, buffer)
            op = value.defining_op
    return buffers
