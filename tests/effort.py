"""How much of a kind is tried: an ordinary run takes a part of it, the long one of .ci/full all.

What hypothesis draws is as much as its profile says: ``pytest -m hypothesis --hypothesis-profile full`` draws all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

ORDINARY, FULL = "ordinary", "full"
# No example is timed: ranks and other tests share the machine's cores.
settings.register_profile(ORDINARY, deadline=None, max_examples=25, derandomize=True, database=None)
settings.register_profile(FULL, deadline=None, max_examples=100)


def profile() -> str:
    """The profile of this run."""
    return FULL if settings.default.max_examples == settings.get_profile(FULL).max_examples else ORDINARY


def examples(count: int) -> int:
    """As many examples as an ordinary run takes of `count`; `count` in a full one."""
    return count if profile() == FULL else max(min(count, 3), count // 4)


def some_slow(values: Sequence[Any], ordinary: int) -> list[Any]:
    """The cases of a test, of which all but the first `ordinary` are slow."""
    return [*values[:ordinary], *(pytest.param(value, marks=pytest.mark.slow) for value in values[ordinary:])]
