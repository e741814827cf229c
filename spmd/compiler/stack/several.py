"""Different programs of a grid's processes as one program without collectives.

The processes of each program are stacked by themselves; where they communicate, all programs come to the same
collective, whose operands are put together in rank order, and whose results each program's processes take theirs of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from collectives.operations import describe
from spmd.analysis.collectives import COMMUNICATING, DESCRIPTIONS
from spmd.compiler.inline import inline
from spmd.compiler.options import Options
from spmd.compiler.ragged_all_to_all_expansion import expand_ragged_all_to_all
from spmd.compiler.simplify import remove_dead
from spmd.compiler.stack.collective import StackSettings
from spmd.compiler.stack.core import StackedValue, Stacker, leaves, rebuilt, refuse
from spmd.compiler.stack.placing import inverse, take_rows
from spmd.compiler.stack.program import function_of, module_of
from spmd.compiler.stack.watched import tell_rows
from spmd.dialects.make import make_op
from spmd.errors import CollectiveError, Diagnostic
from spmd.ir import Block, Function, Module, Op, Value
from spmd.types import FutureType, TensorType


@dataclass(frozen=True)
class StackedPrograms:
    """The program of all processes. Its arguments and results are those of each program, one program after another.

    `ranks` are the processes of each program; a stacked argument or result has a row for each of them, in this order.
    `arguments` and `results` tell, program by program, which are stacked: all arguments are.
    """

    module: Module
    function: Function
    ranks: tuple[tuple[int, ...], ...]
    results: tuple[tuple[bool, ...], ...]
    serial: tuple[Op, ...]


def stack_several(
    programs: Sequence[tuple[Module, str]], program_of: Sequence[int], options: Options
) -> StackedPrograms:
    """`programs` are modules and the names of their functions; `program_of` tells which one each process runs.

    Raises CompileError for what cannot be stacked, CollectiveError for programs that do not meet.
    """
    whole = Stacker(programs[0][0], options)
    parts = [
        _Part(module, name, options, np.flatnonzero(np.array(program_of) == number), f"each.{number}.")
        for number, (module, name) in enumerate(programs)
    ]
    types = [part.type_of(value.type) for part in parts for value in part.flat.arguments]
    with whole.block(types) as body:
        arguments = iter(body.arguments)
        for part in parts:
            part.begin(body, arguments)
        while sum(part.go_on() for part in parts):
            _meet(whole, parts)
        results = [part.results() for part in parts]
        flat = [leaf.value for column in results for leaf in column]
        body.ops.append(make_op("func.return", flat, location=whole.location))
    remove_dead(body)
    stacked_function = function_of(parts[0].flat, body)
    return StackedPrograms(
        module_of(programs[0][0], stacked_function, [function for part in parts for function in part.functions]),
        stacked_function,
        tuple([tuple(part.processes.tolist()) for part in parts]),
        tuple([tuple([leaf.stacked for leaf in column]) for column in results]),
        tuple([op for part in parts for op in part.serial]),
    )


class _Part(Stacker):
    """The processes `ranks` of the grid, which run one program."""

    def __init__(self, module: Module, name: str, options: Options, ranks: np.ndarray, prefix: str) -> None:
        super().__init__(module, options, prefix)
        self.after_op = tell_rows if options.watch is not None else None
        self.processes = ranks
        self.size = len(ranks)
        self.flat = inline(module, module.function(name), whole=True)
        expand_ragged_all_to_all(self.flat.body, options.grid)
        self._pending: Iterator[Op] = iter(self.flat.body.ops[:-1])
        #: The collective that the program has come to.
        self.at: Op | None = None

    @property
    def everyone(self) -> Sequence[int]:
        return self.processes.tolist()  # type: ignore[no-any-return]

    def begin(self, body: Block, arguments: Iterator[Value]) -> None:
        """Takes the program's arguments, and writes into `body` from now on."""
        self.ops, self.location = body.ops, self.flat.location
        for argument in self.flat.arguments:
            if not isinstance(argument.type, TensorType):
                raise refuse(self.flat, f"an argument of type {argument.type}")
            self.trees[argument] = StackedValue(next(arguments), True)

    def position(self, dimension: int) -> StackedValue:
        ids = np.stack(np.divmod(self.processes, self.grid.num_partitions))[dimension]
        return StackedValue(self.ranks(ids, np.uint32), True)

    def go_on(self) -> bool:
        """Writes what the program computes up to its next collective; whether there is one."""
        self.at = None
        for op in self._pending:
            if op.name in DESCRIPTIONS or op.name == "stablehlo.async_start":
                self.at = op
                return True
            inside = [inner for inner in op.walk() if inner is not op and inner.name in COMMUNICATING]
            if op.name in COMMUNICATING or inside:
                raise refuse(op, "different programs meet outside of control flow and channels alone")
            self.apply(op)
        return False

    def results(self) -> list[StackedValue]:
        trees = [self.trees[value] for value in self.flat.body.terminator.operands]
        for value, tree in zip(self.flat.body.terminator.operands, trees, strict=True):
            if not isinstance(tree, StackedValue) or not isinstance(value.type, TensorType):
                raise refuse(self.flat, f"a result of type {value.type}")
        return [leaf for tree in trees for leaf in leaves(tree)]


def _meet(whole: Stacker, parts: Sequence[_Part]) -> None:
    """Carries out the collective that all parts have come to."""
    first = _same_collective(parts)
    whole.ops, whole.location = parts[0].ops, first.location
    order = np.concatenate([part.processes for part in parts])
    places = inverse(order, whole.size)
    for index, operand in enumerate(first.operands):
        columns = [leaves(part.trees[_at(part).operands[index]]) for part in parts]
        joined = [_joined(whole, parts, places, column) for column in zip(*columns, strict=True)]
        whole.trees[operand] = rebuilt(parts[0].trees[operand], iter(joined))
    whole.apply(first)
    for part in parts:
        for mine, result in zip(_at(part).results, first.results, strict=True):
            tree = whole.trees[result]
            part.trees[mine] = rebuilt(tree, iter([_own(part, leaf) for leaf in leaves(tree)]))


def _at(part: _Part) -> Op:
    assert part.at is not None
    return part.at


def _joined(whole: Stacker, parts: Sequence[_Part], places: np.ndarray, column: Sequence[StackedValue]) -> StackedValue:
    """What each part has, in rank order."""
    rows = [part.stack(leaf) for part, leaf in zip(parts, column, strict=True)]
    return StackedValue(take_rows(whole, whole.concatenate(rows, 0), places), True)


def _own(part: _Part, leaf: StackedValue) -> StackedValue:
    return StackedValue(take_rows(part, leaf.value, part.processes), True) if leaf.stacked else leaf


def _same_collective(parts: Sequence[_Part]) -> Op:
    """The first part's collective; CollectiveError where another part is elsewhere, or at another one."""
    first = parts[0]
    for part in parts[1:]:
        if first.at is None or part.at is None:
            here, there = (first, part) if part.at is None else (part, first)
            op = _at(here)
            text = f"process {here.processes[0]} waits here for process {there.processes[0]}, whose program has ended"
            raise CollectiveError(Diagnostic(op.location, text, op.name))
        told, other = _described(first), _described(part)
        if told != other:
            theirs = f"process {part.processes[0]} at {part.at.location} {other[0]}"
            text = f"process {first.processes[0]} does {told[0]}, {theirs}"
            raise CollectiveError(Diagnostic(first.at.location, text, first.at.name))
    return _at(first)


def _described(part: _Part) -> tuple[object, ...]:
    """All that must be equal for processes to meet."""
    op = _at(part)
    inner = op.regions[0].block.ops[0] if op.name == "stablehlo.async_start" else op
    if inner.name not in DESCRIPTIONS or any(isinstance(type, FutureType) for type in op.operand_types):
        raise refuse(op, "what it starts is no collective")
    collective = DESCRIPTIONS[inner.name](inner, StackSettings(part))
    groups = None if collective.groups is None else tuple(collective.groups)
    return ", ".join(map(describe, collective.operations)), op.name, collective.operations, groups
