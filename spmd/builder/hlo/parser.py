"""From HLO text to a module: every instruction is a call of the builder."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spmd import types as t
from spmd.builder.builder import XlaBuilder
from spmd.builder.computation import CALLEES, XlaComputation
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
from spmd.builder.shape import PrimitiveType, Shape
from spmd.builder.xla_op import XlaOp
from spmd.dialects.core import InferenceError
from spmd.dialects.make import make_op
from spmd.errors import ParseError
from spmd.ir.attributes import DictAttr, IntegerAttr
from spmd.support.arrays import Array
from spmd.support.registry import filed

if TYPE_CHECKING:
    from spmd.ir import Function, Module, Op

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
    converted = _Reader(module, constants or {}).computation(module.entry.name).to_stablehlo()
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
    """Arguments whose memory results may take, as JAX marks them."""
    count = len(main.type.inputs)
    attributes = [dict(entries) for entries in main.argument_attributes]
    for place, (argument, part) in read_aliases(aliases.text):
        result = place[0] if place else 0
        if argument >= count or result >= len(main.type.results):
            raise ParseError(f"result {result} cannot take the place of argument {argument}", aliases.location)
        if len(place) <= 1 and not part:
            attributes[argument]["tf.aliasing_output"] = IntegerAttr(result, t.I32)
    main.attributes = {**main.attributes, "arg_attrs": tuple(map(DictAttr, attributes))}


class _Reader:
    """Computations of a module, built when they are first asked for."""

    def __init__(self, module: ModuleText, constants: Mapping[str, Array]) -> None:
        self.module = module
        self.constants = constants
        self.is_partitioned = _is_partitioned(module)
        #: Ops that were made of instructions, by what those say; the shapes are those whose identities are in the key.
        self.patterns: dict[Hashable, tuple[Op, list[Shape | None]]] = {}
        self._built: dict[str, XlaComputation | None] = {}

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
        self._values: dict[str, XlaOp] = {}
        self.shapes: dict[str, Shape] = {}

    def build(self) -> XlaComputation:
        root = self._text.instructions[-1]
        for instruction in self._text.instructions:
            if instruction.name in self._values:
                raise instruction.fail(f"{instruction.name} is defined twice")
            self._values[instruction.name] = self._value(instruction)
            self.shapes[instruction.name] = instruction.shape or self._values[instruction.name].shape
            self._keep_place(instruction)
            root = instruction if instruction.is_root else root
        with self.builder.at(self._text.location):
            computation = self.builder.Build(self._values[root.name])
        sharding = self._sharding(root)
        if sharding is not None:
            texts = split(sharding.text) if sharding.text.startswith("{{") else [sharding.text]
            leaves = len(computation.result_leaves)
            computation.result_shardings = tuple(texts) if len(texts) == leaves else (sharding.text,) * leaves
        return computation

    def _value(self, instruction: Instruction) -> XlaOp:
        """Return the value of an instruction: one like another of the module is one op like that one's."""
        key, patterns = self._key(instruction), self._reader.patterns
        if key is not None and key in patterns:
            pattern, _ = patterns[key]
            operands = [value for name in instruction.operands if (value := self._values[name].value) is not None]
            kind = [pattern.result.type]
            op = make_op(pattern.name, operands, kind, pattern.attributes, location=instruction.location)
            self.builder.block.ops.append(op)
            return XlaOp(self.builder, op.result)
        before = len(self.builder.block.ops)
        with self.builder.at(instruction.location):
            result = self._instruction(instruction)
        made = self.builder.block.ops[before:]
        if key is not None and len(made) == 1 and self._is_pattern(made[0], instruction, result):
            patterns[key] = made[0], [instruction.shape, *(self.shapes[name] for name in instruction.operands)]
        return result

    def _key(self, instruction: Instruction) -> Hashable:
        """Return what the value of an instruction depends on beside the values of its operands.

        None for those without operands, for parts of tuples, which may be known, and where the text has no shape.
        """
        if instruction.opcode == "get-tuple-element" or instruction.shape is None:
            return None
        values = [self._values[name].value for name in instruction.operands if name in self._values]
        types = tuple(value.type for value in values if value is not None)
        if not len(types) == len(instruction.operands) > 0 or self._sharding(instruction) is not None:
            return None
        shapes = tuple(id(self.shapes[name]) for name in instruction.operands)
        entries = tuple((name, entry.text) for name, entry in instruction.attributes.items() if name != "metadata")
        return instruction.opcode, shapes, types, id(instruction.shape), entries

    def _is_pattern(self, op: Op, instruction: Instruction, result: XlaOp) -> bool:
        """Whether all that was made of an instruction is `op` on its operands, which names and holds nothing else."""
        operands = tuple(self._values[name].value for name in instruction.operands)
        plain = not (op.regions or op.discardable or any(name in op.attributes for name in CALLEES))
        return plain and len(op.results) == 1 and result.value is op.result and tuple(op.operands) == operands

    def _instruction(self, instruction: Instruction) -> XlaOp:
        make = _maker(instruction.opcode)
        if make is None:
            raise instruction.fail("HLO opcode that is not read here")
        call = Call(self, instruction)
        sharding = self._sharding(instruction)
        try:
            if sharding is not None and not sharding.text.startswith("{{"):
                self.builder.set_sharding(sharding.text)
            before = len(self.builder.block.ops)
            result = make(call)
        except (InferenceError, ValueError, LookupError, TypeError, OverflowError) as error:
            raise instruction.fail(str(error)) from None
        finally:
            self.builder.clear_sharding()
        unknown = set(instruction.attributes) - call.read - IGNORED
        if unknown:
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

    def _sharding(self, instruction: Instruction) -> AttributeText | None:
        """How the text says that a value is cut; in the program of one device, where blocks came from: nothing."""
        return None if self._reader.is_partitioned else instruction.attributes.get("sharding")

    def _keep_place(self, instruction: Instruction) -> None:
        """What the text says of the instruction's place in someone's program stays with its op."""
        metadata = instruction.attributes.get("metadata")
        place = self._reader.module.places.of(metadata.text if metadata is not None else None)
        value = self._values[instruction.name].value
        op = value.defining_op if value is not None else None
        if place is not None and op is not None and op.debug_location is None:
            op.debug_location = place

    def value(self, name: str, instruction: Instruction) -> XlaOp:
        """Return the operand that is called `name`."""
        if name not in self._values:
            raise instruction.fail(f"operand {name} is not defined before")
        return self._values[name]

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
        """The attributes of the module."""
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
        """The result's shape as the text has it; ParseError where it has none."""
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
            return attribute_text.text
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
        """`{1,2}`."""
        return [int(part) for part in split(self.attribute(name, default))]

    def channel(self) -> int | None:
        """Return the channel of a collective that has one; number 0, which StableHLO has for none, is number 1."""
        return self.integer("channel_id") or 1 if self.has("channel_id") else None

    def dimension(self, name: str) -> int:
        """`{1}`: the one dimension that attribute `name` gives."""
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
        return self.instruction.attributes[name]

    def operands(self, count: int | None = None) -> list[XlaOp]:
        xla_ops = [self._scope.value(name, self.instruction) for name in self.instruction.operands]
        if count is not None and len(xla_ops) != count:
            raise self.instruction.fail(f"{count} operands are needed, there are {len(xla_ops)}")
        return xla_ops

    def operand_shapes(self) -> list[Shape]:
        """Return the operands' shapes as the text gives them: with their layouts."""
        return [self._scope.shapes[name] for name in self.instruction.operands]

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
        """The constant that stands beside the text, and for which `text` stands in it; None where it is none."""
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
    """What makes the value of an instruction: of `call-start`, what makes that of `async-start`."""
    make = INSTRUCTIONS.get(opcode)
    for suffix in _ASYNCHRONOUS:
        if make is None and opcode.removesuffix(suffix) in INSTRUCTIONS:
            make = INSTRUCTIONS["async" + suffix]
    return make


def instruction(*opcodes: str) -> Callable[[Make], Make]:
    """Decorator: files a function under the opcodes that it makes."""
    return filed(INSTRUCTIONS, opcodes, "reader")


def flat(values: Sequence[XlaOp]) -> XlaOp | list[XlaOp]:
    """One operand as itself, several as a list."""
    return values[0] if len(values) == 1 else list(values)
