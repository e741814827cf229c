"""How an op is declared, and the table of all declared ops.

One declaration an op: its operands, attributes (with kinds and defaults), results and regions, how its result types
follow, which constraints hold, and its pretty assembly form. Parser, printer, verifier, builder, compiler and the
completeness tests all read it; nobody else says what an op is.

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
    def _(op: Op) -> str | None: ...       # None when it holds, else the actual values: "2, 2, 1 and 2"

A broken constraint then reads `(C2) size(start_indices) = ... = rank(operand), got 2, 2, 1 and 2`.
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
    """An operand or result: its name, its types, and whether it stands for any number of values.

    `label` is the specification's label of an operand whose place among the Inputs is not its place here.
    """

    name: str
    types: TypeSet = TENSOR
    variadic: bool = False
    label: str = ""


@dataclass(frozen=True)
class AttributeDef:
    """An attribute. `default` is a value, or a function of the op; absent for a required or an optional one.

    `optional` ones without a default read as None.
    """

    name: str
    kind: AttributeKind[Any]
    default: AttributeValue = _REQUIRED
    optional: bool = False

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED and not self.optional


@dataclass(frozen=True)
class RegionDef:
    """A region. `free` ones may have any blocks, ended by any terminator."""

    name: str
    variadic: bool = False
    free: bool = False


class Trait(Enum):
    """What is true of an op whatever its operands are. Each is declared by some op, and read."""

    PURE = auto()  #: no effects: may be removed when unused, computed early, or merged with its equal
    RECURSIVE = auto()  #: pure when all ops in its regions are
    COMMUTATIVE = auto()  #: the two operands may change places
    ELEMENTWISE = auto()  #: a result's element depends on the operands' elements at its place (scalars stand for all)
    BROADCASTING = auto()  #: elementwise on operands that are first broadcast to one shape
    COLLECTIVE = auto()  #: processes of a group take part in it together
    TERMINATOR = auto()  #: ends its block
    ISOLATED = auto()  #: its regions see nothing from outside
    RUNS_REGIONS = auto()  #: its regions are run as they are (while, case), not on elements (reduce)
    SAME_TYPE = auto()  #: operands and results are all of compatible types
    READS_CONTEXT = auto()  #: constraints look at more than types, attributes and what regions take and return


#: A constraint's check: None when it holds, else the actual values that break it.
Check = Callable[[Op], str | None]


@dataclass(frozen=True)
class Constraint:
    """A constraint of the specification: `check` returns None, or the values that break it.

    `on_results` marks one that looks at the results; the others hold or break before the results are known.
    `advisory` marks one that only the specification's text states: programs that break it are taken by StableHLO's own
    verifier, so that it is a warning unless one asks for more. `meaningless` marks one of these that leaves the op
    without a meaning: what breaks it is read and written, and not compiled. `customary` marks one that frontends break
    as a matter of course, to accumulate in a wider type say: programs that are built may, too.
    """

    label: str
    text: str
    check: Check
    on_results: bool = False
    advisory: bool = False
    meaningless: bool = False
    customary: bool = False

    def fault(self, op: Op) -> str | None:
        """What is wrong with `op`, in words; None when nothing is."""
        broken = self.check(op)
        return None if broken is None else f"{self.text}, got {broken}"


#: The op that a symbol names in the nearest module, or None.
Lookup = Callable[[str], Op | None]


@dataclass(frozen=True)
class SymbolConstraint:
    """A constraint on what the op's symbols name; `check` also takes the way to look them up."""

    label: str
    text: str
    check: Callable[[Op, Lookup], str | None]


#: An inference rule: the op, whose `results` may be empty, to its result types. Raises InferenceError.
Infer = Callable[[Op], list[Type]]


class InferenceError(Exception):
    """Result types cannot be worked out: the operands break a constraint. `label` names it where known."""

    def __init__(self, message: str, label: str = "") -> None:
        super().__init__(message)
        self.label = label


@dataclass(eq=False)
class OpDef:
    """The declaration of one op. Use `define`."""

    name: str
    operands: tuple[OperandDef, ...]
    attributes: tuple[AttributeDef, ...]
    results: tuple[OperandDef, ...]
    regions: tuple[RegionDef, ...]
    assembly: str | None
    traits: frozenset[Trait]
    constraints: list[Constraint] = field(default_factory=list)
    symbol_constraints: list[SymbolConstraint] = field(default_factory=list)
    #: The result types of an op, its input constraints checked first; None for an op that must declare them.
    inference: Infer | None = None
    #: The same without the checks.
    rule: Infer | None = None
    #: Whether declared results that contradict `rule` are a warning, as a `meaningless` constraint is.
    rule_is_advisory: bool = False
    #: The labels and the text of what `rule` follows.
    rule_label: str = ""
    rule_text: str = "the result types follow from the operands"

    def __post_init__(self) -> None:
        self.attribute_table = {declared.name: declared for declared in self.attributes}
        self.required_attributes = tuple(declared.name for declared in self.attributes if declared.required)
        self.dialect = self.name.partition(".")[0]
        self.is_terminator = Trait.TERMINATOR in self.traits
        #: Whether the op has no effects of its own.
        self.is_pure = Trait.PURE in self.traits
        self.is_context_free = Trait.READS_CONTEXT not in self.traits
        self._slices: dict[tuple[str, int, tuple[int, ...] | None], dict[str, slice]] = {}

    def infer(self, rule: Infer) -> Infer:
        """Decorator: `rule` gives the result types of an op whose input constraints hold."""
        self.rule = rule

        def inference(op: Op) -> list[Type]:
            for constraint in self.constraints:
                if not (constraint.on_results or constraint.advisory) and (fault := constraint.fault(op)) is not None:
                    raise InferenceError(fault, constraint.label)
            return rule(op)

        self.inference = inference
        return rule

    def infers(self, label: str, text: str, *, advisory: bool = False) -> Callable[[Infer], Infer]:
        """Decorator: `rule` gives the result types as the constraints `label` ("C5, C6") say."""
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
        """Decorator: the function checks the constraint `label` of the specification.

        Constraints are checked in the order of declaration, up to the first that is broken: a later one may rely on
        the earlier ones, but for `advisory` ones. `on_results` ones come after the others, before the results are
        compared with what follows. `meaningless` and `customary` ones are advisory.
        """

        def add(check: Check) -> Check:
            advice = advisory or meaningless or customary
            self.constraints.append(Constraint(label, text, check, on_results, advice, meaningless, customary))
            return check

        return add

    def symbol_constraint(
        self, label: str, text: str
    ) -> Callable[[Callable[[Op, Lookup], str | None]], Callable[[Op, Lookup], str | None]]:
        """Decorator: the function checks a constraint on what the op's symbols name."""

        def add(check: Callable[[Op, Lookup], str | None]) -> Callable[[Op, Lookup], str | None]:
            self.symbol_constraints.append(SymbolConstraint(label, text, check))
            return check

        return add

    @property
    def labels(self) -> list[str]:
        """Labels of all constraints that are checked, in the order of checking."""
        names = [constraint.label for constraint in self.constraints]
        names += [constraint.label for constraint in self.symbol_constraints]
        return [label for entry in (*names, self.rule_label) for label in entry.split(", ") if label]

    def default(self, op: Op, name: str) -> AttributeValue:
        """Return the default of attribute `name`; None for an optional one; KeyError for a required or unknown one."""
        declared = self.attribute_table[name]
        if declared.default is _REQUIRED:
            if declared.optional:
                return None
            raise KeyError(f"{self.name}: attribute {name} is missing")
        return declared.default(op) if callable(declared.default) else declared.default

    def operand_slice(self, op: Op, name: str) -> slice:
        """Where the operands declared as `name` stand in `op.operands`."""
        return self.slices(op, "operand")[name]

    def slices(self, op: Op, kind: str) -> dict[str, slice]:
        """Where each declared operand or result (`kind`) stands among the op's, by name."""
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
        """Deals `count` values out: by segment sizes where given, else evenly among the variadic ones."""
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


#: Every declared op by name.
OPS: dict[str, OpDef] = {}


def operand(name: str, types: TypeSet = TENSOR, *, variadic: bool = False, label: str = "") -> OperandDef:
    return OperandDef(name, types, variadic, label)


result = operand


def operands_of(types: TypeSet, *names: str) -> list[OperandDef]:
    """One operand a name, or one result, all of the same types."""
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
    """Declare op `name`.

    `assembly` is the pretty form in the notation of spmd/syntax/assembly.py; None for an op that is always printed
    in the generic form.
    """
    if name in OPS:
        raise ValueError(f"{name} is declared twice")
    op_def = OpDef(
        name, tuple(operands), tuple(attributes), tuple(results), tuple(regions), assembly, frozenset(traits)
    )
    OPS[name] = op_def
    return op_def


def is_pure(op: Op) -> bool:
    """Return whether `op` has no effect but its results, nor anything in its regions."""
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
    """Names of the dialects that have declared ops."""
    return {definition.dialect for definition in OPS.values()}


_NAME = re.compile(r"[A-Za-z_][\w$\-]*(?:\.[\w$.\-]+)?", re.ASCII)


def is_op_name(name: str) -> bool:
    """Return whether `name` is spelled as the name of an op."""
    return _NAME.fullmatch(name) is not None


def name_fault(name: str) -> str | None:
    """Return what is wrong with the full name of an op; None of a declared op, and of one of an unknown dialect."""
    if name in OPS:
        return None
    if not is_op_name(name):
        return f"{name[:80]!r} is no operation name"
    dialect = name.partition(".")[0]
    return f"{name} is no operation of the {dialect} dialect" if dialect in dialects() else None
