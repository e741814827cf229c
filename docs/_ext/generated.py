"""Directives whose content is generated from the code: commands and their options, ops, and public names.

    ```{commands}
    ```
    ```{ops} elementwise
    ```

Each makes Markdown, which is parsed as the rest of the page is.
"""

from __future__ import annotations

import argparse
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

import spmd.dialects  # noqa: F401  declares all ops
from launch import cli
from spmd.analysis.index_maps import INDEX_MAPS
from spmd.analysis.scalar.rules import RULES
from spmd.backends.kernels import KERNELS, load_kernels
from spmd.dialects.core import OPS, OpDef, Trait


class Generated(Directive):
    """A directive that is replaced by the Markdown that `markdown` returns."""

    optional_arguments = 1
    final_argument_whitespace = True

    def markdown(self) -> str:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        parent = nodes.Element()
        parent.document = self.state.document
        lines = StringList(self.markdown().splitlines(), source=f"<{self.name}>")
        self.state.nested_parse(lines, self.content_offset, parent, match_titles=True)
        return list(parent.children)


class Commands(Generated):
    """Return every command with its usage and options, as `--help` prints them."""

    def markdown(self) -> str:
        return "\n\n".join(_command(name) for name in cli.command_names())


def _command(name: str) -> str:
    command = cli.load_command(name)
    parser = argparse.ArgumentParser(prog=f"spmd {name}", description=command.HELP, formatter_class=_width(96))
    command.add_arguments(parser)
    return f"## spmd {name}\n\n```text\n{parser.format_help().rstrip()}\n```"


def _width(columns: int) -> Any:
    return lambda prog: argparse.HelpFormatter(prog, width=columns, max_help_position=28)


class Ops(Generated):
    """Return a table of a dialect's ops: operands, attributes, checked constraints, and how each is implemented."""

    def markdown(self) -> str:
        ops = sorted((op for op in OPS.values() if op.dialect == self.arguments[0]), key=lambda op: op.name)
        rows = [
            [f"`{op.name.partition('.')[2]}`", _names(op.operands), _names(op.attributes), _labels(op), _served(op)]
            for op in ops
        ]
        head = "| op | operands | attributes | constraints | what serves it |\n| --- | --- | --- | --- | --- |"
        return "\n".join([head, *("| " + " | ".join(row) + " |" for row in rows)])


def _names(declared: Any) -> str:
    return ", ".join(f"`{each.name}`" for each in declared) or "none"


def _labels(op: OpDef) -> str:
    return ", ".join(sorted(set(filter(None, op.labels)), key=lambda label: (label[0], len(label), label))) or "none"


def _served(op: OpDef) -> str:
    served = [
        "fused into loops" if op.name in RULES else "",
        "moved by an index map" if op.name in INDEX_MAPS else "",
        "NumPy kernel" if op.name in KERNELS else "",
        "collective" if Trait.COLLECTIVE in op.traits else "",
        "terminator" if Trait.TERMINATOR in op.traits else "",
    ]
    return ", ".join(filter(None, served)) or "rewritten when compiled"


def _code_blocks(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Format the indented paragraphs of a docstring as code."""
    result: list[str] = []
    inside = False
    for line in lines:
        indented = line.startswith("    ")
        follows_paragraph = len(result) > 1 and not result[-1] and not result[-2].lstrip().startswith(":")
        if indented and not inside and follows_paragraph:
            result += ["::", ""]
            inside = True
        elif line and not indented:
            inside = False
        result.append(line)
    lines[:] = result


def setup(app: Sphinx) -> dict[str, Any]:
    load_kernels()
    app.add_directive("commands", Commands)
    app.add_directive("ops", Ops)
    app.connect("autodoc-process-docstring", _code_blocks)
    return {"parallel_read_safe": True, "version": "1"}
