"""Operations, stored compactly: a program may have millions. Source: specification, "Programs"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from spmd.errors import UNKNOWN, Location
from spmd.ir.attributes import Attribute
from spmd.ir.values import NumberedValue, Region, Value
from spmd.types import Type

if TYPE_CHECKING:
    from spmd.dialects.core import OpDef


#: The decoded value of a declared attribute, of the Python type that its kind defines (spmd/dialects/kinds.py).
AttributeValue: TypeAlias = Any
#: The attributes of an op that has none.
NO_ATTRIBUTES: Mapping[str, AttributeValue] = MappingProxyType({})


class SourcePage(Protocol):
    """A range of the text or file that ops were read from; maps token numbers to locations."""

    def location(self, token: int) -> Location:
        """The location of token `token` of the page."""

    def name_hint(self, token: int) -> str | None:
        """The name, without `%`, of the only result of the op whose name is token `token`."""

    def debug_location(self, token: int) -> str | None:
        """The text of the op's `loc(...)`, where the op itself does not hold it."""


class OpPrinter(Protocol):
    """A function that prints an op: see `Op.to_string`."""

    def __call__(self, op: Op, *, generic: bool = False, keep_names: bool = False, debug_info: bool = False) -> str: ...


_printers: list[OpPrinter] = []


def register_printer(printer: OpPrinter) -> None:
    """Registers `printer` as the printer of ops: `spmd.syntax`, a higher layer, calls this when it is imported."""
    _printers.append(printer)


@dataclass(frozen=True, slots=True)
class OpExtras:
    """The rarely used fields of an op. Immutable, so equal instances may be shared."""

    name: str = ""  # of an op without a declaration
    results: tuple[Value, ...] | None = None  # of an op that has not just one
    regions: tuple[Region, ...] = ()
    discardable: Mapping[str, Attribute] = field(default_factory=lambda: NO_ATTRIBUTES)
    debug_location: str | None = None
    name_hint: str | None = None


_NO_EXTRAS = OpExtras()
_NO_RESULTS = OpExtras(results=())

#: Subclasses of `Op` with named accessors, by op name; the module that defines one registers it here.
OP_CLASSES: dict[str, type[Op]] = {}


class Op(Value):
    """An operation; with one result, it is also the value of that result.

    `attributes` holds the values of declared attributes, decoded to plain Python (int, str, tuple, array, ...);
    `discardable` every other attribute in MLIR's form. `definition` is the declaration, None for an op of an
    unknown dialect, all of whose attributes are in `discardable`.

    Programs have very many ops, so an op is small: it holds tuples and mappings that equal ops share, which are
    replaced, never modified. The packing of the slots is private to this class:

    _operands   the operand itself if there is one, else a tuple of operands
    _place      a Location; or, for an op that was read, the SourcePage that maps its token number to a location
    _token      the number of the op's name on that page
    _extras     None for most ops, which have one result and no rarely used fields; those fields for the others
    """

    __slots__ = ("_extras", "_operands", "_place", "_token", "attributes", "definition")
    may_be_value = True

    def __init_subclass__(cls, *, op_name: str) -> None:
        OP_CLASSES[op_name] = cls

    def __init__(
        self,
        name: str,
        operands: Iterable[Value] = (),
        result_types: Iterable[Type] = (),
        attributes: Mapping[str, AttributeValue] | None = None,
        regions: Iterable[Region] = (),
        definition: OpDef | None = None,
        discardable: Mapping[str, Attribute] | None = None,
        *,
        location: Location = UNKNOWN,
        debug_location: str | None = None,
    ) -> None:
        self.definition = definition
        values = tuple(operands)
        self._operands: Value | tuple[Value, ...] = values[0] if len(values) == 1 else values
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
        attributes: Mapping[str, AttributeValue],
        page: SourcePage,
        token: int,
    ) -> Op:
        """A declared op with one result and no regions, read at token `token` of `page`: the common case, made fast."""
        op = Op.__new__(Op)
        op.definition = definition
        op._operands = operands[0] if len(operands) == 1 else tuple(operands)
        op.attributes = attributes
        op.type = type
        op._place = page
        op._token = token
        op._extras = None
        return op

    def like(self, operands: list[Value], page: SourcePage, token: int) -> Op:
        """A declared op of this one's kind, result type and attributes on other operands, read at `token` of `page`.

        This one has one result, no regions and no discardable attributes.
        """
        assert self.definition is not None
        return Op.of_one_result(self.definition, operands, self.type, self.attributes, page, token)

    @property
    def name(self) -> str:
        """The op's full name: `stablehlo.add`."""
        if self.definition is not None:
            return self.definition.name
        return self._extras.name if self._extras is not None else ""

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values that the op uses, in order."""
        operands = self._operands
        return operands if type(operands) is tuple else (operands,)  # type: ignore[return-value]

    @operands.setter
    def operands(self, operands: tuple[Value, ...]) -> None:
        self._operands = operands[0] if len(operands) == 1 else operands

    @property
    def regions(self) -> tuple[Region, ...]:
        """The nested regions, in order."""
        return self._extras.regions if self._extras is not None else ()

    @regions.setter
    def regions(self, regions: tuple[Region, ...]) -> None:
        self._extras = replace(self._extras or _NO_EXTRAS, regions=regions)

    @property
    def discardable(self) -> Mapping[str, Attribute]:
        """The attributes that the op's declaration does not name, in MLIR's form."""
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
        extras = self._extras
        self._extras = OpExtras(debug_location=text) if extras is None else replace(extras, debug_location=text)

    # --- locations ---

    def read_at(self, page: SourcePage, token: int) -> None:
        """Sets the op's location to token `token` of `page`, at which its name was read."""
        self._place, self._token = page, token

    @property
    def location(self) -> Location:
        return self._place if isinstance(self._place, Location) else self._place.location(self._token)

    def move(self, location: Location) -> None:
        """Sets the op's location to `location`, which carries no name for its result."""
        self._place, self._token = location, 0

    @property
    def place(self) -> tuple[int, int]:
        """A key equal for all ops read at one location, valid while one of them lives."""
        return id(self._place), self._token

    def stand_at(self, other: Op) -> None:
        """Copies the location of `other` to this op."""
        self._place, self._token = other._place, other._token

    def _stand_for(self, other: Op) -> None:
        """Copies the location of `other` and the names of its results to this op."""
        self.stand_at(other)
        if self.is_value and other.is_value:
            if other._extras is not None and other._extras.name_hint is not None:
                self.name_hint = other._extras.name_hint
            return  # any other name is derived from the location
        for old, new in zip(other.results, self.results, strict=False):
            new.name_hint = old.name_hint

    # --- results ---

    @property
    def is_value(self) -> bool:
        """Whether the op has one result, in which case the op is that value."""
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
        """The types of the results, in order."""
        return [value.type for value in self.results]

    @property
    def likeness(self) -> tuple[object, ...] | None:
        """A key that ops with the same declaration, attribute objects and types share within one program.

        None for an op with no result or several, with regions, or with discardable attributes.
        """
        if self._extras is not None:
            return None
        operands = self._operands
        if type(operands) is tuple:
            return self.definition, id(self.attributes), self.type, *[value.type for value in operands]
        return self.definition, id(self.attributes), self.type, operands.type  # type: ignore[union-attr]

    @property
    def owner(self) -> Op:
        """The op itself, which defines the value that it is."""
        return self

    @property
    def name_hint(self) -> str | None:
        """The source's name of the only result, without `%`; None where it has none."""
        if self._extras is not None and self._extras.name_hint is not None:
            return self._extras.name_hint
        return None if isinstance(self._place, Location) else self._place.name_hint(self._token)

    @name_hint.setter
    def name_hint(self, name: str | None) -> None:
        self._extras = replace(self._extras or _NO_EXTRAS, name_hint=name)

    # --- by declared name ---

    def __getitem__(self, name: str) -> AttributeValue:
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
        """The operands declared as variadic `name`."""
        assert self.definition is not None
        return self.operands[self.definition.operand_slice(self, name)]

    def region(self, name: str) -> Region:
        """The region declared as `name`."""
        assert self.definition is not None
        return self.regions[self.definition.region_index(name)]

    @property
    def operand_types(self) -> list[Type]:
        """The types of the operands, in order."""
        return [value.type for value in self.operands]

    def replace_operands(self, values: Mapping[Value, Value]) -> None:
        """Replaces each operand by its entry in `values`; an operand without an entry stays."""
        operands = self.operands
        if values and not values.keys().isdisjoint(operands):
            self.operands = tuple([values.get(operand, operand) for operand in operands])

    def walk(self) -> Iterator[Op]:
        """This op and all ops nested in it, in pre-order."""
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
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> Op:
        """A copy of the op with other operands; result types, regions and attributes replaced where given."""
        if self._extras is None and result_types is None and attributes is None and not regions:  # most ops
            op = Op.__new__(type(self))
            op.definition, op.attributes, op.type, op._extras = self.definition, self.attributes, self.type, None
            op._operands = operands[0] if len(operands) == 1 else tuple(operands)
            op.stand_at(self)
            return op
        op = new_op(
            self.name,
            operands,
            self.result_types if result_types is None else result_types,
            self.attributes if attributes is None else attributes,
            self.regions if regions is None else regions,
            definition=self.definition,
            discardable=self.discardable,
            debug_location=self._extras.debug_location if self._extras is not None else None,
        )
        op._stand_for(self)  # which says the place of an op that was read
        return op

    def __repr__(self) -> str:
        return f"<{self.name} at {self.location}>"

    def __str__(self) -> str:
        return self.to_string() if _printers else repr(self)

    def to_string(self, *, generic: bool = False, keep_names: bool = False, debug_info: bool = False) -> str:
        """The op as text: pretty or generic form.

        `keep_names` keeps the source's value names, `debug_info` the `loc(...)` of ops and of blocks' arguments.
        RuntimeError where no printer is registered; importing `spmd.syntax` registers one.
        """
        if not _printers:
            raise RuntimeError("no printer of ops is registered: import spmd.syntax")
        return _printers[-1](self, generic=generic, keep_names=keep_names, debug_info=debug_info)


def new_op(name: str, *args: Any, **kwargs: Any) -> Op:
    """An `Op`, or an instance of the subclass registered for ops of that name."""
    return OP_CLASSES.get(name, Op)(name, *args, **kwargs)
