"""The memory of values in a native region: which buffer each stands on, and for how long.

A buffer is memory that one or more values stand on: views share their operand's, and a result may be written over an
operand that is not read again. Buffers of a few bytes are stack slots; the others lie in the arena, one block of memory
that is given to the region when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from types import MappingProxyType

from spmd.analysis.constants import constant_array
from spmd.analysis.memory import over_memory
from spmd.compiler.schedule.arena import Arena
from spmd.compiler.schedule.conv_input_fusion import Images
from spmd.compiler.schedule.fusion import Unit, fuse
from spmd.compiler.schedule.target import Target
from spmd.compiler.schedule.units import nests_of
from spmd.compiler.schedule.updates import updated
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Op, Value, captured_values
from spmd.support.arrays import Array
from spmd.types import TokenType

#: Bytes of a value that may lie on the stack, and of all that do.
SLOT, _STACK = 64, 1 << 16


class Home(Enum):
    """Where a buffer lies."""

    #: Memory that the caller gives: an input, or a result.
    ARGUMENT = "argument"
    ARENA = "arena"
    STACK = "stack"
    #: The elements of a constant.
    CONSTANT = "constant"
    #: One of two buffers that change places with every iteration of a loop.
    SWAPPED = "swapped"


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of `nbytes`; `number` is that of the argument, or of the buffer in the arena.

    `owned` buffers belong to the block that is planned: they may be overwritten when they are not read again. `alias`:
    the buffer that this one is another name of; `array`: the elements of a constant.
    """

    home: Home
    nbytes: int
    number: int = 0
    owned: bool = False
    values: list[Value] = field(default_factory=list)
    alias: Buffer | None = None
    array: Array | None = None


@dataclass(eq=False, slots=True)
class Frame:
    """A block while it is planned: when each value is read last, and where results are to be put.

    `lent`: by value, the memory of a result that is made of it. `buffers` are those that the block has made and that
    may still be read; `made`, in order, those of the step that is planned.
    """

    units: Sequence[Unit]
    last_read: dict[Value, int]
    placed: dict[Value, Buffer]
    lent: dict[Value, Buffer] = field(default_factory=dict)
    index: int = 0
    buffers: dict[Buffer, None] = field(default_factory=dict)
    made: list[Buffer] = field(default_factory=list)
    #: By buffer: how many values stood on it when it was looked at last, and the unit that reads them last.
    _reads: dict[Buffer, tuple[int, int]] = field(default_factory=dict)

    def is_last_read(self, buffer: Buffer) -> bool:
        """Whether `buffer` is not read after the unit that is being planned."""
        count, last = self._reads.get(buffer, (-1, -1))
        if count != len(buffer.values):
            last = max((self.last_read.get(value, -1) for value in buffer.values), default=-1)
            self._reads[buffer] = len(buffer.values), last
        return last <= self.index

    def is_mine(self, buffer: Buffer) -> bool:
        """Whether the block may write over `buffer` once that is not read any more."""
        return buffer.owned and buffer in self.buffers


class Memory:
    """The buffers of a region while it is planned for `target`.

    `runs_here`: they must fit into this process's memory; a CompileError names the op that needs too much. `units_of`
    are those of blocks inside whose ops are fused already.
    """

    def __init__(
        self,
        inputs: Sequence[Value],
        target: Target,
        *,
        runs_here: bool = True,
        units_of: Mapping[Block, Sequence[Unit]] = MappingProxyType({}),
    ) -> None:
        self._units_of = units_of
        self.target = target
        self.runs_here = runs_here
        self.arena = Arena()
        self.buffer_of: dict[Value, Buffer] = {
            value: Buffer(Home.ARGUMENT, nbytes(value), place, values=[value]) for place, value in enumerate(inputs)
        }
        #: Memory of results, where others may lie before they are written.
        self.free: set[Buffer] = set()
        #: By convolution, what makes its images one at a time.
        self.images: dict[Op, Images] = {}
        self._stack = 0

    # --- buffers ---

    def of(self, value: Value) -> Buffer:
        """The buffer of `value`, which is made, or constant."""
        buffer = self.buffer_of.get(value)
        if buffer is None:
            array = constant_array(value.defining_op)
            assert array is not None, f"{value} has no buffer"
            buffer = self.buffer_of[value] = Buffer(Home.CONSTANT, array.nbytes, values=[value], array=array)
        return buffer

    def allocate(self, frame: Frame, value: Value) -> Buffer:
        """A buffer for `value`: where it is to be put, or one of the block's own."""
        placed = frame.placed.get(value) or frame.lent.get(value)
        if placed is not None:
            if placed in self.free:
                self.arena.lend(placed.number, placed.nbytes)
            return self.assign(value, placed)
        op = value.defining_op or frame.units[frame.index].outputs[0]
        buffer = self._made(frame, nbytes(value), str(value.type), op, owned=True)
        frame.buffers[buffer] = None
        return self.assign(value, buffer)

    def scratch(self, frame: Frame, size: int) -> Buffer:
        """Memory without a value until the unit that is being planned is done."""
        buffer = self._made(frame, size, "scratch memory", frame.units[frame.index].outputs[0], owned=False)
        if buffer.home is Home.ARENA:
            buffer.owned = True
            frame.buffers[buffer] = None
        return buffer

    def _made(self, frame: Frame, size: int, what: str, op: Op, *, owned: bool) -> Buffer:
        if size <= SLOT and self._stack + size <= _STACK:
            self._stack += size
            buffer = Buffer(Home.STACK, size, owned=owned)
        else:
            number = self.arena.allocate(size)
            if self.runs_here and (fault := over_memory(what, size, self.arena.needed)) is not None:
                raise CompileError(Diagnostic(op.location, fault, op.name))
            buffer = Buffer(Home.ARENA, size, number, owned=owned)
        frame.made.append(buffer)
        return buffer

    def assign(self, value: Value, buffer: Buffer) -> Buffer:
        """Puts `value` on `buffer`."""
        self.buffer_of[value] = buffer
        buffer.values.append(value)
        return buffer

    def release(self, frame: Frame) -> None:
        """Frees the memory of what is not read any more."""
        for buffer in [buffer for buffer in frame.buffers if frame.is_last_read(buffer)]:
            del frame.buffers[buffer]
            if buffer.owned and buffer.home is Home.ARENA:
                self.arena.release(buffer.number)

    # --- units ---

    def units_of(self, block: Block, results: Sequence[Value]) -> Sequence[Unit]:
        """The units of a block inside, of which `results` are needed."""
        return self._units_of[block] if block in self._units_of else fuse(block, results)

    def reads(self, unit: Unit) -> list[Value]:
        """The values that `unit` reads from memory."""
        if unit.fused:
            memory = unit.outputs[0].operands[: updated(unit.outputs[0])] if unit.is_update else ()
            loads = (load.value for nest in nests_of(unit) for load in nest.loads())
            return list(dict.fromkeys([*memory, *loads]))
        (op,) = unit.outputs
        of_images = self.images[op].nest.loads() if op in self.images else ()
        captured = captured_values(op) if op.regions else ()
        return [*op.operands, *captured, *(load.value for load in of_images)]

    def last_reads(self, units: Sequence[Unit], results: Sequence[Value]) -> dict[Value, int]:
        """The number of the unit that reads each value last; one past the end for results."""
        last: dict[Value, int] = {}
        for index, unit in enumerate(units):
            last.update(dict.fromkeys(self.reads(unit), index))
        last.update(dict.fromkeys(results, len(units)))
        return last


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
