"""What runs, in order: the steps of a block, each with its units, its buffers and how it is cut for threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spmd.analysis.affine import Variable
from spmd.compiler.schedule.buffers import Buffer
from spmd.compiler.schedule.conv_input_fusion import Images
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.nest import Nest
from spmd.compiler.schedule.target import LibraryPlan
from spmd.compiler.schedule.tasks import Cut, TaskedNest
from spmd.ir import Op, Value
from spmd.support.arrays import Array


@dataclass(eq=False, slots=True)
class Step:
    """Units that run as one. `made`: the buffers that are used from here on, in order."""

    units: Sequence[Unit]
    made: list[Buffer] = field(default_factory=list)

    @property
    def all_units(self) -> Sequence[Unit]:
        """The units of the block that the step was made of."""
        return self.units

    @property
    def private(self) -> Collection[Value]:
        """What only the step reads, a part at a time: it stays in the cache."""
        return ()

    @property
    def blocks(self) -> Sequence[BlockSchedule]:
        """The blocks that the step runs."""
        return ()

    @property
    def ops(self) -> list[Op]:
        """All that the step runs."""
        return [op for unit in self.all_units for op in unit.ops]


@dataclass(frozen=True, slots=True)
class Initial:
    """What the buffer of `result` holds before an update writes into it: a copy of `operand`, or its one `element`."""

    result: Value
    operand: Value
    element: Array | None = None


@dataclass(eq=False, slots=True)
class LoopNests(Step):
    """A fused unit; an update first brings its results' buffers to what they begin with."""

    nests: Sequence[TaskedNest] = ()
    initial: Sequence[Initial] = ()


@dataclass(eq=False, slots=True)
class RowGroup(Step):
    """Units over the same rows, or columns, as one nest; `rows` are the bytes of one row of what only they read.

    Where the nest is cut each task has rows of its own, else they are among the buffers.
    """

    nest: Nest = field(kw_only=True)
    cut: Cut | None = None
    rows: Mapping[Value, int] = field(default_factory=dict)

    @property
    def private(self) -> Collection[Value]:
        return self.rows


@dataclass(eq=False, slots=True)
class BatchRun(Step):
    """Products of `count` batches with what is computed between them, batch after batch, in `tasks`.

    `nests`, by number of the group, come with the loop that goes over the batches. `offsets` are those of what only
    these units read, in the `room` bytes of `memory` that each task has.
    """

    groups: Sequence[Sequence[Unit]] = ()
    nests: Mapping[int, tuple[Nest, Variable]] = field(default_factory=dict)
    count: int = 0
    tasks: int = 1
    offsets: Mapping[Value, int] = field(default_factory=dict)
    room: int = 0
    memory: Buffer = field(kw_only=True)

    @property
    def private(self) -> Collection[Value]:
        return self.offsets


@dataclass(eq=False, slots=True)
class OpStep(Step):
    """One op that is no loop nest."""

    @property
    def op(self) -> Op:
        (op,) = self.units[0].outputs
        return op


@dataclass(eq=False, slots=True)
class ViewStep(OpStep):
    """Its results are its operands in memory, seen in another shape."""


@dataclass(eq=False, slots=True)
class LibraryCall(OpStep):
    """An op with native code of its own, or that of a library; `images`: what makes a convolution's images."""

    plan: LibraryPlan = field(default_factory=LibraryPlan)
    scratch: Sequence[Buffer] = ()
    images: Images | None = None

    @property
    def all_units(self) -> Sequence[Unit]:
        return self.units if self.images is None else [self.images.unit, *self.units]

    @property
    def private(self) -> Collection[Value]:
        return () if self.images is None else (self.images.value,)


@dataclass(eq=False, slots=True)
class KernelCall(OpStep):
    """An op that Python runs, by a kernel of its own."""


@dataclass(eq=False, slots=True)
class Callback(OpStep):
    """An op that Python runs on behalf of native code."""


@dataclass(eq=False, slots=True)
class Branches(OpStep):
    """An `if` or `case`: each branch writes its results where the op's are."""

    branches: Sequence[BlockSchedule] = ()

    @property
    def blocks(self) -> Sequence[BlockSchedule]:
        return self.branches


@dataclass(eq=False, slots=True)
class Carried:
    """A value that a loop carries.

    `begin` is copied to `home` before the loop (None: it lies there). An iteration finds the value in `buffer` and
    makes the next one in `successor` (None: it stays as it is). Both are `home` and `spare` themselves, of which the
    second is copied to the first, or, where they are large (`swaps`), addresses that change places.
    """

    argument: Value
    result: Value
    begin: Buffer | None
    home: Buffer
    spare: Buffer | None
    buffer: Buffer
    successor: Buffer | None

    @property
    def swaps(self) -> bool:
        return self.buffer is not self.home


@dataclass(eq=False, slots=True)
class Loop(OpStep):
    """A `while`. `work`: operations and bytes of an iteration."""

    carried: Sequence[Carried] = ()
    condition: BlockSchedule = field(kw_only=True)
    body: BlockSchedule = field(kw_only=True)
    work: int = 0

    @property
    def blocks(self) -> Sequence[BlockSchedule]:
        return self.condition, self.body


@dataclass(eq=False, slots=True)
class BlockSchedule:
    """The steps of a block. Each value in `placed` is in that buffer in the end, `results` in `targets` if given."""

    steps: Sequence[Step]
    results: Sequence[Value]
    placed: Mapping[Value, Buffer]
    targets: Sequence[Buffer] = ()
    is_one_group: bool = False

    @property
    def units(self) -> list[Unit]:
        return [unit for step in self.steps for unit in step.units]
