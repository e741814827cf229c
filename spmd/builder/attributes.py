"""Parses attributes from text."""

from __future__ import annotations

from spmd.errors import ParseError
from spmd.ir.attributes import Attribute
from spmd.syntax import parse

_NAME = "builder.given"


def parse_attribute(text: str) -> Attribute:
    """Return the attribute that `text` spells; raise ValueError if it spells none."""
    try:
        return parse(f"module attributes {{{_NAME} = {text}}} {{}}").discardable[_NAME]
    except ParseError as error:
        raise ValueError(f"{text!r} is no attribute: {error.diagnostics[0].message}") from None
