"""From a module to XLA's HLO text.

Multiple results become tuples, regions become computations; a value that a branch or a loop uses from outside becomes
one of its parameters, since HLO computations are closed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from spmd import types as t
from spmd.builder.hlo.aliases import alias_text
from spmd.builder.hlo.shardings import ShardingTexts, listed
from spmd.builder.literal import literal_text
from spmd.builder.shape import PrimitiveType, Shape
from spmd.dialects.sdy_attributes import TensorSharding
from spmd.errors import Diagnostic, VerificationError
from spmd.ir import Block, Function, Module, Op, Region, Value
from spmd.ir.attributes import Attribute, IntegerAttr
from spmd.support.arrays import Array
from spmd.support.registry import filed

#: Writes the instructions of one op into a body, and names the op's results there.
Convert = Callable[["Body", Op], None]

#: By op name; convert.py and convert_calls.py fill it.
CONVERTERS: dict[str, Convert] = {}


#: Of how many equal elements all are written.
_MOST_WRITTEN = 1024


def converts(*names: str) -> Callable[[Convert], Convert]:
    """File a converter, as a decorator, under the names of the ops it serves."""
    return filed(CONVERTERS, names, "converter")


def print_hlo(module: Module, name: str | None = None) -> str:
    """Return HLO text of `module`, whose entry is @main, or its one function.

    Raises VerificationError for a module without an entry, and for an op that HLO text cannot express.
    """
    main = _entry(module)
    printer = _Printer(module)
    try:
        parameters = ", ".join(shape_text(kind) for kind in main.type.inputs)
        layout = f"{{({parameters})->{shape_text(_result(main.type.results))}}}"
        entry = printer.function_body(main)
    except ValueError as error:
        raise VerificationError(Diagnostic(main.location, f"HLO text: {error}", main.name)) from None
    title = _clean(name or module.symbol or "module")
    title += "_" * (title in _TYPES)
    header = [f"HloModule {title}", f"entry_computation_layout={layout}"]
    for symbol, attribute in (("mhlo.num_replicas", "replica_count"), ("mhlo.num_partitions", "num_partitions")):
        count = getattr(module.discardable.get(symbol), "value", 1)
        if count != 1:
            header.append(f"{attribute}={count}")
    aliases = list(_aliases(main))
    if aliases:
        header.insert(1, f"input_output_alias={{ {', '.join(aliases)} }}")
    texts = [*printer.computations, entry.text(printer.fresh("main"), entry=True)]
    return ", ".join(header) + "\n\n" + "\n\n".join(texts) + "\n"


def _aliases(main: Function) -> Iterator[str]:
    """Yield `{1}: (0, {}, may-alias)`: result 1, of several, may lie where argument 0 lies."""
    for argument, entries in enumerate(main.argument_attributes):
        result = entries.get("tf.aliasing_output")
        if isinstance(result, IntegerAttr) and 0 <= result.value < len(main.type.results):
            place = (result.value,) if len(main.type.results) > 1 else ()
            yield alias_text((place, (argument, ())), "may-alias")


def _entry(module: Module) -> Function:
    functions = [function for function in module.functions if not function.is_declaration]
    entries = [function for function in functions if function.symbol == "main"] or functions
    if len(entries) != 1:
        known = ", ".join(f"@{function.symbol}" for function in functions) or "none"
        message = f"HLO text: the entry is @main or the one function of a module; functions here: {known}"
        raise VerificationError(Diagnostic(module.location, message, module.name))
    return entries[0]


def shape_text(type: t.Type | Shape) -> str:
    """Return the shape of a value with its layout, as HLO has it."""
    shape = type if isinstance(type, Shape) else Shape.of(type)
    return str(shape)


def _result(types: Sequence[t.Type]) -> t.Type:
    return types[0] if len(types) == 1 else t.TupleType(tuple(types))


def _clean(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


#: Words that are no names.
_TYPES = frozenset(primitive.value for primitive in PrimitiveType)


class _Printer:
    """What all computations of a module share."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.computations: list[str] = []
        self.shardings = ShardingTexts.of(module)
        self._functions: dict[tuple[str, tuple[str, ...]], str] = {}
        self._numbers: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """Return a name that no instruction or computation has."""
        stem = re.sub(r"\.\d+$", "", _clean(stem))
        self._numbers[stem] = self._numbers.get(stem, 0) + 1
        return f"{stem}.{self._numbers[stem]}"

    def function_body(self, function: Function) -> Body:
        body = Body(self)
        for number, (argument, dictionary) in enumerate(
            zip(function.arguments, function.argument_attributes, strict=True)
        ):
            sharding = self.sharding(dictionary)
            body.name_value(argument, body.add("parameter", argument.type, [str(number)], sharding, argument.name_hint))
        body.fill(function.body)
        results = [text for text in map(self.shardings.given, function.result_attributes) if text is not None]
        if results and len(results) == len(function.type.results):
            body.share_root(listed(results))
        return body

    def sharding(self, attributes: Mapping[str, Attribute]) -> list[str]:
        """Return the sharding among an op's or a value's attributes, as an attribute of HLO; nothing when there is
        none."""
        text = self.shardings.given(attributes)
        return [] if text is None else [f"sharding={text}"]

    @contextmanager
    def inside(self, sharding: TensorSharding, axes: Sequence[str]) -> Iterator[None]:
        """Write what follows inside as a computation that is manual over `axes` of the mesh of `sharding`."""
        before, self.shardings = self.shardings, self.shardings.inside(sharding, axes)
        try:
            yield
        finally:
            self.shardings = before

    def function(self, symbol: str) -> str:
        """Return the computation that function `symbol` is, printed when it is first asked for."""
        key = (symbol, self.shardings.manual)
        if key not in self._functions:
            body = self.function_body(self.module.function(symbol))
            name = self.fresh(symbol)
            self.computations.append(body.text(name))
            self._functions[key] = name
        return self._functions[key]


class Body:
    """The instructions of one computation."""

    def __init__(self, printer: _Printer) -> None:
        self.printer = printer
        self._lines: list[tuple[str, str]] = []
        self._names: dict[Value, str] = {}
        self._root = ""

    def add(
        self,
        opcode: str,
        type: t.Type | Shape,
        operands: Iterable[str] = (),
        attributes: Iterable[str] = (),
        stem: str | None = None,
    ) -> str:
        """Write an instruction; returns its name."""
        name = self.printer.fresh(stem or opcode)
        shape = type if isinstance(type, Shape) else Shape.of(type)
        parts = [f"{shape} {opcode}({', '.join(operands)})", *attributes]
        block = self.printer.shardings.of_block(shape)
        if block is not None and not any(part.startswith("sharding=") for part in parts):
            parts.append(f"sharding={block}")
        self._lines.append((name, ", ".join(parts)))
        return name

    def name_value(self, value: Value, name: str) -> None:
        self._names[value] = name

    def name_of(self, value: Value) -> str:
        """Return the instruction that gives `value`; constants are written where they are first used."""
        if value not in self._names:
            origin = value.defining_op
            if origin is None or origin.name != "stablehlo.constant":
                place = origin.location if origin is not None else self.printer.module.location
                message = "HLO text cannot express that a computation applied to scalars uses a value from outside"
                raise VerificationError(Diagnostic(place, message, origin.name if origin else ""))
            self._names[value] = self._constant(value, origin["value"].array)
        return self._names[value]

    def _constant(self, value: Value, array: Array) -> str:
        """Return a constant; many elements that are one in memory as a broadcast of that one."""
        if array.size <= _MOST_WRITTEN or any(array.strides):
            return self.add("constant", value.type, [literal_text(array)])
        one = self.add(
            "constant", value.tensor.with_shape(()), [literal_text(array[(slice(1),) * array.ndim].reshape(()))]
        )
        return self.add("broadcast", value.type, [one], ["dimensions={}"])

    def names_of(self, values: Iterable[Value]) -> list[str]:
        return [self.name_of(value) for value in values]

    def instruction(
        self,
        op: Op,
        opcode: str,
        operands: Iterable[Value | str],
        attributes: Iterable[str] = (),
        *,
        tupled: bool | None = None,
    ) -> None:
        """Write the instruction for `op`: one result is its value, several (or `tupled`) are elements of a tuple."""
        names = [one if isinstance(one, str) else self.name_of(one) for one in operands]
        many = len(op.results) != 1 if tupled is None else tupled
        attributes = [*attributes, *self.printer.sharding(op.discardable)]
        whole = t.TupleType(tuple(op.result_types)) if many else op.result.type
        name = self.add(opcode, whole, names, attributes)
        if many:
            self.name_elements(op.results, name)
        else:
            self.name_value(op.result, name)

    def name_elements(self, values: Sequence[Value], whole: str) -> None:
        """Name values that are the elements of tuple `whole`."""
        for index, value in enumerate(values):
            self.name_value(value, self.element(whole, value.type, index))

    def element(self, whole: str, type: t.Type | Shape, index: int) -> str:
        return self.add("get-tuple-element", type, [whole], [f"index={index}"])

    def tuple(self, types: Sequence[t.Type], names: Sequence[str]) -> str:
        return self.add("tuple", t.TupleType(tuple(types)), names)

    def joined(self, values: Sequence[Value]) -> str:
        """Return one value as itself, another number as a tuple."""
        names = self.names_of(values)
        return names[0] if len(names) == 1 else self.tuple([value.type for value in values], names)

    def fill(self, block: Block) -> None:
        """Write the ops of `block`; what its terminator returns is the root."""
        self.write(block)
        self._root = self.joined(block.terminator.operands)

    def write(self, block: Block) -> None:
        """Write the ops of `block` but for its terminator."""
        for op in block.ops[:-1]:
            if op.name == "stablehlo.constant":
                continue
            convert = CONVERTERS.get(op.name)
            if convert is None:
                raise VerificationError(Diagnostic(op.location, "HLO text cannot express this op", op.name))
            try:
                convert(self, op)
            except ValueError as error:  # a type that has no shape
                raise VerificationError(Diagnostic(op.location, f"HLO text: {error}", op.name)) from None

    def share_root(self, sharding: str) -> None:
        """Say how the root is laid out, where it does not say so itself."""
        index = next(i for i, (name, _) in enumerate(self._lines) if name == self._root)
        if ", sharding=" not in self._lines[index][1]:
            self._lines[index] = (self._root, f"{self._lines[index][1]}, sharding={sharding}")

    def applied(self, region: Region, stem: str = "region") -> str:
        """Return the computation that a region on scalars is: its parameters are the block's arguments."""
        body = Body(self.printer)
        for number, argument in enumerate(region.block.arguments):
            body.name_value(argument, body.add("parameter", argument.type, [str(number)]))
        body.fill(region.block)
        return body.finish(stem)

    def closed(self, block: Block, arguments: Sequence[Value], *, returned: Sequence[Value] = (), stem: str) -> str:
        """Return the computation of one parameter, a tuple unless it is one value, whose elements `arguments` are.

        It returns what the block returns, then `returned`; a tuple unless that is one value.
        """
        body = Body(self.printer)
        types = [value.type for value in arguments]
        parameter = body.add("parameter", _result(types), ["0"])
        if len(arguments) == 1:
            body.name_value(arguments[0], parameter)
        else:
            body.name_elements(arguments, parameter)
        body.fill(block)
        if returned:
            body._root = body.joined([*block.terminator.operands, *returned])
        return body.finish(stem)

    def finish(self, stem: str) -> str:
        """Add this computation to the module; returns its name."""
        name = self.printer.fresh(stem)
        self.printer.computations.append(self.text(name))
        return name

    def text(self, name: str, *, entry: bool = False) -> str:
        lines = (f"  {'ROOT ' if line == self._root else ''}{line} = {text}" for line, text in self._lines)
        return ("ENTRY " if entry else "") + name + " {\n" + "\n".join(lines) + "\n}"


def integers(values: Iterable[int]) -> str:
    """Return `{1,2}`."""
    return "{" + ",".join(map(str, values)) + "}"
