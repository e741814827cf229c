"""A schedule as text: its units in order, what each computes, reads and writes, and where in the source it is from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spmd.compiler.schedule.costs import cost_of_unit
from spmd.compiler.schedule.fusion import Unit, fuse
from spmd.compiler.schedule.rows import row_groups
from spmd.dialects.core import Trait, has_trait
from spmd.ir import Block, Op
from spmd.support.amounts import amount

_START = "stablehlo.async_start"


def show_schedule(block: Block, is_native: Callable[[Unit], bool], indent: str = "") -> Iterator[str]:
    """The lines that tell the units of `block`; `is_native` says which become native code."""
    number = 0
    groups = row_groups(fuse(block, block.terminator.operands))
    ends = _ends([unit for group in groups for unit in group])
    for group in groups:
        if len(group) > 1:
            yield f"{indent}row by row:"
        inner = indent + "  " * (len(group) > 1)
        for unit in group:
            number += 1
            until = f" until {ends[unit]}" if unit in ends else ""
            yield f"{inner}{number}. {title(unit)}{until}{'' if is_native(unit) else ' [numpy]'}: {_price(unit)}"
            yield f"{inner}   {sources(unit.ops)}"
            for op in () if unit.fused else unit.outputs:
                for place, region in enumerate(op.regions):
                    if _is_program(op):
                        yield f"{inner}   {_region_name(op, place)}:"
                        yield from show_schedule(region.block, is_native, inner + "     ")


def _ends(units: Sequence[Unit]) -> dict[Unit, int]:
    """The numbers of the units that wait for what others start."""
    starts = {unit.outputs[0].results[0]: unit for unit in units if unit.outputs[0].name == _START}
    waits = [(unit.outputs[0].operands, number) for number, unit in enumerate(units, 1) if not unit.fused]
    return {starts[operands[0]]: number for operands, number in waits if operands and operands[0] in starts}


def title(unit: Unit) -> str:
    """What a unit is, and what it gives."""
    results = ", ".join(str(value.type) for op in unit.outputs for value in op.results)
    if unit.outputs[0].name == _START:
        inner = unit.outputs[0].regions[0].block.ops[0]
        return f"{inner.name} started -> {', '.join(map(str, inner.result_types))}"
    if not unit.fused:
        return f"{unit.outputs[0].name} -> {results}"
    kind = "update" if unit.is_update else "reduction" if unit.is_reduction else "loop nest"
    points = "x".join(map(str, unit.shape)) or "1"
    folded = f", dimensions {', '.join(map(str, unit.reduced))} folded" if unit.reduced else ""
    return f"{kind} over {points}{folded} -> {results}"


def _price(unit: Unit) -> str:
    cost = cost_of_unit(unit)
    return f"{amount(cost.operations, '').strip()} operations, {amount(cost.read)} read, {amount(cost.written)} written"


def sources(ops: Sequence[Op]) -> str:
    """The ops by number, and the lines that they stand on."""
    return f"{names_of(ops)}  ({lines_of(ops)})"


def names_of(ops: Sequence[Op]) -> str:
    """The ops by number: `add x2, exponential`."""
    names: dict[str, int] = {}
    for op in sorted(ops, key=lambda op: op.location.line):
        name = op.name.removeprefix("stablehlo.")
        names[name] = names.get(name, 0) + 1
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in names.items())


def lines_of(ops: Sequence[Op]) -> str:
    """Where the ops stand in the source: `file:3,4,7`."""
    lines = sorted({op.location.line for op in ops})
    return f"{max(ops, key=lambda op: op.location.line).location.file}:{','.join(map(str, lines))}"


def _is_program(op: Op) -> bool:
    return has_trait(op, Trait.RUNS_REGIONS)


def _region_name(op: Op, place: int) -> str:
    return op.definition.regions[min(place, len(op.definition.regions) - 1)].name if op.definition else str(place)
