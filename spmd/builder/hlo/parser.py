"""From HLO text to a module: every instruction is a call of the builder."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from spmd import types as t
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import CALLEES, XlaComputation, known_parts, region_of
from spmd.builder.errors import ArgumentError
from spmd.builder.hlo.aliases import read_aliases
from spmd.builder.hlo.reader import (
    AttributeText,
    ComputationText,
    Instruction,
    ModuleText,
    read_module,
    split,
    unquoted,
)
from spmd.builder.module import to_module
from spmd.builder.shape import PrimitiveType, Shape
from spmd.builder.xla_op import XlaOp
from spmd.dialects.core import InferenceError
from spmd.errors import Location, ParseError, Source
from spmd.ir import NumberedValue, Op
from spmd.ir.attributes import DictAttr, IntegerAttr
from spmd.support.arrays import Array
from spmd.support.registry import filed

if TYPE_CHECKING:
    from spmd.builder.hlo.places import PlaceTables
    from spmd.ir import Function, Module, Value

#: Attributes that say nothing about what an instruction computes.
IGNORED = frozenset(
    (
        "metadata", "sharding", "frontend_attributes", "backend_config", "parameter_replication", "origin",
        "control-predecessors", "constrain_layout", "outer_dimension_partitions", "statistics", "schedule",
        "result_accuracy", "output_to_operand_aliasing", "indices_are_sorted", "unique_indices", "is_scheduled",
        "custom_call_schedule", "raw_backend_config_str", "execution_thread", "is_pinned", "original_value",
        "cross_program_prefetch_index",
    )
)  # fmt: skip


def parse_hlo(text: str, name: str = "<hlo>", constants: Mapping[str, Array] | None = None) -> Module:
    """Return the module that HLO text, as XLA prints it before or after its optimizations, describes.

    The entry becomes @main, with one result for each element of a tuple at its root. Layouts are dropped, but for what
    a bitcast makes of them: they change no value. Raises ParseError, and VerificationError for an instruction that
    breaks a precondition; both with the place in the text. `constants` are arrays for which their keys stand in the
    text.
    """
    module = read_module(text, name)
    converted = to_module(_Reader(module, constants or {}).computation(module.entry.name), owned=True)
    converted.move(module.location)
    converted.function("main").move(module.entry.location)
    converted.attributes = {**converted.attributes, "sym_name": re.sub(r"[^\w.$-]", "_", module.name)}
    for attribute, symbol in (("replica_count", "mhlo.num_replicas"), ("num_partitions", "mhlo.num_partitions")):
        count = module.attributes.get(attribute)
        if count is not None:
            number = IntegerAttr(_process_count(attribute, count), t.I32)
            converted.discardable = {**converted.discardable, symbol: number}
    aliases = module.attributes.get("input_output_alias")
    if aliases is not None:
        _keep_aliases(converted.function("main"), aliases)
    return converted


def _is_partitioned(module: ModuleText) -> bool:
    """Return whether XLA has made this the program of one device: its partitioner says so in the entry's name.

    Scheduling comes after partitioning, and may rename what the entry is.
    """
    return module.entry.name.endswith("_spmd") or "is_scheduled" in module.attributes


_MOST_PROCESSES = 1 << 31


def _process_count(name: str, count: AttributeText) -> int:
    """Return the number of processes that attribute `name` of a module says; ParseError where it says none."""
    # Python refuses to convert thousands of digits.
    if not count.text.isdecimal() or len(count.text) > 10 or not 0 < int(count.text) < _MOST_PROCESSES:
        raise ParseError(f"{name} is a number of processes, got {count.text[:80]}", count.location)
    return int(count.text)


def _keep_aliases(main: Function, aliases: AttributeText) -> None:
    """Mark the arguments whose memory results may take, as JAX does."""
    count = len(main.type.inputs)
    attributes = [dict(entries) for entries in main.argument_attributes]
    for place, (argument, part) in read_aliases(aliases.text):
        result = place[0] if place else 0
        if argument >= count or result >= len(main.type.results):
            raise ParseError(f"result {result} cannot take the place of argument {argument}", aliases.location)
        if len(place) <= 1 and not part:
            attributes[argument]["tf.aliasing_output"] = IntegerAttr(result, t.I32)
    main.attributes = {**main.attributes, "arg_attrs": tuple(map(DictAttr, attributes))}


class _Page:
    """The text that ops are read from: an op's token is the offset of its instruction."""

    def __init__(self, source: Source, places: PlaceTables) -> None:
        self._source = source
        self._places = places
        self.metadata: dict[int, str] = {}

    def location(self, token: int) -> Location:
        return Location(self._source, token)

    def name_hint(self, token: int) -> str | None:
        return None

    def debug_location(self, token: int) -> str | None:
        """Return what the metadata of an instruction say of its place in someone's program."""
        return self._places.of(self.metadata.get(token))


class _Held(NamedTuple):
    """The value of an instruction, its shape as the text has it, and a number for its type with this shape."""

    xla_op: XlaOp
    value: Value
    shape: Shape
    kind: int


class _Pattern(NamedTuple):
    """An op that was made of an instruction, the number of its kind, and the shape that the key has the identity of."""

    op: Op
    kind: int
    shape: Shape


class _Reader:
    """Computations of a module, built when they are first asked for."""

    def __init__(self, module: ModuleText, constants: Mapping[str, Array]) -> None:
        self.module = module
        self.constants = constants
        self.is_partitioned = _is_partitioned(module)
        self.page = _Page(module.location.source, module.places)
        #: By what an instruction says.
        self.patterns: dict[Hashable, _Pattern] = {}
        self._kinds: dict[tuple[t.Type, int], tuple[int, Shape]] = {}
        self._likenesses: dict[Hashable, int] = {}
        self._built: dict[str, XlaComputation | None] = {}

    def kind(self, type: t.Type, shape: Shape) -> int:
        """Return the number of a type with a shape as the text has it, by its identity."""
        return self._kinds.setdefault((type, id(shape)), (len(self._kinds), shape))[0]

    def likeness(self, name: str) -> int | None:
        """Return a number that computations share which are the same ops on the same parameters.

        None where there is no such computation, or one with ops of which equal ones may not be the same.
        """
        if name not in self.module.computations:
            return None
        computation = self.computation(name)
        parameters, ops = computation.block.arguments, computation.block.ops
        numbers = {value: number for number, value in enumerate((*parameters, *ops))}
        likenesses = [op.likeness for op in ops]
        if None in likenesses or computation.result not in numbers:
            return None
        operands = [numbers[value] for op in ops for value in op.operands]
        key = (*[value.type for value in parameters], *likenesses, *operands, numbers[computation.result])
        return self._likenesses.setdefault(key, len(self._likenesses))

    def computation(self, name: str) -> XlaComputation:
        if name not in self._built:
            self._built[name] = None
            self._built[name] = _ComputationScope(self, self.module.computations[name]).build()
        built = self._built[name]
        if built is None:
            raise ParseError(f"computation {name} calls itself", self.module.computations[name].location)
        return built


class _ComputationScope:
    """One computation being built: its builder, and its values by name."""

    def __init__(self, reader: _Reader, text: ComputationText) -> None:
        self._reader = reader
        self._text = text
        self.builder = XlaBuilder(text.name)
        self._held: dict[str, _Held] = {}

    def build(self) -> XlaComputation:
        root, held = self._text.instructions[-1], self._held
        for instruction in self._text.instructions:
            if instruction.name in held:
                raise instruction.fail(f"{instruction.name} is defined twice")
            held[instruction.name] = self._value(instruction)
            root = instruction if instruction.is_root else root
        with self.builder.at(self._text.location):
            computation = self.builder.Build(held[root.name].xla_op)
        sharding = self._sharding(root)
        if sharding is not None:
            texts = split(sharding) if sharding.startswith("{{") else [sharding]
            leaves = len(computation.result_leaves)
            computation.result_shardings = tuple(texts) if len(texts) == leaves else (sharding,) * leaves
        return computation

    def _value(self, instruction: Instruction) -> _Held:
        """Return the value of an instruction: one like another of the module is one op like that one's."""
        try:
            operands = [self._held[name] for name in instruction.operands]
        except KeyError as error:
            raise instruction.fail(f"operand {error.args[0]} is not defined before") from None
        page, shape = self._reader.page, instruction.shape
        if instruction.metadata:
            page.metadata[instruction.offset] = instruction.metadata
        key = self._key(instruction, operands)
        pattern = self._reader.patterns.get(key)
        if pattern is not None and shape is not None:
            op = self._alike(pattern.op, [held.value for held in operands], instruction)
            self.builder.block.ops.append(op)
            return _Held(XlaOp(self.builder, op), op, shape, pattern.kind)
        before = len(self.builder.block.ops)
        with self.builder.at(instruction.location):
            result = self._instruction(instruction)
        made, value = self.builder.block.ops[before:], result.value
        assert value is not None
        self._keep_place(instruction, value, made)
        shape = shape or result.shape
        kind = self._reader.kind(value.type, shape)
        if key is not None and made == [value] and self._is_pattern(made[0], instruction, operands):
            self._reader.patterns[key] = _Pattern(made[0], kind, shape)
        return _Held(result, value, shape, kind)

    def _key(self, instruction: Instruction, operands: Sequence[_Held]) -> Hashable:
        """Return what the value of an instruction depends on beside the values of its operands.

        None for parameters, for parts of known tuples, for constants that are drawn, and where the text has no shape.
        """
        opcode, text, shape = instruction.opcode, instruction.text, instruction.shape
        if opcode == "parameter" or shape is None or "..." in text or self._sharding(instruction) is not None:
            return None
        if opcode == "get-tuple-element" and (not operands or known_parts(operands[0].value) is not None):
            return None
        attributes, kinds = instruction.attributes, [held.kind for held in operands]
        if not attributes.applied:
            return opcode, text, attributes.others, id(shape), *kinds
        likenesses = [self._reader.likeness(name) for name in attributes.applied]
        return None if None in likenesses else (opcode, text, attributes.others, id(shape), *likenesses, *kinds)

    def _is_pattern(self, op: Op, instruction: Instruction, operands: Sequence[_Held]) -> bool:
        """Return whether an op has these operands and names nothing else, and its regions are the computations that
        the instruction applies."""
        applied = [self._reader.computation(name) for name in instruction.attributes.applied]
        if not CALLEES.isdisjoint(op.attributes) or op.operands != tuple(held.value for held in operands):
            return False
        if len(applied) != len(op.regions):
            return False
        names = [[inner.name for inner in computation.block.ops] for computation in applied]
        return names == [[inner.name for inner in region.block.ops[:-1]] for region in op.regions]

    def _alike(self, pattern: Op, operands: list[Value], instruction: Instruction) -> Op:
        """Return an op like `pattern`, with the computations that the instruction applies as its regions."""
        if not pattern.regions and not pattern.discardable:
            return pattern.like(operands, self._reader.page, instruction.offset)
        regions = []
        for name, region in zip(instruction.attributes.applied, pattern.regions, strict=True):
            computation = self._reader.computation(name)
            self.builder.use(computation)
            regions.append(region_of(computation, [argument.type for argument in region.block.arguments]))
        op = pattern.clone(operands, regions=regions)
        op.read_at(self._reader.page, instruction.offset)
        op.debug_location = None  # is that of its place
        return op

    def _instruction(self, instruction: Instruction) -> XlaOp:
        make = _maker(instruction.opcode)
        if make is None:
            raise instruction.fail("HLO opcode that is not read here")
        call = Call(self, instruction)
        sharding = self._sharding(instruction)
        try:
            if sharding is not None and not sharding.startswith("{{"):
                self.builder.set_sharding(sharding)
            before = len(self.builder.block.ops)
            result = make(call)
        except (ArgumentError, InferenceError, ValueError, LookupError, TypeError, OverflowError) as error:
            raise instruction.fail(str(error)) from None
        finally:
            self.builder.clear_sharding()
        if unknown := instruction.attributes.keys() - call.read - IGNORED:
            raise instruction.fail(f"attribute {min(unknown)} is not understood")
        shape = instruction.shape
        if shape is None or result.shape.compatible(shape) or self._takes_bounds(result, before, shape):
            return result
        raise instruction.fail(f"the text says {shape.brief}, the operation gives {result.shape.brief}")

    def _takes_bounds(self, result: XlaOp, before: int, shape: Shape) -> bool:
        """Return whether `result` is as large as the text says, and made here: it then has the dynamic dimensions of
        the text.

        `before`: the ops there were.
        """
        value = result.value
        made = self.builder.block.ops[before:]
        if value is None or value.defining_op not in made or not isinstance(value.type, t.TensorType):
            return False
        if not shape.is_array() or not shape.at_bounds().compatible(result.shape.at_bounds()):
            return False
        value.type = shape.tensor
        return True

    def _sharding(self, instruction: Instruction) -> str | None:
        """Return how the text says that a value is divided; None in a partitioned program, whose values are blocks."""
        return None if self._reader.is_partitioned else instruction.attributes.get("sharding")

    def _keep_place(self, instruction: Instruction, value: Value, made: Sequence[Op]) -> None:
        """Keep with `value`, or its op among those `made`, what the text says of its place in someone's program."""
        op = value.defining_op
        if op is not None and op in made:
            op.read_at(self._reader.page, instruction.offset)
        elif instruction.metadata and op is not None and op.debug_location is None:
            op.debug_location = self._reader.page.debug_location(instruction.offset)
        elif instruction.metadata and isinstance(value, NumberedValue) and value.debug_location is None:
            value.locate(self._reader.page.debug_location(instruction.offset))

    def held(self, instruction: Instruction) -> list[_Held]:
        """Return the operands of an instruction."""
        return [self._held[name] for name in instruction.operands]

    def computation(self, attribute: AttributeText, instruction: Instruction) -> XlaComputation:
        """Return the computation that `attribute` names, or that stands there in braces."""
        name = attribute.text.strip().lstrip("%")
        if name.startswith("{"):
            return _ComputationScope(self._reader, attribute.computation(f"{instruction.name}.computation")).build()
        if name not in self._reader.module.computations:
            raise instruction.fail(f"there is no computation {name}")
        return self._reader.computation(name)

    @property
    def constants(self) -> Mapping[str, Array]:
        return self._reader.constants

    @property
    def header(self) -> dict[str, AttributeText]:
        """Return the attributes of the module."""
        return self._reader.module.attributes

    def group_size(self, *, partitions: bool) -> int:
        """Return how many processes a collective without groups joins: what the header says, 1 where it says
        nothing."""
        header = self.header
        names = ("replica_count", "num_partitions")
        counts = {name: _process_count(name, header[name]) for name in names if name in header}
        return counts.get("num_partitions" if partitions else "replica_count", 1)


class Call:
    """An instruction as what makes its value sees it; notes which attributes were read."""

    def __init__(self, scope: _ComputationScope, instruction: Instruction) -> None:
        self._scope = scope
        self.instruction = instruction
        self.builder = scope.builder
        self.text = instruction.text
        self.read: set[str] = set()

    @property
    def shape(self) -> Shape:
        """Return the result's shape as the text has it; ParseError where it has none."""
        if self.instruction.shape is None:
            raise self.fail("the shape of the result is missing")
        return self.instruction.shape

    def is_single(self) -> bool:
        """Return whether the text says that the result is no tuple."""
        return self.instruction.shape is not None and not self.instruction.shape.is_tuple()

    def element_type(self) -> PrimitiveType | None:
        """Return the result's element type where the text has its shape."""
        return None if self.instruction.shape is None else self.instruction.shape.xla_element_type()

    def frontend(self, name: str, default: str | None = None) -> str:
        """Return an entry of `frontend_attributes={name="text",other={...}}`; ParseError when it is missing."""
        return self._entry(self.attribute("frontend_attributes", "{}"), name, default)

    def header(self, name: str) -> str:
        """Return an entry of the frontend's attributes of the whole module."""
        attributes_text = self._scope.header.get("frontend_attributes")
        return self._entry("{}" if attributes_text is None else attributes_text.text, name, None)

    def _entry(self, text: str, name: str, default: str | None) -> str:
        for part in split(text):
            key, _, value = part.partition("=")
            if key.strip() == name:
                return unquoted(value.strip())
        if default is None:
            raise self.fail(f"the frontend's attribute {name} is missing")
        return default

    def has(self, name: str) -> bool:
        return name in self.instruction.attributes

    def attribute(self, name: str, default: str | None = None) -> str:
        """Return the text of an attribute; ParseError when it is missing and has no default."""
        self.read.add(name)
        attribute_text = self.instruction.attributes.get(name)
        if attribute_text is not None:
            return attribute_text
        if default is None:
            raise self.instruction.fail(f"attribute {name} is missing")
        return default

    def string(self, name: str, default: str = "") -> str:
        return unquoted(self.attribute(name, f'"{default}"'))

    def flag(self, name: str) -> bool:
        return self.attribute(name, "false") == "true"

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self.attribute(name, None if default is None else str(default)))

    def integers(self, name: str, default: str | None = None) -> list[int]:
        """Read `{1,2}`."""
        return [int(part) for part in split(self.attribute(name, default))]

    def channel(self) -> int | None:
        """Return the channel of a collective that has one; number 0, which StableHLO has for none, is number 1."""
        return self.integer("channel_id") or 1 if self.has("channel_id") else None

    def dimension(self, name: str) -> int:
        """Read `{1}`, the one dimension that attribute `name` gives."""
        numbers = self.integers(name)
        if len(numbers) != 1:
            raise ValueError(f"{name} is one dimension here, got {numbers}")
        return numbers[0]

    def computation(self, name: str) -> XlaComputation:
        return self._scope.computation(self._attribute_text(name), self.instruction)

    def computations(self, name: str) -> list[XlaComputation]:
        return [self._scope.computation(part, self.instruction) for part in self._attribute_text(name).entries()]

    def _attribute_text(self, name: str) -> AttributeText:
        self.attribute(name)
        return self.instruction.attribute(name)

    def operands(self, count: int | None = None) -> list[XlaOp]:
        xla_ops = [held.xla_op for held in self._scope.held(self.instruction)]
        if count is not None and len(xla_ops) != count:
            raise self.instruction.fail(f"{count} operands are needed, there are {len(xla_ops)}")
        return xla_ops

    def operand_shapes(self) -> list[Shape]:
        """Return the operands' shapes as the text gives them: with their layouts."""
        return [held.shape for held in self._scope.held(self.instruction)]

    def of_shape(self, shape: Shape) -> Call:
        """Return the same instruction with another result."""
        return self.of_opcode(self.instruction.opcode, shape)

    def of_opcode(self, opcode: str, shape: Shape) -> Call:
        """Return the same instruction as one of another opcode, with another result."""
        call = Call(self._scope, replace(self.instruction, opcode=opcode, shape=shape))
        call.read = self.read
        return call

    def operand(self) -> XlaOp:
        (one,) = self.operands(1)
        return one

    def constant(self, text: str) -> Array | None:
        """Return the constant for which `text` stands; None where there is none."""
        return self._scope.constants.get(text)

    def group_size(self, groups: Sequence[Sequence[int]]) -> int:
        """Return how many processes take part in a collective of these groups."""
        if groups:
            return len(groups[0])
        return self._scope.group_size(partitions=self.has("channel_id"))

    def fail(self, message: str) -> ParseError:
        return self.instruction.fail(message)


#: What makes the value of an instruction.
Make = Callable[[Call], XlaOp]

#: By opcode; instructions.py and calls.py fill it.
INSTRUCTIONS: dict[str, Make] = {}


#: What stands behind the opcode of an instruction that runs beside others.
_ASYNCHRONOUS = ("-start", "-update", "-done")


def _maker(opcode: str) -> Make | None:
    """Return what makes the value of an instruction: of `call-start`, what makes that of `async-start`."""
    make = INSTRUCTIONS.get(opcode)
    for suffix in _ASYNCHRONOUS:
        if make is None and opcode.removesuffix(suffix) in INSTRUCTIONS:
            make = INSTRUCTIONS["async" + suffix]
    return make


def instruction(*opcodes: str) -> Callable[[Make], Make]:
    """File a function, as a decorator, under the opcodes that it makes."""
    return filed(INSTRUCTIONS, opcodes, "reader")


def flat(values: Sequence[XlaOp]) -> XlaOp | list[XlaOp]:
    """Return one operand as itself, several as a list."""
    return values[0] if len(values) == 1 else list(values)
