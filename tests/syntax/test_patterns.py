"""Every regular expression matches the same text on every Python that is supported.

CPython before 3.11.5 does not move back after a failed repetition of a possessive group (gh-106052): whatever the
repetition had matched before a nested part of it failed stays behind. A group is safe from it if nothing but single
characters comes before the point where it can fail, or if its last alternative is one that never matches.
"""

import importlib
import pkgutil
import re
from re import _constants as names  # type: ignore[attr-defined]
from re import _parser as patterns  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest

import collectives
import launch
import partitioner
import spmd

_SINGLE = {names.LITERAL, names.NOT_LITERAL, names.IN, names.ANY, names.AT, names.CATEGORY}
_REPEATS = {names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT}
#: Where extras are needed, or whoever imports it starts something.
_NOT_IMPORTED = ("spmd.jax", "launch.__main__", "spmd.__main__")


def may_fail(item: tuple[Any, Any]) -> bool:
    """Whether the item of a parsed pattern does not match everywhere: repeated no time at all, it would."""
    operation, argument = item
    return not (operation in _REPEATS and argument[0] == 0)


def never_matches(body: Any) -> bool:
    """Whether the body is `(?!)`, which is its own operation from Python 3.12 on."""
    operation, argument = body[0] if len(body) else (None, None)
    return operation is names.FAILURE or (operation is names.ASSERT_NOT and len(argument[1]) == 0)


def moves_back(body: Any) -> bool:
    """Whether nothing stays behind where a group of this body fails."""
    items = list(body)
    if len(items) == 1 and items[0][0] is names.SUBPATTERN:
        return moves_back(items[0][1][3])
    if len(items) == 1 and items[0][0] is names.BRANCH:
        alternatives = items[0][1][1]
        return never_matches(alternatives[-1]) or all(moves_back(each) for each in alternatives)
    last = max((index for index, item in enumerate(items) if may_fail(item)), default=0)
    return last == 0 or all(operation in _SINGLE for operation, _ in items[: last + 1])


def unsafe_groups(pattern: str | bytes, flags: int = 0) -> list[str]:
    """The possessive and atomic groups of the pattern that fail with something left behind."""
    found: list[str] = []

    def walk(body: Any) -> None:
        for operation, argument in body:
            if operation is names.POSSESSIVE_REPEAT and not moves_back(argument[2]):
                found.append(str(argument[2]))
            if operation is names.ATOMIC_GROUP and not moves_back(argument):
                found.append(str(argument))
            for each in argument if isinstance(argument, tuple | list) else [argument]:
                for nested in each if isinstance(each, list) else [each]:
                    if isinstance(nested, patterns.SubPattern):
                        walk(nested)

    walk(patterns.parse(pattern, flags))
    return found


def modules() -> list[str]:
    packages = (spmd, collectives, partitioner, launch)
    found = [
        each.name for package in packages for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [name for name in found if not name.startswith(_NOT_IMPORTED)]


def expressions(module: ModuleType) -> list[tuple[str, re.Pattern[Any]]]:
    return [(f"{module.__name__}.{key}", value) for key, value in vars(module).items() if isinstance(value, re.Pattern)]


@pytest.mark.parametrize(
    ("pattern", "safe"),
    [
        (r"%x(?:[#:]\d++)?+", False),
        (r"%x(?:[#:]\d++|(?!))?+", True),
        (r"%x(?:[#:]\d\d*+)?+", True),
        (r"(?:ab?c)*+", False),
        (r"(?:a(?:bc|b)*+d)*+", False),
        (r"(?:/(?!/)|b)*+", False),
        (r"(?>[ \t]++|//[^\n]*+)*+", True),
        (r"(?:\\[0-9a-f]{2})++", False),
        (r"(?:[^<>]++|<[^<>]*+>)*+", False),
        (r"(?:[^<>]++|<[^<>]*+>|(?!))*+", True),
    ],
)
def test_groups_that_stay_behind_are_recognized(pattern: str, safe: bool) -> None:
    assert (not unsafe_groups(pattern)) is safe


def test_no_expression_depends_on_a_possessive_group_that_moves_back() -> None:
    found = [each for name in modules() for each in expressions(importlib.import_module(name))]
    assert len(found) > 10
    assert {name: groups for name, each in found if (groups := unsafe_groups(each.pattern, each.flags))} == {}
