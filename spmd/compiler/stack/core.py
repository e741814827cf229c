"""Stacked values, the registry of rules, and the builder of the stacked program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from collectives.grid import ProcessGrid
from spmd.analysis.order import IN_ORDER
from spmd.compiler.pipeline.options import Options
from spmd.compiler.stack.members import Members
from spmd.dialects.core import Trait, has_trait, is_pure
from spmd.dialects.make import make_op
from spmd.dialects.op_builder import OpBuilder
from spmd.errors import CompileError, Diagnostic
from spmd.ir import AttributeValue, Block, Function, Module, Op, Region, Value, captured_values, copy_block, copy_op
from spmd.ir.attributes import UNIT
from spmd.types import UI32, FutureType, QuantizedType, TensorType, TokenType, TupleType, Type


@dataclass(frozen=True, slots=True)
class StackedValue:
    """A value of the stacked program, and whether it has the leading axis of all processes."""

    value: Value
    stacked: bool = False

    @property
    def rank(self) -> int:
        """Rank of the value on one process."""
        return self.value.tensor.rank - self.stacked

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value on one process."""
        return self.value.tensor.static_shape[self.stacked :]


#: The stacked form of a value; tuples and futures are trees of their contents.
Tree = StackedValue | tuple["Tree", ...]


@dataclass(frozen=True)
class Sent:
    """A send that awaits its recv: values, and the mask of the senders (None: all)."""

    op: Op
    values: tuple[StackedValue, ...]
    mask: Value | None


Rule = Callable[["Stacker", Op], Sequence[Tree]]

_RULES: dict[str, Rule] = {}
#: Ops whose rules also apply if no operand differs.
_ALWAYS: set[str] = set()
_FAMILIES = (
    "chlo",
    "collective",
    "communication",
    "contraction",
    "control_flow",
    "custom_call",
    "data_movement",
    "each_process",
    "elementwise",
    "indexing",
    "linear_algebra",
    "one_by_one",
    "random",
    "reduction",
)


def rule(*names: str, always: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for the ops `names`; return a decorator.

    A rule is called if an operand or captured value differs between processes; with `always` in any case. It emits ops
    and returns the stacked form of each result.
    """

    def add(stacking: Rule) -> Rule:
        for name in names:
            if name in _RULES:
                raise ValueError(f"{name} has two stacking rules")
            _RULES[name] = stacking
        if always:
            _ALWAYS.update(names)
        return stacking

    return add


@cache
def rules() -> Mapping[str, Rule]:
    """Return all rules by op name."""
    for family in _FAMILIES:
        import_module(f"spmd.compiler.stack.{family}")
    return _RULES


def leaves(tree: Tree) -> list[StackedValue]:
    """Return the leaves of a tree from left to right."""
    return [tree] if isinstance(tree, StackedValue) else [leaf for part in tree for leaf in leaves(part)]


def rebuilt(tree: Tree, values: Iterator[StackedValue]) -> Tree:
    """Return a tree of the structure of `tree` with leaves taken from `values`."""
    return next(values) if isinstance(tree, StackedValue) else tuple([rebuilt(part, values) for part in tree])


def refuse(op: Op, why: str) -> CompileError:
    """Return the error for an op that cannot be stacked."""
    return CompileError(Diagnostic(op.location, f"cannot be stacked: {why}", op.name))


class Stacker(OpBuilder):
    """Builder of the stacked program: `trees` maps values of the program to their stacked form.

    `mask`, if set, is the mask of active processes (tensor<Pxi1>): with divergent predicates processes execute both
    branches of an `if`, and results of inactive ones are ignored. `write_block` emits the ops of a block while all are
    active; `prefix` is that of the names of added functions.
    """

    def __init__(self, module: Module, options: Options, prefix: str = "each.") -> None:
        super().__init__()
        self.prefix = prefix
        self.write_block: Callable[[Stacker, Block], None] = write_in_order
        #: Post-processes the results of each op, given the number of its first emitted op.
        self.after_op: Callable[[Stacker, Op, int, Sequence[Tree]], Sequence[Tree]] | None = None
        self.module = module
        self.options = options
        self.grid: ProcessGrid = options.grid
        #: The ranks of the rows of stacked values.
        self.row_ranks: Sequence[int] = range(options.grid.size)
        self.trees: dict[Value, Tree] = {}
        self.mask: Value | None = None
        #: Processes of other programs, which do not take part.
        self.absent: frozenset[int] = frozenset()
        #: Unmatched sends, by channel.
        self.channels: dict[int, list[Sent]] = {}
        #: Sends and recvs of each channel so far, and whether they were masked.
        self.transfers: dict[tuple[int, str], dict[Op, bool]] = {}
        #: Masks of the enclosing loops, outermost first; None: all processes.
        self.loop_masks: list[Value | None] = []
        #: Process groups by the id of the object that holds them, which is kept alive here.
        self.members: dict[int, tuple[Any, Members]] = {}
        #: Functions that the program calls for single processes.
        self.functions: list[Function] = []
        #: Ops run process by process, as an ordered set.
        self.serial: dict[Op, None] = {}
        self._rules = rules()
        #: The name of the op being emitted.
        self.name = ""

    @property
    def size(self) -> int:
        """Rows of stacked values."""
        return len(self.row_ranks)

    def new_symbol(self, op: Op) -> str:
        """Return a new function name, derived from `op`."""
        return f"{self.prefix}{op.name.rpartition('.')[2]}.{len(self.functions)}"

    def sent(self) -> dict[int, tuple[Sent, ...]]:
        """Return the unmatched sends, by channel."""
        return {channel: tuple(queue) for channel, queue in self.channels.items() if queue}

    # --- stacked forms of values

    def leaf(self, value: Value) -> StackedValue:
        """Return the stacked form of a value that is no tuple or future."""
        tree = self.trees[value]
        assert isinstance(tree, StackedValue)
        return tree

    def all_leaves(self, values: Sequence[Value]) -> list[StackedValue]:
        return [leaf for value in values for leaf in leaves(self.trees[value])]

    def differs(self, op: Op) -> bool:
        """Return whether an operand or captured value differs between processes."""
        return any(leaf.stacked for leaf in self.all_leaves(read_by(op)))

    def captures_differ(self, op: Op) -> bool:
        return any(leaf.stacked for leaf in self.all_leaves(captured_values(op)))

    def type_of(self, type: Type, *, stacked: bool = True) -> Type:
        """Return the stacked type: with the leading axis. CompileError for types that cannot be stacked."""
        if not stacked or isinstance(type, TokenType):
            return type
        if isinstance(type, TupleType):
            return TupleType(tuple(map(self.type_of, type.types)))
        if not isinstance(type, TensorType):
            raise self._refusal(f"a value of type {type}")
        if not type.is_static:
            raise self._refusal(f"the shape of {type} is dynamic")
        return TensorType((self.size, *type.static_shape), _moved(type.element_type))

    def _refusal(self, why: str) -> CompileError:
        return CompileError(Diagnostic(self.location, f"cannot be stacked: {why}", self.name))

    def tensor_of(self, type: Type) -> TensorType:
        tensor_type = self.type_of(type)
        assert isinstance(tensor_type, TensorType)
        return tensor_type

    def stack(self, leaf: StackedValue) -> Value:
        """Return the value with the leading axis, broadcast if it is the same for all processes."""
        if leaf.stacked or isinstance(leaf.value.type, TokenType):
            return leaf.value
        stacked_type = self.tensor_of(leaf.value.type)
        return self.one(
            "broadcast_in_dim", [leaf.value], stacked_type, broadcast_dimensions=tuple(range(1, stacked_type.rank))
        )

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Return `value` reshaped; reshapes of it are skipped."""
        op = value.defining_op
        while op is not None and op.name == "stablehlo.reshape":
            value = op.operands[0]
            op = value.defining_op
        return super().reshape(value, shape)

    def insert_behind(self, op: Op, new: Op) -> None:
        """Insert `new` after `op` in the current block; append it if `op` is in another one, or watched."""
        if self.after_op is None and op in self.ops:
            self.ops.insert(self.ops.index(op) + 1, new)
        else:
            self.ops.append(new)

    def along(self, leaf: StackedValue, shape: Sequence[int]) -> Value:
        """Return a scalar broadcast to `shape`, per process if it differs."""
        if not shape:
            return leaf.value
        if not leaf.stacked:
            return self.broadcast(leaf.value, shape)
        type = leaf.value.tensor.with_shape((self.size, *shape))
        return self.one("broadcast_in_dim", [leaf.value], type, broadcast_dimensions=(0,))

    # --- traversal

    def run(self, block: Block, arguments: Sequence[Tree]) -> list[Tree]:
        """Emit `block` on `arguments`; return its results."""
        self.trees.update(zip(block.arguments, arguments, strict=True))
        if self.mask is None:
            self.write_block(self, block)
        else:
            write_in_order(self, block)
        return [self.trees[value] for value in block.terminator.operands]

    def apply(self, op: Op) -> None:
        self.location, self.name = op.location, op.name
        start = len(self.ops)
        results = self._results(op)
        if self.after_op is not None:
            results = self.after_op(self, op, start, results)
        self.trees.update(zip(op.results, results, strict=True))

    def _results(self, op: Op) -> Sequence[Tree]:
        stacking = self._rules.get(op.name)
        if stacking is None and not is_pure(op):
            return self._rules["effects"](self, op)
        if op.name not in _ALWAYS and not self.differs(op):
            return self.copied(op)
        if stacking is None and has_trait(op, Trait.ELEMENTWISE):
            stacking = self._rules["elementwise"]
        return (stacking or self._rules["otherwise"])(self, op)

    def copied(self, op: Op) -> list[Tree]:
        """Emit the op unchanged: its results are the same for all processes."""
        copy = copy_op(op, {value: self.packed(self.trees[value]) for value in read_by(op)})
        self.ops.append(copy)
        return [self.unpacked(value) for value in copy.results]

    def lifted(
        self, op: Op, operands: Sequence[Value], attributes: Mapping[str, AttributeValue] | None = None
    ) -> list[Tree]:
        """Emit the op with the leading axis in all results; values captured by regions must be uniform."""
        types = [self.type_of(type) for type in op.result_types]
        op_attributes = dict(op.attributes) if attributes is None else {**op.attributes, **attributes}
        lifted_op = op.clone(operands, types, self.regions_of(op), op_attributes)
        self.ops.append(lifted_op)
        return [StackedValue(value, True) for value in lifted_op.results]

    def regions_of(self, op: Op) -> list[Region]:
        """Return copies of the op's regions with captured values replaced by their stacked forms."""
        values = {value: self.packed(self.trees[value]) for value in captured_values(op)}
        return [Region(copy_block(block, dict(values)) for block in region.blocks) for region in op.regions]

    def packed(self, tree: Tree) -> Value:
        """Return a tree as one value."""
        if isinstance(tree, StackedValue):
            return tree.value
        parts = [self.packed(part) for part in tree]
        return self.op("stablehlo.tuple", parts, [TupleType(tuple([part.type for part in parts]))]).results[0]

    def unpacked(self, value: Value, *, stacked: bool = False) -> Tree:
        """Return a value as a tree."""
        if isinstance(value.type, FutureType):
            raise self._refusal("a future without a start")
        if not isinstance(value.type, TupleType):
            return StackedValue(value, stacked and isinstance(value.type, TensorType))
        parts = [self.one("get_tuple_element", [value], type, index=i) for i, type in enumerate(value.type.types)]
        return tuple([self.unpacked(part, stacked=stacked) for part in parts])

    def position(self, dimension: int) -> StackedValue:
        """Return the coordinate of each process along a dimension of the grid, ui32."""
        shape = (self.grid.num_replicas, self.grid.num_partitions)
        if shape[dimension] == 1:
            return StackedValue(self.splat(0, TensorType((), UI32)))
        positions = self.one("iota", (), TensorType(shape, UI32), iota_dimension=dimension)
        return StackedValue(self.reshape(positions, (self.size,)), True)

    # --- regions of the stacked program

    @contextmanager
    def block(self, types: Sequence[Type] = ()) -> Iterator[Block]:
        """Emit ops into a new block within the `with`."""
        inner = Block(types)
        ops, self.ops = self.ops, inner.ops
        try:
            yield inner
        finally:
            self.ops = ops

    def finish(self, values: Sequence[Value]) -> None:
        """Terminate the current block."""
        self.ops.append(make_op("stablehlo.return", values, location=self.location))

    @contextmanager
    def masked(self, mask: Value | None) -> Iterator[None]:
        """Set the mask of active processes within the `with`."""
        before, self.mask = self.mask, mask
        try:
            yield
        finally:
            self.mask = before

    def any_active(self, mask: Value) -> Value:
        """Return whether any process is in `mask`, as a scalar i1."""
        return self.reduce("stablehlo.or", mask, self.splat(False, mask.tensor.with_shape(())), (0,))

    def chosen(self, mask: Value, on_true: StackedValue, on_false: StackedValue) -> StackedValue:
        """Return `on_true` for processes in `mask`, `on_false` for others."""
        if on_true == on_false or isinstance(on_true.value.type, TokenType):
            return on_true
        on = [self.stack(on_true), self.stack(on_false)]
        predicate = self.along(StackedValue(mask, True), on[0].tensor.static_shape[1:])
        return StackedValue(self.select(predicate, on[0], on[1]), True)

    def type_of_one(self, type: TensorType) -> TensorType:
        """Return the type on one process of a value that differs."""
        return TensorType(type.shape[1:], _moved(type.element_type, -1))

    def in_order(self, op: Op) -> None:
        """Mark a reduction as ordered."""
        op.discardable = {**op.discardable, IN_ORDER: UNIT}

    def ranks(self, values: ArrayLike, dtype: DTypeLike = np.int64) -> Value:
        """Return a constant with one entry per process."""
        return self.constant(np.asarray(values, dtype))


def write_in_order(stacker: Stacker, block: Block) -> None:
    """Emit the ops of a block in order."""
    for op in block.ops[:-1]:
        stacker.apply(op)


def read_by(op: Op) -> list[Value]:
    """Return the distinct operands and captured values of `op`."""
    return [*dict.fromkeys((*op.operands, *(captured_values(op) if op.regions else ())))]


def _moved(element: Type, by: int = 1) -> Type:
    """Return a quantized element type with its dimensions shifted."""
    if not isinstance(element, QuantizedType):
        return element
    axis, blocks = element.quantization_dimension, element.block_sizes
    if axis is None and not blocks:
        return element
    if blocks:
        shape = (1, *element.block_shape) if by > 0 else element.block_shape[1:]
        return replace(element, block_sizes=tuple((d + by, size) for d, size in blocks), block_shape=shape)
    assert axis is not None
    return replace(element, quantization_dimension=axis + by)
