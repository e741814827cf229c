"""Steps of a block in execution order, with their units, buffers and tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spmd.analysis.affine import Variable
from spmd.compiler.schedule.buffers import Buffer
from spmd.compiler.schedule.conv_input_fusion import Images
from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.loop_plan import PlannedNest
from spmd.compiler.schedule.target import BatchedProduct, LibraryPlan
from spmd.compiler.schedule.tasks import Cut, TaskedNest
from spmd.ir import Op, Value
from spmd.support.arrays import Array


@dataclass(eq=False, slots=True)
class Step:
    """Units executed together. `made`: buffers whose live range starts here."""

    units: Sequence[Unit]
    made: list[Buffer] = field(default_factory=list)

    @property
    def all_units(self) -> Sequence[Unit]:
        """All units, including those fused into the step."""
        return self.units

    @property
    def private(self) -> Collection[Value]:
        """Values used within the step alone, a slice at a time: they stay in cache."""
        return ()

    @property
    def blocks(self) -> Sequence[BlockSchedule]:
        """The blocks that the step runs."""
        return ()

    @property
    def ops(self) -> list[Op]:
        """All ops of the step."""
        return [op for unit in self.all_units for op in unit.ops]


@dataclass(frozen=True, slots=True)
class Initial:
    """Contents of the buffer of `result` before an update writes to it: a copy of `operand`, or its splat `element`."""

    result: Value
    operand: Value
    element: Array | None = None


@dataclass(eq=False, slots=True)
class LoopNests(Step):
    """A fused unit; updates first initialize their result buffers."""

    nests: Sequence[TaskedNest] = ()
    initial: Sequence[Initial] = ()


@dataclass(eq=False, slots=True)
class RowGroup(Step):
    """Units over the same rows, or columns, as one nest; `rows` are the bytes per row of private values.

    If the nest is cut each task has rows of its own, else they are buffers.
    """

    nest: PlannedNest = field(kw_only=True)
    cut: Cut | None = None
    outlined: bool = False
    rows: Mapping[Value, int] = field(default_factory=dict)

    @property
    def private(self) -> Collection[Value]:
        return self.rows


@dataclass(eq=False, slots=True)
class BatchRun(Step):
    """Products of `count` batches with the units between them, batch after batch, in `tasks`.

    By number of the group: `nests`, each with its batch loop, and `products`. `offsets` locate private values in the
    `room` bytes of `memory` that each task has.
    """

    groups: Sequence[Sequence[Unit]] = ()
    nests: Mapping[int, tuple[PlannedNest, Variable]] = field(default_factory=dict)
    products: Mapping[int, BatchedProduct] = field(default_factory=dict)
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
    """An op whose results alias its operands."""


@dataclass(eq=False, slots=True)
class LibraryCall(OpStep):
    """An op with native code of its own, or a library's; `images`: the fused producer of a convolution's input."""

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
    """An op run by its NumPy kernel."""


@dataclass(eq=False, slots=True)
class CallbackStep(OpStep):
    """An op that native code runs by a callback to Python."""


@dataclass(eq=False, slots=True)
class Branches(OpStep):
    """An `if` or `case`: each branch stores to the buffers of the op's results."""

    branches: Sequence[BlockSchedule] = ()

    @property
    def blocks(self) -> Sequence[BlockSchedule]:
        return self.branches


@dataclass(eq=False, slots=True)
class Carried:
    """A loop-carried value.

    `begin` is copied to `home` before the loop (None: it is there already). An iteration reads `buffer` and writes
    `successor` (None: loop-invariant). These are `home` and `spare`, of which the second is copied back to the first,
    or, if large (`swaps`), pointers to them that are exchanged.
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
class WhileLoop(OpStep):
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
    """The steps of a block. Values in `placed` end in that buffer, `results` in `targets` if given."""

    steps: Sequence[Step]
    results: Sequence[Value]
    placed: Mapping[Value, Buffer]
    targets: Sequence[Buffer] = ()

    @property
    def units(self) -> list[Unit]:
        return [unit for step in self.steps for unit in step.units]
