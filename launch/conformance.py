"""Conformance files: programs with their own checks, and programs that must be rejected at marked lines.

A file holds modules split at lines `// -----`. Each parses, verifies, and prints to a text that is the same program;
a module with lines `// expected-error@+N {{...}}` must be rejected with an error at each of those lines; and a
function without arguments (`main`, or the only one) is run, where its check ops must hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spmd.syntax import split_file

_MARK = re.compile(r"//[^\n]*?\bexpected-error(?:-re)?[ \t]*(@[ \t]*(?:[+-]?\d+|above|below))?[ \t]*(?:\d+[ \t]*)?\{\{")
_COMMENT = re.compile(r"//[^\n]*")


@dataclass(frozen=True)
class Case:
    """One module of a file: its text keeps the line numbers of the file."""

    path: Path
    index: int
    text: str

    @property
    def line(self) -> int:
        """The line of the first thing that is neither blank nor a comment."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("//"):
                return number
        return 1

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}"

    def expected_lines(self) -> list[int]:
        """The lines at which the module must be rejected."""
        found = set()
        for number, line in enumerate(self.text.splitlines(), 1):
            for match in _MARK.finditer(line):
                found.add(_marked_line(number, (match[1] or "").lstrip("@ \t")))
        return sorted(found)


def _marked_line(number: int, place: str) -> int:
    if place == "below":
        return number + 1
    if place == "above":
        return number - 1
    if place[:1] in ("+", "-"):
        return number + int(place)
    return int(place) if place else number


def read_cases(paths: Iterable[str | Path]) -> list[Case]:
    """The modules of all files named, and of all `.mlir` files below the folders named, in order."""
    found = []
    for path in map(Path, paths):
        files = sorted(path.rglob("*.mlir")) if path.is_dir() else [path]
        for file in files:
            parts = split_file(file.read_text(encoding="utf-8", errors="surrogateescape"))
            found += [Case(file, index, part) for index, part in enumerate(parts) if _COMMENT.sub("", part).strip()]
    return found


def check_case(case: Case, *, execute: bool = True) -> str | None:
    """None when the module does what it must, else what went wrong."""
    import spmd

    expected = case.expected_lines()
    try:
        module = spmd.parse(case.text, name=str(case.path))
    except spmd.SpmdError as error:
        return _judge_rejection(error, expected) if expected else f"rejected: {error}"
    if expected:
        return f"accepted, but an error is expected at line {', '.join(map(str, expected))}"
    try:
        return _check_printing(module) or (_run(module) if execute else None)
    except spmd.SpmdError as error:
        return str(error)


def _judge_rejection(error: Exception, expected: list[int]) -> str | None:
    lines = {diagnostic.location.line for diagnostic in getattr(error, "diagnostics", ())}
    missed = [line for line in expected if line not in lines]
    if not missed:
        return None
    return f"no error at line {', '.join(map(str, missed))}, where one is expected, but: {error}"


def _check_printing(module: object) -> str | None:
    from spmd.ir import Module
    from spmd.syntax import difference, parse, print_op

    assert isinstance(module, Module)
    for form, generic in (("pretty", False), ("generic", True)):
        text = print_op(module, generic=generic)
        again = parse(text, f"<{form} form>")
        found = difference(module, again)
        if found is not None:
            return f"its {form} form is another program: {found}"
        if print_op(again, generic=generic) != text:
            return f"its {form} form prints differently once read"
    return None


def _run(module: object) -> str | None:
    import spmd
    from collectives.threads import solitary
    from spmd.ir import Module
    from spmd.runtime.process import Process

    assert isinstance(module, Module)
    name = entry_point(module)
    if name is not None:
        executable = spmd.compile(module, function=name)
        if executable.grid.size == 1:
            # A process of its own on every rank: `interpreter.run_parallel` is what takes the ranks together.
            executable.run(Process(executable.grid, solitary()), ())
        else:
            executable()
    return None


def entry_point(module: object) -> str | None:
    """The function to run: `main` without arguments, or else the only function without arguments."""
    from spmd.ir import Module

    assert isinstance(module, Module)
    ready = [f.symbol for f in module.functions if not f.is_declaration and not f.type.inputs]
    if "main" in ready:
        return "main"
    return ready[0] if len(ready) == 1 else None
