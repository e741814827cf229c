"""The verifier: checks a module against the declared constraints of its ops.

All faults are reported in one VerificationError, in source order. Source: StableHLO specification, the Constraints of
each op and type, "Functions", "Identifiers"; ops of undeclared dialects pass.

An op is judged by name, types, attributes and the signatures of its regions, so equal ops are checked once.
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
    """Check `module` and everything in it; raise VerificationError with all faults.

    `scoped`: values are known to be in scope at their uses, as after parsing.
    """
    if not isinstance(module, Op):
        check_module(module, "spmd.verify")
    verifier = _Verifier()
    if not scoped:
        for op, value in uses_out_of_scope(module):
            verifier.error(op, f"operand %{value.name_hint or '?'} must be defined before its use and be in scope")
    verifier.check_region_op(module)
    all_faults = verifier.faults
    if verifier.has_shardings and isinstance(module, Module) and not all_faults:
        all_faults.extend(verify_shardings(module))
    if all_faults:
        raise VerificationError(all_faults)


def warnings(module: Op) -> list[Diagnostic]:
    """Return where a module that verifies deviates from the specification's text; the reference implementation accepts
    it.
    """
    of_text = module.advice if isinstance(module, Module) else ()
    return [*of_text, *(warning for op in module.walk() for warning in (*_advice(op), *_type_advice(op)))]


def check_meaning(module: Op) -> None:
    """Raise CompileError if an op of a verified module has no defined meaning, or a result that no array can hold."""
    for op in module.walk():
        for diagnostic in _advice(op, meaningless=True):
            raise CompileError(diagnostic)
        if (fault := uncountable(op.result_types)) is not None:
            raise CompileError(Diagnostic(op.location, fault, op.name))


def _advice(op: Op, *, meaningless: bool = False) -> Iterator[Diagnostic]:
    """Yield the first advisory constraint that `op` violates; with `meaningless`, the first that leaves
    it undefined.
    """
    definition = op.definition
    if definition is None:
        return
    for constraint in definition.constraints:
        if constraint.advisory and (constraint.meaningless or not meaningless):
            fault = constraint.fault(op)
            if fault is not None:
                yield Diagnostic(op.location, fault, op.name, constraint.label)
                return  # later ones may depend on this one
    if definition.rule_is_advisory:
        for label, fault in inference_faults(op, definition):
            yield Diagnostic(op.location, fault, op.name, label)


def _type_advice(op: Op) -> Iterator[Diagnostic]:
    """Yield the first type that `op` or its regions introduce against the specification's text."""
    arguments = [argument.type for region in op.regions for block in region.blocks for argument in block.arguments]
    if isinstance(op, Function) and op.is_declaration:
        arguments += op.type.inputs
    for label, fault in filter(None, map(type_advice, (*op.result_types, *arguments))):
        yield Diagnostic(op.location, fault, op.name, label)
        return


#: Ops known to be valid: (declaration, operand types, result types, attributes).
_sound: set[tuple[Hashable, ...]] = set()


class _Verifier:
    def __init__(self) -> None:
        self.faults: list[Diagnostic] = []
        self.has_shardings = False
        self._symbols: list[dict[str, Op]] = []
        self._function: Function | None = None
        self._around: list[Op] = []
        #: Keys of valid ops by attribute identity, so for this module only.
        self._alike: set[tuple[Hashable, ...]] = set()

    def error(self, op: Op, message: str, label: str = "") -> None:
        """Record a fault of `op` at the nearest known location: an op implied by a short form has none."""
        places = [around.location for around in (*self._around, op)]
        location = next((place for place in reversed(places) if place is not UNKNOWN), UNKNOWN)
        self.faults.append(Diagnostic(location, message, op.name, label))

    # --- walking -----------------------------------------------------------------------------------------------------

    def check_region_op(self, op: Op) -> None:
        """Check an op with regions or symbols, then its contents."""
        definition = op.definition
        symbols, function = self._symbols, self._function
        if isinstance(op, Module):
            self._function = None
            if len(op.regions) == 1 and len(op.regions[0].blocks) == 1:
                self._symbols = [*symbols, self._table(op)]
        if isinstance(op, Function):
            if function is not None:
                self.error(op, f"a function must be in a module, got one inside @{function.symbol}")
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
        """Check that each block of a function ends with a terminator."""
        for block in function.regions[0].blocks:
            if block.ops and not is_terminator(block.ops[-1]):
                self.error(block.ops[-1], "the body must end with func.return, or another terminator")

    def _signature(self, function: Function) -> None:
        """Check the types in a function's signature, of which some may have no use inside."""
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
                self.error(op, f"symbols of a module must be unique, got @{name} twice")
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
                self.error(op, "a terminator must be the last op of its block")
            if not self.has_shardings:
                self.has_shardings = _is_sharded(op)

    # --- one op ------------------------------------------------------------------------------------------------------

    def check_op(self, op: Op, definition: OpDef) -> None:
        """Record the first fault of `op` itself."""
        fault = next(faults(op, definition), None)
        if fault is None and definition.symbol_constraints:
            fault = next(self._symbol_faults(op, definition), None)
        if fault is None and isinstance(op, Function):
            broken = function_fault(op)
            fault = None if broken is None else ("", broken)
        if fault is None and isinstance(op, Module) and len(op.regions[0].blocks) != 1:
            fault = "", f"a module must have one block, got {len(op.regions[0].blocks)}"
        if fault is None and isinstance(op, Module):
            bare = [name for name in op.discardable if "." not in name]
            fault = ("", f"attributes of a module must name their dialect, got {listed(bare)}") if bare else None
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
            return "", "func.return must be in a function"
        declared = self._function.type.results
        returned = tuple(op.operand_types)
        if returned == declared:
            return None
        return "", f"returned types must match the function's type, got ({listed(returned)}) and ({listed(declared)})"


def _is_sharded(op: Op) -> bool:
    """Return whether the op has shardings of its own."""
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
    """Return a key that decides the validity of an op by itself; None if it depends on context."""
    regions = op.regions
    if not definition.is_context_free or (regions and not _are_plain(regions)):
        return None
    key: tuple[Hashable, ...] = (
        definition,
        tuple([value.type for value in op.operands]),
        op.type if op.is_value else tuple(op.result_types),
    )
    for region in regions:  # constraints depend on a region's signature, not on its ops
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
