"""Different programs of a grid's processes as one program without collectives.

The processes of each program are stacked separately. Programs meet at collectives, whose operands are concatenated in
rank order and whose results are split again (spmd.compiler.stack.lockstep), or exchange values by transfers
(spmd.compiler.stack.mailboxes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spmd.analysis.process_groups import channel_id
from spmd.compiler.pipeline.options import Options
from spmd.compiler.pipeline.passes import expanded
from spmd.compiler.stack.core import StackedValue, Stacker, Tree, leaves, refuse
from spmd.compiler.stack.lockstep import Lockstep
from spmd.compiler.stack.mailboxes import Mailboxes
from spmd.compiler.stack.program import function_of, module_of
from spmd.compiler.stack.watched import mark_rows
from spmd.compiler.transforms.simplify import remove_dead
from spmd.dialects.make import make_op
from spmd.errors import CompileError, Diagnostic
from spmd.ir import Function, Module, Op, Value
from spmd.types import TensorType, TokenType


@dataclass(frozen=True)
class StackedPrograms:
    """The program of all processes. Its arguments and results are those of each program, concatenated.

    `ranks` are the processes of each program; stacked arguments or results have a row for each, in this order. All
    arguments are stacked; `results` says which results are, by program.
    """

    module: Module
    function: Function
    ranks: tuple[tuple[int, ...], ...]
    results: tuple[tuple[bool, ...], ...]
    serial: tuple[Op, ...]


def stack_several(
    programs: Sequence[tuple[Module, str]], program_of: Sequence[int], options: Options, prefix: str = "each."
) -> StackedPrograms:
    """Return the program of all processes from `programs`, (module, function name) pairs; `program_of` maps ranks to
    them.

    `prefix` is that of the names of added functions. CompileError for ops that cannot be stacked, CollectiveError for
    programs that do not meet.
    """
    whole = Stacker(programs[0][0], options)
    parts = [
        _Part(module, name, options, np.flatnonzero(np.array(program_of) == number).tolist(), f"{prefix}{number}.")
        for number, (module, name) in enumerate(programs)
    ]
    mailboxes = Mailboxes([part.flat for part in parts], [part.row_ranks for part in parts])
    types = [part.type_of(value.type) for part in parts for value in part.flat.arguments]
    with whole.block(types) as body:
        arguments = iter(body.arguments)
        for part in parts:
            part.begin(arguments)
        trees = Lockstep(whole, parts, mailboxes).run([part.flat.body for part in parts])
        results = [_leaves(part, column) for part, column in zip(parts, trees, strict=True)]
        flat = [leaf.value for column in results for leaf in column]
        body.ops.append(make_op("func.return", flat, location=whole.location))
    for send in mailboxes.waiting():
        text = f"no process receives from channel {channel_id(send.op)}"
        raise CompileError(Diagnostic(send.op.location, text, send.op.name))
    remove_dead(body)
    stacked_function = function_of(parts[0].flat, body)
    return StackedPrograms(
        module_of(programs[0][0], stacked_function, [function for part in parts for function in part.functions]),
        stacked_function,
        tuple([tuple(part.row_ranks) for part in parts]),
        tuple([tuple([leaf.stacked for leaf in column]) for column in results]),
        tuple([op for part in parts for op in part.serial]),
    )


class _Part(Stacker):
    """The processes `ranks` of the grid, which run one program."""

    def __init__(self, module: Module, name: str, options: Options, ranks: Sequence[int], prefix: str) -> None:
        super().__init__(module, options, prefix)
        self.after_op = mark_rows if options.watch is not None else None
        self.row_ranks = ranks
        self.flat = expanded(module, module.function(name), options)
        self.location, self.name = self.flat.location, self.flat.name

    def begin(self, arguments: Iterator[Value]) -> None:
        """Map the program's arguments to the next of `arguments`."""
        for argument in self.flat.arguments:
            if not isinstance(argument.type, TensorType | TokenType):
                raise refuse(self.flat, f"an argument of type {argument.type}")
            self.trees[argument] = StackedValue(next(arguments), isinstance(argument.type, TensorType))

    def position(self, dimension: int) -> StackedValue:
        ids = np.stack(np.divmod(self.row_ranks, self.grid.num_partitions))[dimension]
        return StackedValue(self.ranks(ids, np.uint32), True)


def _leaves(part: _Part, trees: Sequence[Tree]) -> list[StackedValue]:
    """Return the result leaves of a program."""
    for value, tree in zip(part.flat.body.terminator.operands, trees, strict=True):
        if not isinstance(tree, StackedValue) or not isinstance(value.type, TensorType | TokenType):
            raise refuse(part.flat, f"a result of type {value.type}")
    return [leaf for tree in trees for leaf in leaves(tree)]
