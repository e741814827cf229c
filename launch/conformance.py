"""Conformance files: programs with their own checks, and programs that must be rejected at marked lines.

A file contains modules separated by lines `// -----`. Each must parse, verify, and survive printing and parsing; a
module with lines `// expected-error@+N {{...}}` must be rejected with an error at each of those lines; and a function
without arguments (`main`, or the only one) is run, and its check ops must hold. A module with check ops in no such
function fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from collectives.exploration import exploring
from launch.expectations import Expectation, expectations, unmet_places, unmet_words
from spmd.errors import SpmdError
from spmd.ir import Module, Op
from spmd.syntax import split_file

_COMMENT = re.compile(r"//[^\n]*")


@dataclass(frozen=True)
class Case:
    """One module of a file; the text keeps the file's line numbers."""

    path: Path
    index: int
    text: str

    @property
    def line(self) -> int:
        """The number of the first line that is neither blank nor a comment."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("//"):
                return number
        return 1

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}"

    def expected(self) -> list[Expectation]:
        """Return the errors with which the module must be rejected; none for a valid module."""
        return expectations(self.text)


@dataclass(frozen=True)
class Verdict:
    """The outcome of a module: `problem` (None if it passes), and the limits of the check.

    `by_line` counts expected errors that were compared by line only; `only_verified` is set if no function was run.
    """

    problem: str | None
    by_line: int = 0
    only_verified: bool = False


def read_cases(paths: Iterable[str | Path]) -> list[Case]:
    """Return the modules of all files named, and of all `.mlir` files below the folders named, in order."""
    cases = []
    for path in map(Path, paths):
        files = sorted(path.rglob("*.mlir")) if path.is_dir() else [path]
        for file in files:
            parts = split_file(file.read_text(encoding="utf-8", errors="surrogateescape"))
            cases += [Case(file, index, part) for index, part in enumerate(parts) if _COMMENT.sub("", part).strip()]
    return cases


def judge(
    case: Case, *, execute: bool = True, diagnostics: bool = False, mode: str = "threads", explore: int = 0
) -> Verdict:
    """Return the verdict on a module. With `diagnostics` expected errors are compared by text as well.

    `mode` is how grids that the module starts are run: "threads", "stacked", or "auto" (stacked where possible). With
    `explore` the module is run in that many random orders of its processes' communication, of seeds 0, 1, ...
    """
    import spmd

    expected = case.expected()
    try:
        module = spmd.parse(case.text, name=str(case.path))
    except spmd.SpmdError as error:
        return _judge_rejection(error, expected, diagnostics)
    if expected:
        return Verdict(f"accepted, but an error is expected {', '.join(entry.place for entry in expected)}")
    try:
        problem = _check_printing(module)
        if problem is not None:
            return Verdict(problem)
        name = entry_point(module) if execute else None
        if execute and name is None and (check := next(filter(_is_check, module.walk()), None)) is not None:
            why = "there is no main, or only function, without arguments"
            return Verdict(f"{check.location}: {check.name} never runs: {why}")
        if name is not None:
            for seed in range(explore) or (None,):
                with nullcontext() if seed is None else exploring(seed):
                    problem = _outcome(module, name, mode)
                if problem is not None:
                    return Verdict(problem if seed is None else f"in the order of seed {seed}: {problem}")
        return Verdict(None, only_verified=name is None)
    except spmd.SpmdError as error:
        return Verdict(str(error))


def _is_check(op: Op) -> bool:
    return op.definition is not None and op.definition.dialect == "check"


def _judge_rejection(error: SpmdError, expected: list[Expectation], diagnostics: bool) -> Verdict:
    if not expected:
        return Verdict(f"rejected: {error}")
    compare = unmet_words if diagnostics else unmet_places
    unmet = compare(expected, error.diagnostics)
    if unmet is not None:
        return Verdict(f"{unmet}, but: {error}")
    return Verdict(None, by_line=0 if diagnostics else len(expected))


def _check_printing(module: Module) -> str | None:
    from spmd.syntax import difference, parse, print_op

    for form, generic in (("pretty", False), ("generic", True)):
        text = print_op(module, generic=generic)
        again = parse(text, f"<{form} form>")
        change = difference(module, again)
        if change is not None:
            return f"its {form} form is another program: {change}"
        if print_op(again, generic=generic) != text:
            return f"its {form} form prints differently once read"
    return None


def _run(module: Module, name: str, mode: str) -> None:
    import spmd
    from collectives.threads import single_process
    from spmd.runtime.process import Process

    if mode != "threads":
        module = _stacked(module, name, mode)
    # The expectations in files were recorded with loops that round after each op.
    executable = spmd.compile(module, function=name, excess_precision=False)
    if executable.grid.size == 1:
        # One process per rank: `interpreter.run_parallel` combines the ranks.
        executable.run(Process(executable.grid, single_process()), ())
    else:
        executable()


def _outcome(module: Module, name: str, mode: str) -> str | None:
    """Return what is wrong when `module` runs; None if nothing is."""
    try:
        _run(module, name, mode)
    except SpmdError as error:
        return str(error)
    return None


def _stacked(module: Module, name: str, mode: str) -> Module:
    """Return `module` with the grids that `name` starts stacked.

    Raises the error of one that cannot be stacked if `mode` requires it.
    """
    from partitioner import starts_processes, with_parts
    from spmd.compiler.pipeline.options import Options
    from spmd.compiler.stack.runs import stack_runs

    parts = with_parts(module, name) if starts_processes(module, name) else module
    stacked, refused = stack_runs(parts, Options())
    if refused and mode == "stacked":
        raise refused[0]
    return stacked


def entry_point(module: Module) -> str | None:
    """Return the function to run: `main` without arguments, otherwise the only function without arguments."""
    ready = [f.symbol for f in module.functions if not f.is_declaration and not f.type.inputs]
    if "main" in ready:
        return "main"
    return ready[0] if len(ready) == 1 else None
