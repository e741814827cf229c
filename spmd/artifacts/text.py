"""Attributes and types that a file holds as text: those of dialects without an encoding of their own."""

from __future__ import annotations

import sys

from spmd.attributes import Attribute
from spmd.errors import Source, SpmdError
from spmd.syntax.cursor import Names
from spmd.syntax.op_cursor import OpCursor
from spmd.types import Type


def parse_attribute(text: str) -> Attribute:
    """The attribute that all of `text` is; ValueError says what is wrong with it."""
    cursor = _cursor(text)
    try:
        made = cursor.attribute()
        _expect_end(cursor)
    except SpmdError as error:
        raise ValueError(error.diagnostics[0].message) from None
    return made


def parse_type(text: str) -> Type:
    """The type that all of `text` is; ValueError says what is wrong with it."""
    cursor = _cursor(text)
    try:
        made = cursor.type()
        _expect_end(cursor)
    except SpmdError as error:
        raise ValueError(error.diagnostics[0].message) from None
    return made


def _cursor(text: str) -> OpCursor:
    cursor = OpCursor(Source("<text>", text), sys.maxsize, Names())
    cursor.ready()
    return cursor


def _expect_end(cursor: OpCursor) -> None:
    if cursor.tokens[cursor.position]:
        cursor.expected("the end of the text")
