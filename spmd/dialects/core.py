"""Declarations of ops, and the table of all declared ops.

A declaration has the op's operands, attributes (with kinds and defaults), results and regions, the inference of result
types, the constraints, and the pretty assembly form. It is the only source: the parser, printer, verifier, builder,
compiler and completeness tests all use it.

    SLICE = define(
        "stablehlo.slice",
        operands=[operand("operand")],
        attributes=[attribute("start_indices", I64_ARRAY), ...],
        results=[result("result")],
        assembly="$operand custom<SliceRanges>($start_indices, $limit_indices, $strides) attr-dict : functional-type",
    )

    @SLICE.infer
    def _(op: Op) -> list[Type]: ...

    @SLICE.constraint("C2", "size(start_indices) = size(limit_indices) = size(strides) = rank(operand)")
    def _(op: Op) -> str | None: ...       # None if it holds, else the actual values: "2, 2, 1 and 2"

A violation is reported as `(C2) size(start_indices) = ... = rank(operand), got 2, 2, 1 and 2`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from spmd.dialects.kinds import AttributeKind
from spmd.dialects.type_sets import TENSOR, TypeSet
from spmd.ir import AttributeValue, Op
from spmd.types import Type

_REQUIRED = object()


@dataclass(frozen=True)
class OperandDef:
    """An operand or result: its name, its types, and whether it is variadic.

    `label` is the specification's label of an operand whose position among the Inputs differs from its position here.
    """

    name: str
    types: TypeSet = TENSOR
    variadic: bool = False
    label: str = ""


@dataclass(frozen=True)
class AttributeDef:
    """An attribute. `default` is a value, or a function of the op; absent if the attribute is required or optional.

    `optional` attributes without a default have the value None.
    """

    name: str
    kind: AttributeKind[Any]
    default: AttributeValue = _REQUIRED
    optional: bool = False

    @property
    def required(self) -> bool:
        """Whether the attribute must be given."""
        return self.default is _REQUIRED and not self.optional


@dataclass(frozen=True)
class RegionDef:
    """A region. `free` regions may have any blocks, with any terminator."""

    name: str
    variadic: bool = False
    free: bool = False


class Trait(Enum):
    """A property of an op that does not depend on its operands."""

    PURE = auto()  #: without side effects: may be removed if unused, moved, or merged with an equal op
    RECURSIVE = auto()  #: pure if all ops in its regions are
    COMMUTATIVE = auto()  #: the two operands may be exchanged
    ELEMENTWISE = auto()  #: an element of the result depends on the operands' elements at its index (or on scalars)
    BROADCASTING = auto()  #: elementwise on operands that are first broadcast to one shape
    COLLECTIVE = auto()  #: executed jointly by the processes of a group
    TERMINATOR = auto()  #: ends its block
    ISOLATED = auto()  #: its regions capture no outer values
    RUNS_REGIONS = auto()  #: its regions are executed as they are (while, case), not applied to elements (reduce)
    LOOP = auto()  #: runs its regions repeatedly, on the results of the time before
    BRANCH = auto()  #: runs one of its regions
    VIEW = auto()  #: results have the memory of the operands, unchanged
    MOVES = auto()  #: each element of the result is one of the operand
    SAME_TYPE = auto()  #: operands and results are all of compatible types
    READS_CONTEXT = auto()  #: constraints depend on more than types, attributes and signatures of regions


#: A constraint's check: None if it holds, else the actual values that violate it.
Check = Callable[[Op], str | None]


@dataclass(frozen=True)
class Constraint:
    """A constraint of the specification: `check` returns None, or the values that violate it.

    `on_results` marks a constraint on results; others can be checked before the results are known. `advisory` marks one
    that only the specification's text states: StableHLO's verifier accepts violations, so that they are warnings by
    default. `meaningless` marks an advisory one whose violation leaves the op without a meaning: it is read and
    written, but not compiled. `customary` marks one that frontends violate regularly, for example to accumulate in a
    wider type: built programs may, too.
    """

    label: str
    text: str
    check: Check
    on_results: bool = False
    advisory: bool = False
    meaningless: bool = False
    customary: bool = False

    def fault(self, op: Op) -> str | None:
        """Return the violation as text; None if the constraint holds."""
        broken = self.check(op)
        return None if broken is None else f"{self.text}, got {broken}"


#: Returns the op that a symbol names in the nearest module, or None.
Lookup = Callable[[str], Op | None]


@dataclass(frozen=True)
class SymbolConstraint:
    """A constraint on the symbols that the op names; `check` also takes the look-up function."""

    label: str
    text: str
    check: Callable[[Op, Lookup], str | None]


#: Maps an op, whose `results` may be empty, to its result types. Raises InferenceError.
Infer = Callable[[Op], list[Type]]


class InferenceError(Exception):
    """Result types cannot be inferred because a constraint is violated; `label` names it if known."""

    def __init__(self, message: str, label: str = "") -> None:
        super().__init__(message)
        self.label = label


@dataclass(eq=False)
class OpDef:
    """The declaration of one op, made by `define`."""

    name: str
    operands: tuple[OperandDef, ...]
    attributes: tuple[AttributeDef, ...]
    results: tuple[OperandDef, ...]
    regions: tuple[RegionDef, ...]
    assembly: str | None
    traits: frozenset[Trait]
    constraints: list[Constraint] = field(default_factory=list)
    symbol_constraints: list[SymbolConstraint] = field(default_factory=list)
    #: Returns the result types of an op after checking its input constraints; None if results must be declared.
    inference: Infer | None = None
    #: The same without the checks.
    rule: Infer | None = None
    #: Whether declared results that contradict `rule` are a warning, as for a `meaningless` constraint.
    rule_is_advisory: bool = False
    #: The labels and the text of the constraints that `rule` implements.
    rule_label: str = ""
    rule_text: str = "the result types follow from the operands"

    def __post_init__(self) -> None:
        self.attribute_table = {declared.name: declared for declared in self.attributes}
        self.required_attributes = tuple(declared.name for declared in self.attributes if declared.required)
        self.dialect = self.name.partition(".")[0]
        self.is_terminator = Trait.TERMINATOR in self.traits
        #: Whether the op has no side effects of its own.
        self.is_pure = Trait.PURE in self.traits
        self.is_context_free = Trait.READS_CONTEXT not in self.traits
        self._slices: dict[tuple[str, int, tuple[int, ...] | None], dict[str, slice]] = {}

    def infer(self, rule: Infer) -> Infer:
        """Register `rule`, which returns the result types of an op whose input constraints hold; a decorator."""
        self.rule = rule

        def inference(op: Op) -> list[Type]:
            for constraint in self.constraints:
                if not (constraint.on_results or constraint.advisory) and (fault := constraint.fault(op)) is not None:
                    raise InferenceError(fault, constraint.label)
            return rule(op)

        self.inference = inference
        return rule

    def infers(self, label: str, text: str, *, advisory: bool = False) -> Callable[[Infer], Infer]:
        """Return a decorator that registers a `rule` for the result types by constraints `label` ("C5, C6")."""
        self.rule_label, self.rule_text, self.rule_is_advisory = label, text, advisory
        return self.infer

    def constraint(
        self,
        label: str,
        text: str,
        *,
        on_results: bool = False,
        advisory: bool = False,
        meaningless: bool = False,
        customary: bool = False,
    ) -> Callable[[Check], Check]:
        """Return a decorator that registers the check of constraint `label` of the specification.

        Constraints are checked in order of declaration, up to the first violation: later ones may rely on earlier ones
        (except for `advisory` ones). `on_results` ones come after the others, before results are compared with the
        inferred types. `meaningless` and `customary` ones are advisory.
        """

        def add(check: Check) -> Check:
            advice = advisory or meaningless or customary
            self.constraints.append(Constraint(label, text, check, on_results, advice, meaningless, customary))
            return check

        return add

    def symbol_constraint(
        self, label: str, text: str
    ) -> Callable[[Callable[[Op, Lookup], str | None]], Callable[[Op, Lookup], str | None]]:
        """Return a decorator that registers the check of a constraint on the symbols that the op names."""

        def add(check: Callable[[Op, Lookup], str | None]) -> Callable[[Op, Lookup], str | None]:
            self.symbol_constraints.append(SymbolConstraint(label, text, check))
            return check

        return add

    @property
    def labels(self) -> list[str]:
        """The labels of all constraints, in the order of checking."""
        names = [constraint.label for constraint in self.constraints]
        names += [constraint.label for constraint in self.symbol_constraints]
        return [label for entry in (*names, self.rule_label) for label in entry.split(", ") if label]

    def default(self, op: Op, name: str) -> AttributeValue:
        """Return the default of attribute `name`, None if it is optional; raises KeyError if required or unknown."""
        declared = self.attribute_table[name]
        if declared.default is _REQUIRED:
            if declared.optional:
                return None
            raise KeyError(f"{self.name}: attribute {name} is missing")
        return declared.default(op) if callable(declared.default) else declared.default

    def operand_slice(self, op: Op, name: str) -> slice:
        """Return the slice of `op.operands` that is declared as `name`."""
        return self.slices(op, "operand")[name]

    def slices(self, op: Op, kind: str) -> dict[str, slice]:
        """Return the slice of each declared operand or result (`kind`) by name."""
        declared, count = (self.operands, len(op.operands)) if kind == "operand" else (self.results, len(op.results))
        segments = op.attributes.get(f"{kind}SegmentSizes")
        key = (kind, count, segments)
        slices = self._slices.get(key)
        if slices is None:
            slices = self._slices[key] = self._split(declared, count, segments)
        return slices

    def region_index(self, name: str) -> int:
        return next(index for index, region in enumerate(self.regions) if region.name == name)

    def _split(
        self, declared: tuple[OperandDef, ...], count: int, segments: tuple[int, ...] | None
    ) -> dict[str, slice]:
        """Divide `count` values: by segment sizes if given, else evenly among the variadic ones."""
        loose = [entry for entry in declared if entry.variadic]
        if segments is not None and len(segments) == len(declared):
            sizes: Iterable[int] = segments
        else:
            spare = max(0, count - (len(declared) - len(loose)))
            each, extra = divmod(spare, len(loose)) if loose else (0, 0)
            sizes = [each + (extra if entry is loose[0] else 0) if entry in loose else 1 for entry in declared]
        slices, start = {}, 0
        for entry, size in zip(declared, sizes, strict=True):
            slices[entry.name] = slice(start, start + size)
            start += size
        return slices


#: All declared ops by name.
OPS: dict[str, OpDef] = {}


def operand(name: str, types: TypeSet = TENSOR, *, variadic: bool = False, label: str = "") -> OperandDef:
    return OperandDef(name, types, variadic, label)


result = operand


def operands_of(types: TypeSet, *names: str) -> list[OperandDef]:
    """Return one operand (or result) declaration per name, all of the same types."""
    return [OperandDef(name, types) for name in names]


def attribute(
    name: str, kind: AttributeKind[Any], *, default: AttributeValue = _REQUIRED, optional: bool = False
) -> AttributeDef:
    return AttributeDef(name, kind, default, optional)


def region(name: str, *, variadic: bool = False, free: bool = False) -> RegionDef:
    return RegionDef(name, variadic, free)


def define(
    name: str,
    *,
    operands: Iterable[OperandDef] = (),
    attributes: Iterable[AttributeDef] = (),
    results: Iterable[OperandDef] = (),
    regions: Iterable[RegionDef] = (),
    assembly: str | None = None,
    traits: Iterable[Trait] = (),
) -> OpDef:
    """Declare op `name`; raises ValueError if it is declared already.

    `assembly` is the pretty form in the notation of spmd/syntax/assembly.py; without it, the op is printed in the
    generic form.
    """
    if name in OPS:
        raise ValueError(f"{name} is declared twice")
    op_def = OpDef(
        name, tuple(operands), tuple(attributes), tuple(results), tuple(regions), assembly, frozenset(traits)
    )
    OPS[name] = op_def
    return op_def


def is_pure(op: Op) -> bool:
    """Return whether `op`, and every op in its regions, has no side effects."""
    if op.definition is None:
        return False
    if not op.regions:
        return op.definition.is_pure
    return (op.definition.is_pure or Trait.RECURSIVE in op.definition.traits) and all(
        is_pure(inner) or (inner.definition is not None and inner.definition.is_terminator)
        for region in op.regions
        for block in region.blocks
        for inner in block.ops
    )


def has_trait(op: Op, trait: Trait) -> bool:
    """Return whether `op` is declared with `trait`."""
    return op.definition is not None and trait in op.definition.traits


def dialects() -> set[str]:
    """Return the names of the dialects with declared ops."""
    return {definition.dialect for definition in OPS.values()}


_NAME = re.compile(r"[A-Za-z_][\w$\-]*(?:\.[\w$.\-]+)?", re.ASCII)


def is_op_name(name: str) -> bool:
    """Return whether `name` has the form of an op's name."""
    return _NAME.fullmatch(name) is not None


def name_fault(name: str) -> str | None:
    """Return the fault of an op's full name; None for a declared op, or one of an unknown dialect."""
    if name in OPS:
        return None
    if not is_op_name(name):
        return f"{name[:80]!r} is not an op name"
    dialect = name.partition(".")[0]
    return f"{name} is not an op of the {dialect} dialect" if dialect in dialects() else None
