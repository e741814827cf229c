"""The program as data: modules, functions, regions, blocks, ops, values.

The shape is MLIR's: an op has operands, attributes, regions and results; a region has blocks; a block has arguments
and ops. `Module` and `Function` are ops with names for their parts. Source: specification, "Programs".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from spmd.attributes import Attribute, DictAttr, IntegerAttr
from spmd.errors import UNKNOWN, Location
from spmd.types import FunctionType, TensorType, Type

if TYPE_CHECKING:
    from spmd.dialects.core import OpDef


#: How many types, or functions, a repr shows.
_MOST_SHOWN = 6
#: The attributes of an op that has none.
NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


class Value:
    """What an op gives or a block takes.

    An op with one result is that result itself; a block's arguments, and the results of an op that has several, are
    `NumberedValue`s. A plain `Value` is nobody's: it stands for an operand of some type.
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
        """The place among the values that `owner` defines."""
        return 0

    @property
    def name_hint(self) -> str | None:
        """The source's name of the value, without `%`; None where it has none."""
        return None

    @name_hint.setter
    def name_hint(self, name: str | None) -> None:
        raise TypeError("a value that nobody defines has no name")

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
        return f"<%{self.name_hint or '?'}: {self.type}>"


class NumberedValue(Value):
    """One of the values that a block takes, or that an op with several results gives."""

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
        """Says what the text of the argument's `loc(...)` is, or how it is found out when somebody asks."""
        self._located = text


class Block:
    """Arguments and a list of ops, the last one the terminator."""

    __slots__ = ("arguments", "ops")

    def __init__(self, argument_types: Iterable[Type] = (), ops: Iterable[Op] = ()) -> None:
        types = enumerate(argument_types)
        self.arguments: tuple[Value, ...] = tuple([NumberedValue(type, self, index) for index, type in types])
        self.ops: list[Op] = list(ops)

    def add_argument(self, type: Type, name: str | None = None) -> NumberedValue:
        value = NumberedValue(type, self, len(self.arguments), name)
        self.arguments += (value,)
        return value

    def set_arguments(self, arguments: Iterable[Value]) -> None:
        """Makes `arguments` of this or another block all that the block takes."""
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


class Region:
    """Blocks. Every region of StableHLO has one; a declaration's body has none."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self.blocks = tuple(blocks)

    @property
    def block(self) -> Block:
        """The only block; ValueError otherwise."""
        if len(self.blocks) != 1:
            raise ValueError(f"region has {len(self.blocks)} blocks where one is needed")
        return self.blocks[0]


class SourcePage(Protocol):
    """A stretch of the text or file that ops were read from: knows the places in it by small numbers."""

    def location(self, token: int) -> Location:
        """The place of token `token` of the page."""

    def name_hint(self, token: int) -> str | None:
        """The name, without `%`, of the one result of the op whose own name is token `token`."""

    def debug_location(self, token: int) -> str | None:
        """The text of the op's `loc(...)`, where it is not kept with the op itself."""


class OpPrinter(Protocol):
    """What gives an op's text: see `Op.to_string`."""

    def __call__(self, op: Op, *, generic: bool = False, keep_names: bool = False, debug_info: bool = False) -> str: ...


_printers: list[OpPrinter] = []


def register_printer(printer: OpPrinter) -> None:
    """Makes `printer` what prints ops: the syntax, which stands above, does so when it is loaded."""
    _printers.append(printer)


@dataclass(frozen=True, slots=True)
class OpExtras:
    """What few ops have. Equal ones may be shared: nothing in it changes."""

    name: str = ""  # of an op without a declaration
    results: tuple[Value, ...] | None = None  # of an op that has not just one
    regions: tuple[Region, ...] = ()
    discardable: Mapping[str, Attribute] = field(default_factory=lambda: NO_ATTRIBUTES)
    debug_location: str | None = None
    name_hint: str | None = None


_NO_EXTRAS = OpExtras()
_NO_RESULTS = OpExtras(results=())


class Op(Value):
    """An operation; with one result, it is also the value of that result.

    `attributes` holds the values of declared attributes, decoded to plain Python (int, str, tuple, array, ...);
    `discardable` every other attribute in MLIR's form. `definition` is the declaration, None for an op of an
    unknown dialect, whose attributes are then all in `discardable`.

    Programs have very many ops, so an op is small: what it is made of is tuples and mappings that equal ops share.
    They are never changed, only put in place of others. How the slots are packed is known in this class alone:

    _operands   the value of one operand itself, a tuple of any other number of them
    _place      a Location; or, for an op that was read, the SourcePage that knows its places by numbers
    _token      the number of the op's name on that page
    _extras     None for most ops, which have one result and nothing else; what the others have besides
    """

    __slots__ = ("_extras", "_operands", "_place", "_token", "attributes", "definition")
    may_be_value = True

    def __init__(
        self,
        name: str,
        operands: Iterable[Value] = (),
        result_types: Iterable[Type] = (),
        attributes: Mapping[str, Any] | None = None,
        regions: Iterable[Region] = (),
        definition: OpDef | None = None,
        discardable: Mapping[str, Attribute] | None = None,
        *,
        location: Location = UNKNOWN,
        debug_location: str | None = None,
    ) -> None:
        self.definition = definition
        values = tuple(operands)
        self._operands: Value | tuple[Value, ...] = values[0] if len(values) == 1 else values  # one alone as it is
        self.attributes = attributes or NO_ATTRIBUTES
        self._place: Location | SourcePage = location
        self._token = 0
        self._extras: OpExtras | None = None
        types = tuple(result_types)
        results: tuple[Value, ...] | None = None
        if len(types) == 1 and self.may_be_value:
            self.type = types[0]
        else:
            results = tuple([NumberedValue(type, self, at) for at, type in enumerate(types)])
        if regions or discardable or debug_location is not None or definition is None:
            name = name if definition is None else ""
            self._extras = OpExtras(name, results, tuple(regions), discardable or NO_ATTRIBUTES, debug_location)
        elif results is not None:
            self._extras = OpExtras(results=results) if results else _NO_RESULTS

    @classmethod
    def of_one_result(
        cls,
        definition: OpDef,
        operands: list[Value],
        type: Type,
        attributes: Mapping[str, Any],
        page: SourcePage,
        token: int,
    ) -> Op:
        """A declared op with one result and nothing else, read at token `token` of `page`: what most ops are."""
        op = Op.__new__(Op)
        op.definition = definition
        op._operands = operands[0] if len(operands) == 1 else tuple(operands)
        op.attributes = attributes
        op.type = type
        op._place = page
        op._token = token
        op._extras = None
        return op

    @property
    def name(self) -> str:
        """The op's full name: `stablehlo.add`."""
        if self.definition is not None:
            return self.definition.name
        return self._extras.name if self._extras is not None else ""

    @property
    def operands(self) -> tuple[Value, ...]:
        operands = self._operands
        return operands if type(operands) is tuple else (operands,)  # type: ignore[return-value]

    @operands.setter
    def operands(self, operands: tuple[Value, ...]) -> None:
        self._operands = operands[0] if len(operands) == 1 else operands

    @property
    def regions(self) -> tuple[Region, ...]:
        return self._extras.regions if self._extras is not None else ()

    @regions.setter
    def regions(self, regions: tuple[Region, ...]) -> None:
        self._extras = replace(self._extras or _NO_EXTRAS, regions=regions)

    @property
    def discardable(self) -> Mapping[str, Attribute]:
        return self._extras.discardable if self._extras is not None else NO_ATTRIBUTES

    @discardable.setter
    def discardable(self, discardable: Mapping[str, Attribute]) -> None:
        self._extras = replace(self._extras or _NO_EXTRAS, discardable=discardable or NO_ATTRIBUTES)

    @property
    def debug_location(self) -> str | None:
        """The text of the op's `loc(...)`."""
        if self._extras is not None and self._extras.debug_location is not None:
            return self._extras.debug_location
        return None if isinstance(self._place, Location) else self._place.debug_location(self._token)

    @debug_location.setter
    def debug_location(self, text: str | None) -> None:
        self._extras = replace(self._extras or _NO_EXTRAS, debug_location=text)

    # --- places ---

    def read_at(self, page: SourcePage, token: int) -> None:
        """Says where the op was read: its name is token `token` of `page`."""
        self._place, self._token = page, token

    @property
    def location(self) -> Location:
        return self._place if isinstance(self._place, Location) else self._place.location(self._token)

    def move(self, location: Location) -> None:
        """Says that the op stands at `location`, which does not tell its result's name."""
        self._place, self._token = location, 0

    @property
    def place(self) -> tuple[int, int]:
        """What ops that were read at one place have in common, as long as one of them lives."""
        return id(self._place), self._token

    def stand_at(self, other: Op) -> None:
        """Says that the op stands where `other` does."""
        self._place, self._token = other._place, other._token

    def _stand_for(self, other: Op) -> None:
        """Takes the place of `other`, and the names of its results."""
        self.stand_at(other)
        if self.is_value and other.is_value:
            if other._extras is not None and other._extras.name_hint is not None:
                self.name_hint = other._extras.name_hint
            return  # any other name follows from the place
        for old, new in zip(other.results, self.results, strict=False):
            new.name_hint = old.name_hint

    # --- results ---

    @property
    def is_value(self) -> bool:
        """Whether the op has one result, which it then is."""
        return self._extras is None or self._extras.results is None

    @property
    def results(self) -> tuple[Value, ...]:
        rest = self._extras
        return (self,) if rest is None or rest.results is None else rest.results

    @property
    def result(self) -> Value:
        """The only result; ValueError otherwise."""
        rest = self._extras
        if rest is None or rest.results is None:
            return self
        raise ValueError(f"{self.name} has {len(rest.results)} results where one is needed")

    @property
    def result_types(self) -> list[Type]:
        return [value.type for value in self.results]

    @property
    def likeness(self) -> tuple[Any, ...] | None:
        """What an op has in common with its likes in one program: declaration, attributes as they are held, and types.

        None for an op with more than that to it: no result or several, regions, or attributes of others.
        """
        if self._extras is not None:
            return None
        operands = self._operands
        if type(operands) is tuple:
            return self.definition, id(self.attributes), self.type, *[value.type for value in operands]
        return self.definition, id(self.attributes), self.type, operands.type  # type: ignore[union-attr]

    @property
    def owner(self) -> Op:
        return self

    @property
    def name_hint(self) -> str | None:
        if self._extras is not None and self._extras.name_hint is not None:
            return self._extras.name_hint
        return None if isinstance(self._place, Location) else self._place.name_hint(self._token)

    @name_hint.setter
    def name_hint(self, name: str | None) -> None:
        self._extras = replace(self._extras or _NO_EXTRAS, name_hint=name)

    # --- by the declaration's names ---

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

    def operand_group(self, name: str) -> tuple[Value, ...]:
        """The operands declared as `name`, as many as there are."""
        assert self.definition is not None
        return self.operands[self.definition.operand_slice(self, name)]

    def region(self, name: str) -> Region:
        """The region declared as `name`."""
        assert self.definition is not None
        return self.regions[self.definition.region_index(name)]

    @property
    def operand_types(self) -> list[Type]:
        return [value.type for value in self.operands]

    def replace_operands(self, values: Mapping[Value, Value]) -> None:
        """Reads what `values` has in place of an operand; one that is not in it stays."""
        self.operands = tuple([values.get(operand, operand) for operand in self.operands])

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
        attributes: Mapping[str, Any] | None = None,
    ) -> Op:
        """The same op on other operands; result types, regions and attributes replaced where given."""
        op = new_op(
            self.name,
            operands,
            self.result_types if result_types is None else result_types,
            self.attributes if attributes is None else attributes,
            self.regions if regions is None else regions,
            definition=self.definition,
            discardable=self.discardable,
            debug_location=self.debug_location,
        )
        op._stand_for(self)
        return op

    def __repr__(self) -> str:
        return f"<{self.name} at {self.location}>"

    def __str__(self) -> str:
        return self.to_string() if _printers else repr(self)

    def to_string(self, *, generic: bool = False, keep_names: bool = False, debug_info: bool = False) -> str:
        """The op as text: pretty or generic form.

        `keep_names` keeps the source's value names, `debug_info` the `loc(...)` of ops and of blocks' arguments.
        RuntimeError where no printer is registered: importing `spmd.syntax` does that.
        """
        if not _printers:
            raise RuntimeError("no printer of ops is registered: import spmd.syntax")
        return _printers[-1](self, generic=generic, keep_names=keep_names, debug_info=debug_info)


class Function(Op):
    """`func.func`."""

    __slots__ = ()
    may_be_value = False  # its type is the function's; a result, which it should not have, stands apart

    @property
    def symbol(self) -> str:
        return str(self.attributes["sym_name"])

    @property
    def type(self) -> FunctionType:  # type: ignore[override]  # a function is no value
        declared = self.attributes["function_type"]
        assert isinstance(declared, FunctionType)
        return declared

    @property
    def signature(self) -> str:
        """`@main(tensor<2xf32>) -> tensor<2xf32>`, shortened where there are many types."""
        inputs, results = _shortened(self.type.inputs), _shortened(self.type.results)
        return f"@{self.symbol}({inputs}) -> {results if len(self.type.results) == 1 else f'({results})'}"

    def __repr__(self) -> str:
        return f"<function {self.signature}>"

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
    def arguments(self) -> tuple[Value, ...]:
        return self.body.arguments

    @property
    def argument_attributes(self) -> list[Mapping[str, Attribute]]:
        """The attribute dictionary of each argument, empty where it has none."""
        return self._dictionaries("arg_attrs", len(self.type.inputs))

    @property
    def result_attributes(self) -> list[Mapping[str, Attribute]]:
        return self._dictionaries("res_attrs", len(self.type.results))

    def _dictionaries(self, name: str, count: int) -> list[Mapping[str, Attribute]]:
        dict_attrs: Sequence[DictAttr] = self.attributes.get(name) or ()
        return [entry.entries for entry in dict_attrs] if dict_attrs else [{} for _ in range(count)]


def _shortened(types: Sequence[Type]) -> str:
    shown = [str(type) for type in types[:_MOST_SHOWN]]
    if len(types) > _MOST_SHOWN:
        shown.append(f"... {len(types)} in all")
    return ", ".join(shown)


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

    def with_ops(self, ops: Iterable[Op]) -> Module:
        """A module of the same name, attributes and place that has `ops`."""
        module = self.clone((), (), [Region([Block((), ops)])])
        assert isinstance(module, Module)
        return module

    def __repr__(self) -> str:
        name = f" @{self.symbol}" if self.symbol else ""
        functions = self.functions
        shown = [function.signature for function in functions if function.is_public][:_MOST_SHOWN]
        if len(functions) > len(shown):
            shown.append(f"{len(functions)} functions in all")
        counts = [self.discardable.get(f"mhlo.num_{what}") for what in ("replicas", "partitions")]
        grid = "x".join(str(count.value) if isinstance(count, IntegerAttr) else "1" for count in counts)
        return f"<module{name}: {'; '.join(shown) or 'no functions'}{f' on a {grid} grid' if any(counts) else ''}>"

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


def copy_arguments(block: Block, values: dict[Value, Value]) -> Block:
    """A block that has only the arguments of `block`; `values` is filled with them."""
    copy = Block(argument.type for argument in block.arguments)
    for old, new in zip(block.arguments, copy.arguments, strict=True):
        new.name_hint = old.name_hint
        if isinstance(old, NumberedValue) and isinstance(new, NumberedValue):
            new.locate(old._located)
        values[old] = new
    return copy


def copy_block(block: Block, values: dict[Value, Value], transform: Callable[[Op], Op] | None = None) -> Block:
    """A deep copy of `block`; `values` maps outer values and is filled with the copies."""
    copy = copy_arguments(block, values)
    for op in block.ops:
        copied = copy_op(op, values)
        copy.ops.append(transform(copied) if transform else copied)
    return copy


def copy_op(op: Op, values: dict[Value, Value]) -> Op:
    """A deep copy of `op`, its operands looked up in `values` (an unmapped one stays)."""
    operands = [values.get(operand, operand) for operand in op.operands]
    regions = [Region(copy_block(block, values) for block in region.blocks) for region in op.regions]
    clone = op.clone(operands, regions=regions)
    values.update(zip(op.results, clone.results, strict=True))
    return clone


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
