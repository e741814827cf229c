"""Nothing in a test is left to chance: each draws from generators of its own, which it seeds.

The generators of a module of tests begin anew for each test, so that what one draws does not depend on others.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest

#: Modules that draw when they are imported, which the first test that needs them may do.
DRAWING_IMPORTS = frozenset({"rich.style", "jax._src.clusters.k8s_cluster"})

_STATE: pytest.StashKey[tuple[Any, ...]] = pytest.StashKey()
_IMPORTED: pytest.StashKey[frozenset[str]] = pytest.StashKey()
_RESTARTS: pytest.StashKey[dict[ModuleType, list[Callable[[], None]]]] = pytest.StashKey()


def begin(session: pytest.Session) -> None:
    """Note how the generators stand that Python and NumPy share among all callers."""
    session.stash[_STATE], session.stash[_IMPORTED] = _state(), _imported()
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
    known, session.stash[_IMPORTED] = session.stash[_IMPORTED], _imported()
    if session.stash[_STATE] != before and session.stash[_IMPORTED] <= known:
        pytest.fail("drew from, or seeded, a generator that all share: take random.Random(seed) or default_rng(seed)")


@contextmanager
def undone() -> Iterator[None]:
    """Put back at the end how Python's shared generator stood: for libraries that draw names from it."""
    state = random.getstate()
    yield
    random.setstate(state)


def _imported() -> frozenset[str]:
    return DRAWING_IMPORTS & sys.modules.keys()


def _state() -> tuple[Any, ...]:
    _, key, *rest = np.random.get_state()
    return hash(random.getstate()), key.tobytes(), *rest  # type: ignore[union-attr]
