"""Buffer assignment in a native region.

Values may share a buffer: views alias their operand, and a result may overwrite an operand at its last use. Buffers of
a few bytes are stack slots; the others are in the arena, one block of memory that is passed to the region.
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

#: Largest value on the stack, and most stack of a region, in bytes.
SLOT, _STACK = 64, 1 << 16


class Home(Enum):
    """Where a buffer is located."""

    #: Memory of the caller: an input, or a result.
    ARGUMENT = "argument"
    ARENA = "arena"
    STACK = "stack"
    #: The elements of a constant.
    CONSTANT = "constant"
    #: One of two buffers exchanged by each iteration of a loop.
    SWAPPED = "swapped"


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of `nbytes`; `number` is that of the argument, or of the buffer in the arena.

    `owned` buffers belong to the block being planned and may be overwritten after their last use. `alias`: the buffer
    that this one is another name of; `array`: the elements of a constant.
    """

    home: Home
    nbytes: int
    number: int = 0
    owned: bool = False
    values: list[Value] = field(default_factory=list)
    alias: Buffer | None = None
    array: Array | None = None


@dataclass(eq=False, slots=True)
class PlanFrame:
    """State of planning a block: last uses, and assigned buffers.

    `placed` are the buffers that values must end in. `early`: the memory of a later result that an operand may occupy
    until then. `buffers` are the live ones made by the block; `made`, in order, those of the current step.
    """

    units: Sequence[Unit]
    last_read: dict[Value, int]
    placed: dict[Value, Buffer]
    early: dict[Value, Buffer] = field(default_factory=dict)
    index: int = 0
    buffers: dict[Buffer, None] = field(default_factory=dict)
    made: list[Buffer] = field(default_factory=list)
    #: By buffer: the number of values on it when last computed, and the unit of their last use.
    _reads: dict[Buffer, tuple[int, int]] = field(default_factory=dict)

    def is_last_read(self, buffer: Buffer) -> bool:
        """Return whether `buffer` is dead after the current unit."""
        count, last = self._reads.get(buffer, (-1, -1))
        if count != len(buffer.values):
            last = max((self.last_read.get(value, -1) for value in buffer.values), default=-1)
            self._reads[buffer] = len(buffer.values), last
        return last <= self.index

    def is_mine(self, buffer: Buffer) -> bool:
        """Return whether the block may overwrite `buffer` after its last use."""
        return buffer.owned and buffer in self.buffers


class BufferAssignment:
    """Buffer assignment of a region for `target`.

    With `check_memory` values that exceed the memory of this process are a CompileError that names the op. `units_of`
    are units of nested blocks that are fused already.
    """

    def __init__(
        self,
        inputs: Sequence[Value],
        target: Target,
        *,
        check_memory: bool = True,
        units_of: Mapping[Block, Sequence[Unit]] = MappingProxyType({}),
    ) -> None:
        self._units_of = units_of
        self.target = target
        self.check_memory = check_memory
        self.arena = Arena()
        self.buffer_of: dict[Value, Buffer] = {
            value: Buffer(Home.ARGUMENT, nbytes(value), place, values=[value]) for place, value in enumerate(inputs)
        }
        #: Result memory that other values may occupy before the result is stored.
        self.free: set[Buffer] = set()
        #: By convolution, the fused producer of its input.
        self.images: dict[Op, Images] = {}
        #: Depth of the block being planned; whether no block has had more than one group of units so far.
        self.depth, self.is_one_nest = 0, True
        self._stack = 0

    # --- buffers ---

    def of(self, value: Value) -> Buffer:
        """Return the buffer of `value`, which has been computed or is constant."""
        buffer = self.buffer_of.get(value)
        if buffer is None:
            array = constant_array(value.defining_op)
            assert array is not None, f"{value} has no buffer"
            buffer = self.buffer_of[value] = Buffer(Home.CONSTANT, array.nbytes, values=[value], array=array)
        return buffer

    def allocate(self, frame: PlanFrame, value: Value) -> Buffer:
        """Return a buffer for `value`: the assigned one, or a new one."""
        placed = frame.placed.get(value) or frame.early.get(value)
        if placed is not None:
            if placed in self.free:
                self.arena.offer(placed.number, placed.nbytes)
            return self.assign(value, placed)
        op = value.defining_op or frame.units[frame.index].outputs[0]
        buffer = self._made(frame, nbytes(value), str(value.type), op, owned=True)
        frame.buffers[buffer] = None
        return self.assign(value, buffer)

    def scratch(self, frame: PlanFrame, size: int) -> Buffer:
        """Return a buffer without a value that is live during the current unit."""
        buffer = self._made(frame, size, "scratch memory", frame.units[frame.index].outputs[0], owned=False)
        if buffer.home is Home.ARENA:
            buffer.owned = True
            frame.buffers[buffer] = None
        return buffer

    def _made(self, frame: PlanFrame, size: int, what: str, op: Op, *, owned: bool) -> Buffer:
        if size <= SLOT and self._stack + size <= _STACK:
            self._stack += size
            buffer = Buffer(Home.STACK, size, owned=owned)
        else:
            number = self.arena.allocate(size)
            if self.check_memory and (fault := over_memory(what, size, self.arena.needed)) is not None:
                raise CompileError(Diagnostic(op.location, fault, op.name))
            buffer = Buffer(Home.ARENA, size, number, owned=owned)
        frame.made.append(buffer)
        return buffer

    def assign(self, value: Value, buffer: Buffer) -> Buffer:
        """Assign `value` to `buffer`."""
        self.buffer_of[value] = buffer
        buffer.values.append(value)
        return buffer

    def release(self, frame: PlanFrame) -> None:
        """Release buffers that are dead."""
        for buffer in [buffer for buffer in frame.buffers if frame.is_last_read(buffer)]:
            del frame.buffers[buffer]
            if buffer.owned and buffer.home is Home.ARENA:
                self.arena.release(buffer.number)

    # --- units ---

    def units_of(self, block: Block, results: Sequence[Value]) -> Sequence[Unit]:
        """Return the units of a nested block with the given `results`."""
        return self._units_of[block] if block in self._units_of else fuse(block, results)

    def reads(self, unit: Unit) -> list[Value]:
        """Return the values that `unit` loads from memory."""
        if unit.fused:
            memory = unit.outputs[0].operands[: updated(unit.outputs[0])] if unit.is_update else ()
            loads = (load.value for nest in nests_of(unit) for load in nest.loads())
            return list(dict.fromkeys([*memory, *loads]))
        (op,) = unit.outputs
        of_images = self.images[op].nest.loads() if op in self.images else ()
        captured = captured_values(op) if op.regions else ()
        return [*op.operands, *captured, *(load.value for load in of_images)]

    def last_reads(self, units: Sequence[Unit], results: Sequence[Value]) -> dict[Value, int]:
        """Return the number of the last unit that reads each value; one past the end for results."""
        last: dict[Value, int] = {}
        for index, unit in enumerate(units):
            last.update(dict.fromkeys(self.reads(unit), index))
        last.update(dict.fromkeys(results, len(units)))
        return last


def nbytes(value: Value) -> int:
    """Return the size of a tensor's array in bytes; 0 for a token."""
    if isinstance(value.type, TokenType):
        return 0
    tensor = value.tensor
    return prod(tensor.static_shape) * tensor.dtype.itemsize


def through_views(placed: Mapping[Value, Buffer]) -> dict[Value, Buffer]:
    """Return `placed` extended to operands of reshapes of the values in it."""
    buffers = dict(placed)
    for value, buffer in placed.items():
        op = value.defining_op
        while op is not None and op.name == "stablehlo.reshape":
            value = op.operands[0]
            buffers.setdefault(value, buffer)
            op = value.defining_op
    return buffers
