"""Nothing in a test is left to chance: each draws from generators of its own, which it seeds.

The generators of a module of tests begin anew for each test, so that what one draws does not depend on others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

_STATE: pytest.StashKey[tuple[Any, ...]] = pytest.StashKey()
_RESTARTS: pytest.StashKey[dict[ModuleType, list[Callable[[], None]]]] = pytest.StashKey()


def begin(session: pytest.Session) -> None:
    """Note how the generators stand that Python and NumPy share among all callers."""
    with suppress(ImportError):  # it draws when it is imported
        import rich.style  # noqa: F401
    session.stash[_STATE] = _state()
    modules = {item.module for item in session.items if isinstance(item, pytest.Function)}
    restarts = {module: [_restart_of(each) for each in vars(module).values()] for module in modules}
    session.stash[_RESTARTS] = {module: list(filter(None, each)) for module, each in restarts.items()}


def restart(item: pytest.Item) -> None:
    """Have the generators of the test's module stand as they did when it was imported."""
    for each in item.session.stash[_RESTARTS].get(getattr(item, "module", None), ()):
        each()


def _restart_of(value: object) -> Callable[[], None] | None:
    if isinstance(value, np.random.Generator):
        return partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    if isinstance(value, random.Random):
        return partial(value.setstate, value.getstate())
    return None


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
