"""Parser of the textual form of a schedule (text.py): units, native regions, and ops that Python runs.

The rest is planned from the units and compared with the text: the first line that differs is an error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spmd.compiler.schedule.fusion import Unit
from spmd.compiler.schedule.schedule import NativeRegion, Schedule, plan_region
from spmd.compiler.schedule.steps import KernelCall
from spmd.compiler.schedule.target import Target
from spmd.compiler.schedule.text import numbered, op_text, schedule_text
from spmd.errors import UsageError
from spmd.ir import Block, Op, Value, captured_values

_REGION = re.compile(r"region \((.*?)\) -> \((.*?)\), threads \d+, arena \d+((?:, %\d+ over %\d+)*)")
_UNIT = re.compile(r"unit \w+ over (\(\)|[\dx]+)(?: fold \[(.*?)\])? of \((.*?)\) -> \((.*?)\) : ")


def parse_schedule(text: str, block: Block, target: Target) -> Mapping[Block, Schedule]:
    """Return the schedules of `block` and of the nested blocks that Python runs, as `text` describes them.

    `target` is that of the printed schedule. UsageError, which names the line, if the text does not belong to this
    block or differs from what is planned for its units.
    """
    reader = _Reader(block, target)
    reader.schedules[block] = Schedule(block, list(reader.entries(_tree(text))))
    printed = schedule_text(reader.schedules[block], reader.schedules.__getitem__)
    for number, (said, planned) in enumerate(zip(_lines(text), [*_lines(printed), ""], strict=False), 1):
        if said != planned:
            raise _wrong(number, said, f"expected {planned.strip()!r}")
    if len(_lines(text)) < len(_lines(printed)):
        raise _wrong(len(_lines(text)), _lines(text)[-1], "unexpected end of text")
    return reader.schedules


@dataclass
class _Line:
    """A line, and the lines nested below it."""

    number: int
    text: str
    inner: list[_Line] = field(default_factory=list)

    def blocks(self) -> list[_Line]:
        return [line for line in self.inner if line.text.startswith("block ")]


class _Reader:
    def __init__(self, block: Block, target: Target) -> None:
        self.target = target
        self.schedules: dict[Block, Schedule] = {}
        names = numbered(block)
        self._values = {name: value for value, name in names.items()}
        #: By printed text: the ops that are units of their own, in program order.
        self._ops: dict[str, list[Op]] = defaultdict(list)
        for op in block.walk():
            self._ops[op_text(op, names)].append(op)

    def entries(self, lines: Sequence[_Line]) -> Iterator[NativeRegion | KernelCall]:
        for line in lines:
            if line.text.startswith("region "):
                yield self._region(line)
                continue
            call = KernelCall(self._units(line))
            for inner, region in zip(line.blocks(), call.op.regions, strict=False):
                self.schedules[region.block] = Schedule(region.block, list(self.entries(inner.inner)))
            yield call

    def _region(self, line: _Line) -> NativeRegion:
        said = _REGION.fullmatch(line.text)
        if said is None:
            raise _wrong(line.number, line.text, "malformed region")
        inside: dict[Block, list[Unit]] = {}
        units = _linked([unit for step in line.inner for unit in self._units(step, inside)])
        inputs, outputs = (self._named(line, names) for names in said.group(1, 2))
        donated = self._named(line, ", ".join(re.findall(r"over (%\d+)", said[3])))
        return plan_region(units, inputs, outputs, self.target, donated, check_memory=False, units_of=inside)

    def _units(self, step: _Line, inside: dict[Block, list[Unit]] | None = None) -> list[Unit]:
        """Return the units of a step; those of the blocks that it runs are added to `inside`."""
        units = [self._unit(line) for line in step.inner if line.text.startswith(("unit ", "op "))]
        if not units:
            raise _wrong(step.number, step.text, "the step has no unit")
        for line, region in zip(step.blocks(), units[-1].outputs[0].regions, strict=False):
            if inside is not None:
                steps = [each for each in line.inner if each.text.startswith("step ")]
                inside[region.block] = _linked([unit for each in steps for unit in self._units(each, inside)])
        return units

    def _unit(self, line: _Line) -> Unit:
        if line.text.startswith("op "):
            ops = self._ops[line.text]
            if not ops:
                raise _wrong(line.number, line.text, "the program has no such op")
            return Unit(False, line.number, outputs=[ops.pop(0)])
        said = _UNIT.match(line.text)
        if said is None:
            raise _wrong(line.number, line.text, "malformed unit")
        shape = () if said[1] == "()" else tuple(map(int, said[1].split("x")))
        reduced = tuple(map(int, said[2].split(", "))) if said[2] else ()
        inlined, outputs = (self._makers(line, names) for names in said.group(3, 4))
        return Unit(True, line.number, shape, reduced, list(outputs), inlined)

    def _makers(self, line: _Line, names: str) -> dict[Op, None]:
        """Return the distinct producers of the named values."""
        ops = [value.defining_op for value in self._named(line, names)]
        if None in ops:
            raise _wrong(line.number, line.text, "an argument of the block where a result of an op is needed")
        return dict.fromkeys(op for op in ops if op is not None)

    def _named(self, line: _Line, names: str) -> list[Value]:
        try:
            return [self._values[name] for name in names.split(", ") if name]
        except KeyError as error:
            raise _wrong(line.number, line.text, f"the program has no value {error.args[0]}") from None


def _linked(units: list[Unit]) -> list[Unit]:
    """Return `units` with their users filled in."""
    maker = {value: unit for unit in units for op in unit.outputs for value in op.results}
    for unit in units:
        for op in unit.ops:
            for value in (*op.operands, *(captured_values(op) if op.regions else ())):
                if value in maker and maker[value] is not unit:
                    maker[value].users.add(unit)
    return units


def _tree(text: str) -> list[_Line]:
    """Return the top-level lines of `text`, each with those nested below it."""
    top: list[_Line] = []
    above: list[tuple[int, list[_Line]]] = [(-1, top)]
    for number, line in enumerate(_lines(text), 1):
        depth = len(line) - len(line.lstrip())
        while above[-1][0] >= depth:
            above.pop()
        each = _Line(number, line.strip())
        above[-1][1].append(each)
        above.append((depth, each.inner))
    return top


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _wrong(number: int, line: str, why: str) -> UsageError:
    return UsageError(f"line {number} of the schedule, {line.strip()!r}: {why}")
