"""Imports the global program for the partitioner: one function without calls, and a table of annotations.

Calls and named computations are inlined, loop invariants are removed from loop state, constants are cloned per use (so
that each may be sharded differently), and sharding annotations become entries of a table.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from partitioner.device_ids import resolve_device_ids
from partitioner.manual import copy_local
from partitioner.manual_values import manual_values
from partitioner.reading import ShardingReader
from partitioner.sharding import Annotation
from spmd.analysis.shardings import SHARDING_CALLS, is_layout_call
from spmd.dialects.calls import CALLS, Calls
from spmd.dialects.make import make_op
from spmd.dialects.sdy_attributes import ShardingPerValue
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Block, Function, Module, Op, Region, Value, copy_arguments
from spmd.types import TensorType, Type

_CONSTANT = frozenset(("stablehlo.constant", "stablehlo.iota", "sdy.constant"))
#: Ops whose regions belong to the global program; regions of all others work on elements.
_CONTROL = frozenset(("stablehlo.while", "stablehlo.case", "stablehlo.if", "sdy.manual_computation"))
#: Ops that change only the sharding: explicit reshards, and sdy's collectives that move data.
_RESHARDINGS = frozenset(
    "sdy." + name
    for name in (
        *("reshard", "all_gather", "all_slice", "all_to_all", "collective_permute"),
        *("sharded_to_unreduced", "replicated_to_unreduced"),
    )
)
#: Collectives that reduce across processes.
_REDUCING = frozenset(("sdy.all_reduce", "sdy.reduce_scatter"))
CONSTRAINT = "sdy.sharding_constraint"


@dataclass
class ImportedProgram:
    """The imported program: `block` is the body, and its arguments the function's.

    `annotations` holds the annotations of values, `devices` the device of each op that a single device computes, and
    `manual` the manual sub-axes of values by GSPMD's calls into manual code. `origins` maps ops to those they copy.
    """

    function: Function
    block: Block
    annotations: dict[Value, Annotation] = field(default_factory=dict)
    groups: dict[int, list[Value]] = field(default_factory=dict)
    devices: dict[Op, int] = field(default_factory=dict)
    manual: dict[Value, frozenset[int]] = field(default_factory=dict)
    origins: dict[Op, Op] = field(default_factory=dict)


def import_program(
    module: Module,
    function: Function,
    reader: ShardingReader,
    *,
    as_written: bool = False,
    whole_boundary: bool = False,
) -> ImportedProgram:
    """Return the imported and annotated program of `function`.

    `as_written` keeps the form of ops, and unused ops; with `whole_boundary`, arguments and results without annotation
    are replicated.
    """
    importer = _Importer(module, reader, as_written)
    importer.calls.check_size(function)
    values: dict[Value, Value] = {}
    block = copy_arguments(function.body, values)
    program = ImportedProgram(function, block, importer.annotations, importer.groups, importer.devices)
    program.origins = importer.origins
    for argument, entry in zip(block.arguments, function.argument_attributes, strict=True):
        annotation = reader.of_attributes(dict(entry), [argument.type], function)[0]
        importer.add_annotation(argument, annotation or (_whole(argument, reader) if whole_boundary else None))
    with importer.calls.inside(function):
        _run(importer.append(function.body.ops[:-1], values, block))
    terminator = function.body.terminator
    returned = []
    _refuse_dynamic(block, function)
    for value, entry in zip(terminator.operands, function.result_attributes, strict=True):
        annotation = reader.of_attributes(dict(entry), [value.type], function)[0]
        annotation = annotation or (_whole(value, reader) if whole_boundary else None)
        mapped = importer.use(value, values, block)
        returned.append(mapped if annotation is None else importer.constrain(mapped, annotation, block, terminator))
    block.ops.append(make_op("func.return", returned, location=terminator.location))
    if not as_written:
        resolve_device_ids(block, program.devices, program.annotations, has_effects)
        remove_dead(block)
    program.manual = manual_values(block, reader)
    return program


def _whole(value: Value, reader: ShardingReader) -> Annotation | None:
    return reader.replicated(value.type) if isinstance(value.type, TensorType) else None


def _refuse_dynamic(block: Block, function: Function) -> None:
    """Raise CompileError at the first value with a dynamic shape."""
    values = [(argument, function) for argument in block.arguments]
    values += [(result, op) for op in block.walk() for result in op.results]  # type: ignore[misc]
    for value, place in values:
        if isinstance(value.type, TensorType) and not value.type.is_static:
            text = f"a value of a partitioned program must have a static shape, got {value.type}"
            raise CompileError(Diagnostic(place.location, text, place.name))


#: A generator that yields the work it depends on, since calls may nest deeper than Python's stack allows.
_Work = Generator["_Work", None, None]


def _run(work: _Work) -> None:
    started = [work]
    while started:
        needed = next(started[-1], None)
        if needed is None:
            started.pop()
        else:
            started.append(needed)


class _Importer:
    def __init__(self, module: Module, reader: ShardingReader, as_written: bool) -> None:
        self.calls = Calls(module)
        self.reader = reader
        self.as_written = as_written
        self.annotations: dict[Value, Annotation] = {}
        self.groups: dict[int, list[Value]] = {}
        self.devices: dict[Op, int] = {}
        self.origins: dict[Op, Op] = {}
        self._constants: dict[Value, Block] = {}
        self._used: set[Value] = set()

    def add_annotation(self, value: Value, annotation: Annotation | None) -> None:
        """Record the annotation of `value`, if there is one."""
        if annotation is not None:
            self.annotations[value] = annotation

    def constrain(self, value: Value, annotation: Annotation, block: Block, place: Op) -> Value:
        """Return `value` behind a sharding constraint."""
        op = make_op(CONSTRAINT, [value], [value.type], location=place.location)
        block.ops.append(op)
        self.annotations[op.result] = annotation
        return op.result

    def use(self, value: Value, values: dict[Value, Value], block: Block) -> Value:
        """Return the copy of `value`; constants are cloned from their second use on."""
        mapped = values.get(value, value)
        home = self._constants.get(mapped)
        if home is None:
            return mapped
        if mapped not in self._used:
            self._used.add(mapped)
            return mapped
        op = mapped.defining_op
        assert op is not None
        operands = [self.use(operand, {}, home) for operand in op.operands]
        constant_clone = op.clone(operands)
        home.ops.append(constant_clone)
        self._constants[constant_clone.result] = home
        self._used.add(constant_clone.result)
        return constant_clone.result

    def append(self, ops: list[Op], values: dict[Value, Value], block: Block) -> _Work:
        """Append copies of `ops` to `block`; `values` maps original values to their copies."""
        for op in ops:
            if op.name in CALLS:
                yield self._call(op, values, block)
            elif op.name == "sdy.named_computation":
                yield self._named(op, values, block)
            elif op.name in _CONTROL:
                yield self._control(op, values, block)
            elif op.name == "sdy.sharding_group":
                self.groups.setdefault(op["group_id"], []).append(values.get(op.operands[0], op.operands[0]))
            elif op.name in ("sdy.data_flow_edge", "sdy.func_data_flow_edge"):
                values[op.result] = values.get(op.operands[0], op.operands[0])
            else:
                self._plain(op, values, block)

    def _control(self, op: Op, values: dict[Value, Value], block: Block) -> _Work:
        operands = [self.use(operand, values, block) for operand in op.operands]
        regions = []
        for region in op.regions:
            blocks = []
            for inner in region.blocks:
                blocks.append(copy_arguments(inner, values))
                yield self.append(inner.ops, values, blocks[-1])
            regions.append(Region(blocks))
        clone = op.clone(operands, regions=regions)
        values.update(zip(op.results, clone.results, strict=True))
        if clone.name == "stablehlo.while" and not self.as_written:
            clone = self._without_invariants(op, clone, values)
        block.ops.append(clone)
        self._annotate(op, clone)

    def _plain(self, op: Op, values: dict[Value, Value], block: Block) -> None:
        operands = [self.use(operand, values, block) for operand in op.operands]
        if self.as_written and op.name in _RESHARDINGS:
            clone = op.clone(operands)
        elif op.name in _RESHARDINGS or is_layout_call(op):
            clone = make_op(CONSTRAINT, operands, op.result_types, location=op.location)
            clone.discardable = op.discardable
        elif _only_adds_units(op) and not self.as_written:
            # A reshape propagates earlier: JAX lowers x[:, None] to this.
            name = "stablehlo.reshape"
            clone = make_op(name, operands, op.result_types, location=op.location)
            clone.discardable = op.discardable
        else:
            clone = op.clone(operands, regions=copy_local(op, values).regions)
        self.origins[clone] = op
        values.update(zip(op.results, clone.results, strict=True))
        block.ops.append(clone)
        self._annotate(op, clone)
        if op.name in _CONSTANT or (op.name == "stablehlo.broadcast_in_dim" and operands[0] in self._constants):
            self._constants[clone.result] = block

    def _annotate(self, op: Op, clone: Op) -> None:
        reader = self.reader
        if op.name == CONSTRAINT or op.name in _RESHARDINGS or op.name in _REDUCING:
            name = "out_sharding" if op.definition and "out_sharding" in op.definition.attribute_table else "sharding"
            self.add_annotation(clone.result, reader.annotation_of(op, op[name], op.result.type))
            return
        device = self.reader.device(op) if op.discardable and not _is_hint(op) else None
        if device is not None:
            self.devices[clone] = device
        if op.discardable and len(clone.results) == len(op.results):
            annotations = reader.of_attributes(op.discardable, op.result_types, op)
            if op.name == "stablehlo.custom_call" and op["call_target_name"] in SHARDING_CALLS:
                annotations = [_opened(annotations[0], op["backend_config"])]
            for value, annotation in zip(clone.results, annotations, strict=True):
                self.add_annotation(value, annotation)

    def _call(self, op: Op, values: dict[Value, Value], block: Block) -> _Work:
        callee = self.calls.callee(op)
        inner: dict[Value, Value] = {}
        for argument, operand, entry in zip(callee.arguments, op.operands, callee.argument_attributes, strict=True):
            value = values.get(operand, operand)
            (annotation,) = self.reader.of_attributes(dict(entry), [argument.type], callee)
            inner[argument] = value if annotation is None else self.constrain(value, annotation, block, op)
        with self.calls.inside(callee):
            yield self.append(callee.body.ops[:-1], inner, block)
        returned = callee.body.terminator.operands
        at_call = self.reader.of_attributes(op.discardable, op.result_types, op)
        for result, value, entry, of_call in zip(op.results, returned, callee.result_attributes, at_call, strict=True):
            mapped = inner.get(value, value)
            annotation = of_call or self.reader.of_attributes(dict(entry), [value.type], callee)[0]
            values[result] = mapped if annotation is None else self.constrain(mapped, annotation, block, op)

    def _named(self, op: Op, values: dict[Value, Value], block: Block) -> _Work:
        body = op.region("body").block
        annotations = _per_value(op, op["in_shardings"], op.operand_types, self.reader)
        for argument, operand, annotation in zip(body.arguments, op.operands, annotations, strict=True):
            value = values.get(operand, operand)
            values[argument] = value if annotation is None else self.constrain(value, annotation, block, op)
        yield self.append(body.ops[:-1], values, block)
        annotations = _per_value(op, op["out_shardings"], op.result_types, self.reader)
        for result, returned, annotation in zip(op.results, body.terminator.operands, annotations, strict=True):
            value = values.get(returned, returned)
            values[result] = value if annotation is None else self.constrain(value, annotation, block, op)

    def _without_invariants(self, op: Op, loop: Op, values: dict[Value, Value]) -> Op:
        """Return `loop`, the copy of `op`, without the state that its body returns unchanged."""
        condition, body = (region.block for region in loop.regions)
        invariant = [
            index
            for index, value in enumerate(body.terminator.operands)
            if value is body.arguments[index] and loop.results[index] not in self.annotations
        ]
        if not invariant or len(invariant) == len(loop.operands):
            return loop
        outer: dict[Value, Value] = {}
        for index in invariant:
            for inner in (condition.arguments[index], body.arguments[index]):
                outer[inner] = loop.operands[index]
            values[op.results[index]] = loop.operands[index]
        keep = [index for index in range(len(loop.operands)) if index not in set(invariant)]
        for block in (condition, body):
            replace_uses(block, outer)
            block.set_arguments([block.arguments[index] for index in keep])
        body.terminator.operands = tuple([body.terminator.operands[index] for index in keep])
        operands, types = [loop.operands[index] for index in keep], [loop.results[index].type for index in keep]
        kept = loop.clone(operands, types)
        for index, result in zip(keep, kept.results, strict=True):
            result.name_hint = op.results[index].name_hint
            values[op.results[index]] = result
        return kept


def _only_adds_units(op: Op) -> bool:
    """Return whether a broadcast only inserts dimensions of size 1."""
    if op.name != "stablehlo.broadcast_in_dim" or not op.result.tensor.is_static or op.result.tensor.is_quantized:
        return False
    dimensions = op["broadcast_dimensions"]
    is_ordered = all(first < second for first, second in pairwise(dimensions))
    return is_ordered and op.operands[0].tensor.is_static and op.operands[0].tensor.size == op.result.tensor.size


def _is_hint(op: Op) -> bool:
    """Return whether `op` only annotates its operand with a sharding."""
    return op.name == "stablehlo.custom_call" and op["call_target_name"] in SHARDING_CALLS


def _opened(annotation: Annotation | None, config: object) -> Annotation | None:
    """Return a @Sharding call's annotation, opened in the dimensions that its config lists as unspecified."""
    if annotation is None or not isinstance(config, str) or "unspecified_dims=[" not in config:
        return annotation
    named = config.split("unspecified_dims=[")[1].split("]")[0]
    unspecified = {int(part) for part in named.split(",") if part.strip()}
    closed = tuple(is_closed and index not in unspecified for index, is_closed in enumerate(annotation.closed))
    return replace(annotation, closed=closed)


def _per_value(
    op: Op, attribute: ShardingPerValue | None, types: Sequence[Type], reader: ShardingReader
) -> list[Annotation | None]:
    if attribute is None:
        return [None] * len(types)
    return [reader.annotation_of(op, sharding, type) for sharding, type in zip(attribute.shardings, types, strict=True)]


def replace_uses(block: Block, values: dict[Value, Value]) -> None:
    """Replace the keys of `values` by their values in all ops of `block`, including nested ones."""
    for op in block.ops:
        for inner in op.walk():
            if any(operand in values for operand in inner.operands):
                inner.replace_operands(values)


def has_effects(op: Op) -> bool:
    """Return whether `op` must be kept even if its results are unused."""
    definition = op.definition
    if definition is None or definition.is_terminator:
        return True
    if op.name == CONSTRAINT or op.name.startswith("sdy."):
        return False
    if op.name == "stablehlo.custom_call":
        return bool(op["has_side_effect"])
    if op.regions:
        return any(
            has_effects(inner) for region in op.regions for b in region.blocks for inner in b.ops if not _ends(inner)
        )
    return not definition.is_pure


def _ends(op: Op) -> bool:
    return op.definition is not None and op.definition.is_terminator


def remove_dead(block: Block) -> None:
    """Remove unused ops without side effects, also in regions. Constraints stay, since they affect propagation."""
    used: set[Value] = set()
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.name != CONSTRAINT and not has_effects(op) and not any(result in used for result in op.results):
            continue
        for inner in op.walk():
            used.update(inner.operands)
        kept.append(op)
    block.ops[:] = reversed(kept)
