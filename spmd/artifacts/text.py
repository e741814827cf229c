"""Attributes and types that a file stores as text, since their dialect has no encodings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from spmd.errors import Source, SpmdError
from spmd.ir.attributes import Attribute
from spmd.syntax.op_parser import OperationParser
from spmd.syntax.token_parser import TextNames
from spmd.types import Type

T = TypeVar("T")


def parse_attribute(text: str) -> Attribute:
    """Return the attribute that `text` is; raises ValueError if it cannot be parsed."""
    return _whole(text, OperationParser.parse_attribute)


def parse_type(text: str) -> Type:
    """Return the type that `text` is; raises ValueError if it cannot be parsed."""
    return _whole(text, OperationParser.parse_type)


def _whole(text: str, parse: Callable[[OperationParser], T]) -> T:
    parser = _parser(text)
    try:
        parsed = parse(parser)
        _expect_end(parser)
    except SpmdError as error:
        raise ValueError(error.diagnostics[0].message) from None
    return parsed


def _parser(text: str) -> OperationParser:
    parser = OperationParser(Source("<text>", text), sys.maxsize, TextNames())
    parser.ready()
    return parser


def _expect_end(parser: OperationParser) -> None:
    if parser.tokens[parser.position]:
        parser.expected("the end of the text")
