"""The verifier: whether a module keeps every constraint of its ops' declarations.

All that is wrong is told in one VerificationError, in source order. Source: StableHLO specification, the Constraints
of each op and type, "Functions", "Identifiers"; ops of dialects that nobody declared pass.

An op is judged by its name, types, attributes and what its regions take and return, so equal ones are judged once:
the checks of a program cost what its distinct ops cost.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np

from spmd.analysis.memory import uncountable
from spmd.compiler.pipeline.scoping import uses_out_of_scope
from spmd.dialects.checks import is_terminator, listed
from spmd.dialects.core import OpDef
from spmd.dialects.faults import faults, inference_faults
from spmd.dialects.func import function_fault
from spmd.dialects.sdy_verify import verify_shardings
from spmd.dialects.type_rules import type_advice, value_fault
from spmd.errors import UNKNOWN, CompileError, Diagnostic, VerificationError
from spmd.ir import AttributeValue, Block, Function, Module, Op, Region
from spmd.ir.attributes import DenseAttr
from spmd.support.usage import check_module
from spmd.types import FunctionType

_MOST_REMEMBERED = 100_000


def verify(module: Op, *, scoped: bool = False) -> None:
    """Checks `module` and everything in it; raises VerificationError with all that is wrong.

    `scoped` says that every value is known to be visible where it is used: a parser finds them by what is visible.
    """
    if not isinstance(module, Op):
        check_module(module, "spmd.verify")
    verifier = _Verifier()
    if not scoped:
        for op, value in uses_out_of_scope(module):
            verifier.error(op, f"operand %{value.name_hint or '?'} is defined before its use and in scope")
    verifier.check_region_op(module)
    all_faults = verifier.faults
    if verifier.has_shardings and isinstance(module, Module) and not all_faults:
        all_faults.extend(verify_shardings(module))
    if all_faults:
        raise VerificationError(all_faults)


def warnings(module: Op) -> list[Diagnostic]:
    """What breaks the specification's text in a module that verifies: the reference takes it, and so does `verify`."""
    of_text = module.advice if isinstance(module, Module) else ()
    return [*of_text, *(warning for op in module.walk() for warning in (*_advice(op), *_type_advice(op)))]


def check_meaning(module: Op) -> None:
    """Raises CompileError where an op of a module that verifies has no meaning for what it was given.

    Or where it gives what no array can hold.
    """
    for op in module.walk():
        for diagnostic in _advice(op, meaningless=True):
            raise CompileError(diagnostic)
        if (fault := uncountable(op.result_types)) is not None:
            raise CompileError(Diagnostic(op.location, fault, op.name))


def _advice(op: Op, *, meaningless: bool = False) -> Iterator[Diagnostic]:
    """The first of the advisory constraints that `op` breaks; `meaningless`: of those that leave it no meaning."""
    definition = op.definition
    if definition is None:
        return
    for constraint in definition.constraints:
        if constraint.advisory and (constraint.meaningless or not meaningless):
            fault = constraint.fault(op)
            if fault is not None:
                yield Diagnostic(op.location, fault, op.name, constraint.label)
                return  # later ones may rely on this one
    if definition.rule_is_advisory:
        for label, fault in inference_faults(op, definition):
            yield Diagnostic(op.location, fault, op.name, label)


def _type_advice(op: Op) -> Iterator[Diagnostic]:
    """The first type of what `op` and its regions introduce that the specification's text forbids."""
    arguments = [argument.type for region in op.regions for block in region.blocks for argument in block.arguments]
    if isinstance(op, Function) and op.is_declaration:
        arguments += op.type.inputs
    for label, fault in filter(None, map(type_advice, (*op.result_types, *arguments))):
        yield Diagnostic(op.location, fault, op.name, label)
        return


#: What has been found sound: (declaration, operand types, result types, attributes).
_sound: set[tuple[Hashable, ...]] = set()


class _Verifier:
    def __init__(self) -> None:
        self.faults: list[Diagnostic] = []
        self.has_shardings = False
        self._symbols: list[dict[str, Op]] = []
        self._function: Function | None = None
        self._around: list[Op] = []
        #: Likenesses of ops that are sound. They name attributes by where they lie, so hold for this module alone.
        self._alike: set[tuple[Hashable, ...]] = set()

    def error(self, op: Op, message: str, label: str = "") -> None:
        """Notes what is wrong with `op`, at the nearest place known: an op that a short form implies has none."""
        places = [around.location for around in (*self._around, op)]
        location = next((place for place in reversed(places) if place is not UNKNOWN), UNKNOWN)
        self.faults.append(Diagnostic(location, message, op.name, label))

    # --- walking -----------------------------------------------------------------------------------------------------

    def check_region_op(self, op: Op) -> None:
        """An op with regions or symbols: its own checks, then what is inside it."""
        definition = op.definition
        symbols, function = self._symbols, self._function
        if isinstance(op, Module):
            self._function = None
            if len(op.regions) == 1 and len(op.regions[0].blocks) == 1:
                self._symbols = [*symbols, self._table(op)]
        if isinstance(op, Function):
            if function is not None:
                self.error(op, f"functions stand in a module, got one inside @{function.symbol}")
            self._function = op
        if definition is not None:
            self.check_op(op, definition)
        self._inside(op)
        self._symbols, self._function = symbols, function

    def _inside(self, op: Op) -> None:
        before = len(self.faults)
        self._around.append(op)
        for region in op.regions:
            for block in region.blocks:
                self._block(block)
        self._around.pop()
        if isinstance(op, Function) and len(self.faults) == before:
            self._endings(op)
            self._signature(op)

    def _endings(self, function: Function) -> None:
        """A function's blocks end with terminators; the last op of one that does not is told."""
        for block in function.regions[0].blocks:
            if block.ops and not is_terminator(block.ops[-1]):
                self.error(block.ops[-1], "the body ends with func.return, or another terminator")

    def _signature(self, function: Function) -> None:
        """Types of a function that nothing inside was found to break: where nothing uses a value, say."""
        declared = function.attributes.get("function_type")
        types = (*declared.inputs, *declared.results) if isinstance(declared, FunctionType) else ()
        fault = next(filter(None, map(value_fault, types)), None)
        if fault is not None:
            self.error(function, fault[1], fault[0])

    def _table(self, module: Module) -> dict[str, Op]:
        table: dict[str, Op] = {}
        for op in module.body.ops:
            name = op.attributes.get("sym_name")
            if name is None:
                continue
            if name in table:
                self.error(op, f"symbols of a module are unique, got @{name} twice")
            table.setdefault(name, op)
        return table

    def _block(self, block: Block) -> None:
        last = len(block.ops) - 1
        alike = self._alike
        for index, op in enumerate(block.ops):
            likeness = op.likeness
            if likeness in alike:
                continue
            definition = op.definition
            if definition is None:
                self._inside(op)
            elif definition.symbol_constraints or isinstance(op, (Function, Module)):
                self.check_region_op(op)
            else:
                key = _key(op, definition)
                if key is None or key not in _sound:
                    before = len(self.faults)
                    self.check_op(op, definition)
                    if key is not None and len(self.faults) == before:
                        _remember(key)
                if likeness is not None and key in _sound:
                    alike.add(likeness)
                if op.regions:
                    self._inside(op)
            if definition is not None and index != last and definition.is_terminator:
                self.error(op, "a terminator ends its block")
            if not self.has_shardings:
                self.has_shardings = _is_sharded(op)

    # --- one op ------------------------------------------------------------------------------------------------------

    def check_op(self, op: Op, definition: OpDef) -> None:
        """The first thing that is wrong with `op` itself."""
        fault = next(faults(op, definition), None)
        if fault is None and definition.symbol_constraints:
            fault = next(self._symbol_faults(op, definition), None)
        if fault is None and isinstance(op, Function):
            broken = function_fault(op)
            fault = None if broken is None else ("", broken)
        if fault is None and isinstance(op, Module) and len(op.regions[0].blocks) != 1:
            fault = "", f"a module has one block, got {len(op.regions[0].blocks)}"
        if fault is None and isinstance(op, Module):
            bare = [name for name in op.discardable if "." not in name]
            fault = ("", f"a module's attributes name their dialect, got {listed(bare)}") if bare else None
        if fault is None and op.name == "func.return":
            fault = self._return_fault(op)
        if fault is not None:
            self.error(op, fault[1], fault[0])

    def _symbol_faults(self, op: Op, definition: OpDef) -> Iterator[tuple[str, str]]:
        table = self._symbols[-1] if self._symbols else {}
        for constraint in definition.symbol_constraints:
            fault = constraint.check(op, table.get)
            if fault is not None:
                yield constraint.label, f"{constraint.text}, got {fault}"

    def _return_fault(self, op: Op) -> tuple[str, str] | None:
        if self._function is None:
            return "", "func.return stands in a function"
        declared = self._function.type.results
        returned = tuple(op.operand_types)
        if returned == declared:
            return None
        return "", f"a function returns what it declares, got ({listed(returned)}) and ({listed(declared)})"


def _is_sharded(op: Op) -> bool:
    """Whether the op itself says anything of shardings."""
    if op.definition is not None and op.definition.dialect == "sdy":
        return True
    dictionaries: list[Mapping[str, AttributeValue]] = [op.discardable]
    if isinstance(op, Function):
        for name in ("arg_attrs", "res_attrs"):
            dictionaries += (entry.entries for entry in op.attributes.get(name) or ())
    elif not op.discardable:
        return False
    return any(name.startswith("sdy.") for dictionary in dictionaries for name in dictionary)


def _key(op: Op, definition: OpDef) -> tuple[Hashable, ...] | None:
    """What decides whether an op by itself is sound; None when more does."""
    regions = op.regions
    if not definition.is_context_free or (regions and not _are_plain(regions)):
        return None
    key: tuple[Hashable, ...] = (
        definition,
        tuple([value.type for value in op.operands]),
        op.type if op.is_value else tuple(op.result_types),
    )
    for region in regions:  # constraints look at what a region takes and returns, not at what is between
        block = region.blocks[0]
        argument_types = tuple([argument.type for argument in block.arguments])
        key = (*key, argument_types, tuple([value.type for value in block.ops[-1].operands]), block.ops[-1].name)
    if not op.attributes:
        return key
    values: list[Hashable] = []
    for name, value in op.attributes.items():
        if isinstance(value, np.ndarray):
            value = (value.shape, value.tobytes())
        elif isinstance(value, DenseAttr):
            value = value.type
        values.append((name, value))
    key = (*key, tuple(values))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _are_plain(regions: Sequence[Region]) -> bool:
    return all(len(region.blocks) == 1 and region.blocks[0].ops for region in regions)


def _remember(key: tuple[Hashable, ...]) -> None:
    if len(_sound) >= _MOST_REMEMBERED:
        _sound.clear()
    _sound.add(key)
