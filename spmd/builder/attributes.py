"""Attributes of the language from their text."""

from __future__ import annotations

from spmd.errors import ParseError
from spmd.ir.attributes import Attribute
from spmd.syntax import parse

_NAME = "builder.given"


def parse_attribute(text: str) -> Attribute:
    """Return the attribute that `text` says; ValueError when it says none."""
    try:
        return parse(f"module attributes {{{_NAME} = {text}}} {{}}").discardable[_NAME]
    except ParseError as error:
        raise ValueError(f"{text!r} is no attribute: {error.diagnostics[0].message}") from None
