"""Nothing in a test is left to chance: each draws from generators of its own, which it seeds."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

_STATE: pytest.StashKey[tuple[Any, ...]] = pytest.StashKey()


def begin(session: pytest.Session) -> None:
    """Note how the generators stand that Python and NumPy share among all callers."""
    with suppress(ImportError):  # it draws when it is imported
        import rich.style  # noqa: F401
    session.stash[_STATE] = _state()


def check(session: pytest.Session) -> None:
    """Fail if one of them was drawn from, or seeded, since the last check; inside examples, Hypothesis seeds both.

    One that is seeded by a test would hide that the next draws from it.
    """
    before, session.stash[_STATE] = session.stash[_STATE], _state()
    if session.stash[_STATE] != before:
        pytest.fail("drew from, or seeded, a generator that all share: take random.Random(seed) or default_rng(seed)")


def _state() -> tuple[Any, ...]:
    _, key, *rest = np.random.get_state()
    return hash(random.getstate()), key.tobytes(), *rest  # type: ignore[union-attr]
