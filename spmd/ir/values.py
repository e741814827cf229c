"""Values, and the blocks and regions that define them. Source: specification, "Programs"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from spmd.types import TensorType, Type

if TYPE_CHECKING:
    from spmd.ir.op import Op


class Value:
    """An op's result or a block's argument.

    An op with one result is that result itself; a block's arguments, and the results of an op that has several, are
    `NumberedValue`s. A plain `Value` has no owner: it stands for an operand of some type.
    """

    __slots__ = ("type",)

    def __init__(self, type: Type) -> None:
        self.type = type

    @property
    def owner(self) -> Op | Block | None:
        """The op or block that defines the value."""
        return None

    @property
    def index(self) -> int:
        """The index among the values that `owner` defines."""
        return 0

    @property
    def name_hint(self) -> str | None:
        """The source's name of the value, without `%`; None where it has none."""
        return None

    @name_hint.setter
    def name_hint(self, name: str | None) -> None:
        raise TypeError("a value without an owner has no name")

    @property
    def tensor(self) -> TensorType:
        """The type as a `TensorType`; TypeError for any other type."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"value of type {self.type} where a tensor is needed")
        return self.type

    @property
    def defining_op(self) -> Op | None:
        """The op that defines this value; None for a block argument."""
        owner = self.owner
        return None if owner is None or isinstance(owner, Block) else owner

    def __repr__(self) -> str:
        return f"<%{self.name_hint or '?'}: {self.type}>"


class NumberedValue(Value):
    """An argument of a block, or a result of an op that has several."""

    __slots__ = ("_located", "index", "name_hint", "owner")
    owner: Op | Block | None
    index: int
    name_hint: str | None
    _located: str | Callable[[], str | None] | None

    def __init__(self, type: Type, owner: Op | Block | None, index: int, name_hint: str | None = None) -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.name_hint = name_hint
        self._located = None

    @property
    def debug_location(self) -> str | None:
        """The text of a block argument's `loc(...)`."""
        return self._located() if callable(self._located) else self._located

    def locate(self, text: str | Callable[[], str | None] | None) -> None:
        """Sets the text of the argument's `loc(...)`, or the function that computes it on first use."""
        self._located = text

    def locate_like(self, other: NumberedValue) -> None:
        """Copies the `loc(...)` of `other` to this argument."""
        self._located = other._located


class Block:
    """Arguments and a list of ops, the last of which is the terminator."""

    __slots__ = ("arguments", "ops")

    def __init__(self, argument_types: Iterable[Type] = (), ops: Iterable[Op] = ()) -> None:
        types = enumerate(argument_types)
        self.arguments: tuple[Value, ...] = tuple([NumberedValue(type, self, index) for index, type in types])
        self.ops: list[Op] = list(ops)

    def add_argument(self, type: Type, name: str | None = None) -> NumberedValue:
        """Appends an argument of `type`; `name`, without `%`, is its name hint."""
        value = NumberedValue(type, self, len(self.arguments), name)
        self.arguments += (value,)
        return value

    def set_arguments(self, arguments: Iterable[Value]) -> None:
        """Replaces the block's arguments by `arguments`, of this block or another."""
        self.arguments = tuple(arguments)
        for index, argument in enumerate(self.arguments):
            assert isinstance(argument, NumberedValue)
            argument.owner, argument.index = self, index

    @property
    def terminator(self) -> Op:
        """The last op; ValueError when the block is empty."""
        if not self.ops:
            raise ValueError("block has no ops")
        return self.ops[-1]

    def walk(self) -> Iterator[Op]:
        """Yield the block's ops and all ops nested in them, in pre-order."""
        for op in self.ops:
            yield from op.walk()


class Region:
    """A list of blocks: one in every region of StableHLO, none in the body of a declaration."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.blocks = tuple(blocks)

    @property
    def block(self) -> Block:
        """The only block; ValueError otherwise."""
        if len(self.blocks) != 1:
            raise ValueError(f"region has {len(self.blocks)} blocks where one is needed")
        return self.blocks[0]
