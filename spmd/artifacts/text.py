"""Attributes and types that a file holds as text: those of dialects without an encoding of their own."""

from __future__ import annotations

import sys

from spmd.attributes import Attribute
from spmd.errors import Source, SpmdError
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.token_parser import TextNames
from spmd.types import Type


def parse_attribute(text: str) -> Attribute:
    """The attribute that all of `text` is; ValueError says what is wrong with it."""
    parser = _parser(text)
    try:
        attribute = parser.parse_attribute()
        _expect_end(parser)
    except SpmdError as error:
        raise ValueError(error.diagnostics[0].message) from None
    return attribute


def parse_type(text: str) -> Type:
    """The type that all of `text` is; ValueError says what is wrong with it."""
    parser = _parser(text)
    try:
        type = parser.parse_type()
        _expect_end(parser)
    except SpmdError as error:
        raise ValueError(error.diagnostics[0].message) from None
    return type


def _parser(text: str) -> OperationParser:
    parser = OperationParser(Source("<text>", text), sys.maxsize, TextNames())
    parser.ready()
    return parser


def _expect_end(parser: OperationParser) -> None:
    if parser.tokens[parser.position]:
        parser.expected("the end of the text")
