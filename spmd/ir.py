"""The program as data: modules, functions, regions, blocks, ops, values.

The shape is MLIR's: an op has operands, attributes, regions and results; a region has blocks; a block has arguments
and ops. `Module` and `Function` are ops with names for their parts. Source: specification, "Programs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spmd.attributes import Attribute, DictAttr
from spmd.errors import UNKNOWN, Location
from spmd.types import FunctionType, TensorType, Type

if TYPE_CHECKING:
    from spmd.dialects.core import OpDef


class Value:
    """What an op gives or a block takes. `owner` is that op or block, `index` the position, `name` the source's."""

    __slots__ = ("index", "name", "owner", "type")

    def __init__(self, type: Type, owner: Op | Block | None = None, index: int = 0, name: str | None = None) -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.name = name

    @property
    def tensor(self) -> TensorType:
        """The type, known to be a tensor; TypeError otherwise."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"value of type {self.type} where a tensor is needed")
        return self.type

    @property
    def defining_op(self) -> Op | None:
        """The op that gives this value; None for a block argument."""
        return self.owner if isinstance(self.owner, Op) else None

    def __repr__(self) -> str:
        return f"<%{self.name or '?'}: {self.type}>"


class Block:
    """Arguments and a list of ops, the last one the terminator."""

    __slots__ = ("arguments", "ops")

    def __init__(self, argument_types: Iterable[Type] = (), ops: Iterable[Op] = ()) -> None:
        self.arguments = [Value(type, self, index) for index, type in enumerate(argument_types)]
        self.ops: list[Op] = list(ops)

    def add_argument(self, type: Type, name: str | None = None) -> Value:
        value = Value(type, self, len(self.arguments), name)
        self.arguments.append(value)
        return value

    @property
    def terminator(self) -> Op:
        """The last op; ValueError when the block is empty."""
        if not self.ops:
            raise ValueError("block has no ops")
        return self.ops[-1]


class Region:
    """Blocks. Every region of StableHLO has one; a declaration's body has none."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.blocks = list(blocks)

    @property
    def block(self) -> Block:
        """The only block; ValueError otherwise."""
        if len(self.blocks) != 1:
            raise ValueError(f"region has {len(self.blocks)} blocks where one is needed")
        return self.blocks[0]


class Op:
    """An operation.

    `attributes` holds the values of declared attributes, decoded to plain Python (int, str, tuple, array, ...);
    `discardable` every other attribute in MLIR's form. `definition` is the declaration, None for an op of an
    unknown dialect, whose attributes are then all in `discardable`.
    """

    __slots__ = (
        "attributes",
        "debug_location",
        "definition",
        "discardable",
        "location",
        "name",
        "operands",
        "regions",
        "results",
    )

    def __init__(
        self,
        name: str,
        operands: Iterable[Value] = (),
        result_types: Iterable[Type] = (),
        attributes: dict[str, Any] | None = None,
        regions: Iterable[Region] = (),
        *,
        definition: OpDef | None = None,
        discardable: dict[str, Attribute] | None = None,
        location: Location = UNKNOWN,
        debug_location: str | None = None,
    ) -> None:
        self.name = name
        self.operands = list(operands)
        self.results = [Value(type, self, index) for index, type in enumerate(result_types)]
        self.attributes: dict[str, Any] = {} if attributes is None else attributes
        self.discardable: dict[str, Attribute] = {} if discardable is None else discardable
        self.regions = list(regions)
        self.definition = definition
        self.location = location
        self.debug_location = debug_location

    def __getitem__(self, name: str) -> Any:
        """The value of declared attribute `name`, or its declared default."""
        if name in self.attributes:
            return self.attributes[name]
        if self.definition is None:
            raise KeyError(name)
        return self.definition.default(self, name)

    def has(self, name: str) -> bool:
        """Whether declared attribute `name` was given."""
        return name in self.attributes

    def operand(self, name: str) -> Value:
        """The operand declared as `name` (not variadic, or variadic with one value)."""
        values = self.operand_group(name)
        if len(values) != 1:
            raise ValueError(f"{self.name}: {len(values)} operands {name} where one is needed")
        return values[0]

    def operand_group(self, name: str) -> list[Value]:
        """The operands declared as `name`, as many as there are."""
        assert self.definition is not None
        return self.operands[self.definition.operand_slice(self, name)]

    def region(self, name: str) -> Region:
        """The region declared as `name`."""
        assert self.definition is not None
        return self.regions[self.definition.region_index(name)]

    @property
    def result(self) -> Value:
        """The only result; ValueError otherwise."""
        if len(self.results) != 1:
            raise ValueError(f"{self.name} has {len(self.results)} results where one is needed")
        return self.results[0]

    @property
    def operand_types(self) -> list[Type]:
        return [value.type for value in self.operands]

    @property
    def result_types(self) -> list[Type]:
        return [value.type for value in self.results]

    def walk(self) -> Iterator[Op]:
        """This op and all below it, each before what is inside it."""
        stack: list[Iterator[Op]] = [iter((self,))]
        while stack:
            op = next(stack[-1], None)
            if op is None:
                stack.pop()
                continue
            yield op
            if op.regions:
                stack.append(iter([inner for region in op.regions for block in region.blocks for inner in block.ops]))

    def clone(
        self,
        operands: Sequence[Value],
        result_types: Sequence[Type] | None = None,
        regions: Iterable[Region] | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> Op:
        """The same op on other operands; result types, regions and attributes replaced where given."""
        made = Op(
            self.name,
            operands,
            self.result_types if result_types is None else result_types,
            dict(self.attributes) if attributes is None else attributes,
            self.regions if regions is None else regions,
            definition=self.definition,
            discardable=dict(self.discardable),
            location=self.location,
            debug_location=self.debug_location,
        )
        for old, new in zip(self.results, made.results, strict=False):
            new.name = old.name
        return made

    def __repr__(self) -> str:
        return f"<{self.name} at {self.location}>"

    def __str__(self) -> str:
        from spmd.syntax import print_op

        return print_op(self)

    def to_string(self, *, generic: bool = False, keep_names: bool = False) -> str:
        """The op as text: pretty or generic form; `keep_names` keeps the source's value names."""
        from spmd.syntax import print_op

        return print_op(self, generic=generic, keep_names=keep_names)


class Function(Op):
    """`func.func`."""

    __slots__ = ()

    @property
    def symbol(self) -> str:
        return str(self.attributes["sym_name"])

    @property
    def type(self) -> FunctionType:
        declared = self.attributes["function_type"]
        assert isinstance(declared, FunctionType)
        return declared

    @property
    def is_public(self) -> bool:
        return bool(self.attributes.get("sym_visibility", "public") == "public")

    @property
    def is_declaration(self) -> bool:
        return not self.regions or not self.regions[0].blocks

    @property
    def body(self) -> Block:
        return self.regions[0].block

    @property
    def arguments(self) -> list[Value]:
        return self.body.arguments

    @property
    def argument_attributes(self) -> list[Mapping[str, Attribute]]:
        """The attribute dictionary of each argument, empty where it has none."""
        return self._dictionaries("arg_attrs", len(self.type.inputs))

    @property
    def result_attributes(self) -> list[Mapping[str, Attribute]]:
        return self._dictionaries("res_attrs", len(self.type.results))

    def _dictionaries(self, name: str, count: int) -> list[Mapping[str, Attribute]]:
        given: Sequence[DictAttr] = self.attributes.get(name) or ()
        return [entry.entries for entry in given] if given else [{} for _ in range(count)]


class Module(Op):
    """`builtin.module`: a table of symbols."""

    __slots__ = ()

    @property
    def body(self) -> Block:
        return self.regions[0].block

    @property
    def symbol(self) -> str | None:
        return self.attributes.get("sym_name")

    @property
    def functions(self) -> list[Function]:
        return [op for op in self.body.ops if isinstance(op, Function)]

    @property
    def symbols(self) -> dict[str, Op]:
        """Ops of this module that have a symbol, by it."""
        return {op.attributes["sym_name"]: op for op in self.body.ops if op.attributes.get("sym_name") is not None}

    def function(self, name: str) -> Function:
        """The function `name`; KeyError that lists the ones there are."""
        for function in self.functions:
            if function.symbol == name:
                return function
        known = ", ".join("@" + function.symbol for function in self.functions) or "none"
        raise KeyError(f"no function @{name} in the module; its functions: {known}")


#: Classes of ops that have names for their parts.
OP_CLASSES: dict[str, type[Op]] = {"func.func": Function, "builtin.module": Module}


def new_op(name: str, *args: Any, **kwargs: Any) -> Op:
    """An `Op`, or the class made for ops of that name."""
    return OP_CLASSES.get(name, Op)(name, *args, **kwargs)


def copy_block(block: Block, values: dict[Value, Value], transform: Callable[[Op], Op] | None = None) -> Block:
    """A deep copy of `block`; `values` maps outer values and is filled with the copies."""
    made = Block(argument.type for argument in block.arguments)
    for old, new in zip(block.arguments, made.arguments, strict=True):
        new.name = old.name
        values[old] = new
    for op in block.ops:
        copied = copy_op(op, values)
        made.ops.append(transform(copied) if transform else copied)
    return made


def copy_op(op: Op, values: dict[Value, Value]) -> Op:
    """A deep copy of `op`, its operands looked up in `values` (an unmapped one stays)."""
    operands = [values.get(operand, operand) for operand in op.operands]
    regions = [Region(copy_block(block, values) for block in region.blocks) for region in op.regions]
    made = new_op(
        op.name,
        operands,
        op.result_types,
        dict(op.attributes),
        regions,
        definition=op.definition,
        discardable=dict(op.discardable),
        location=op.location,
        debug_location=op.debug_location,
    )
    for old, new in zip(op.results, made.results, strict=True):
        new.name = old.name
        values[old] = new
    return made


def captured_values(op: Op) -> list[Value]:
    """Values that the regions of `op` use and that are defined outside of `op`, each once, in order of first use."""
    defined: set[Value] = set()
    used: dict[Value, None] = {}
    for region in op.regions:
        for block in region.blocks:
            defined.update(block.arguments)
            for inner in block.ops:
                for nested in inner.walk():
                    used.update(dict.fromkeys(nested.operands))
                    defined.update(nested.results)
                    for inner_region in nested.regions:
                        for inner_block in inner_region.blocks:
                            defined.update(inner_block.arguments)
    return [value for value in used if value not in defined]
