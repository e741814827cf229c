"""How much of a kind is tried: an ordinary run takes a part of it, the long one of .ci/full all.

What hypothesis draws is as much as its profile says: ``pytest -m hypothesis --hypothesis-profile full`` draws all. The
ordinary profile draws the same at each run; the full one draws by a seed that stands in the header of the run, and
``--hypothesis-seed`` repeats it. No example is timed, and none is kept for later runs. Tests give their own settings
for nothing but the number of examples and health checks.
"""

from __future__ import annotations

import itertools
import secrets
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ORDINARY, FULL = "ordinary", "full"
# Ranks and other tests share the machine's cores, so that neither an example nor the drawing of one is timed.
_UNTIMED: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile(ORDINARY, max_examples=25, derandomize=True, **_UNTIMED)
settings.register_profile(FULL, max_examples=100, **_UNTIMED)


def choose_seed(config: pytest.Config) -> None:
    """Choose the seed of a run with the full profile, unless it was given one; workers take that of their run."""
    if config.option.hypothesis_profile == FULL and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))


def options(config: pytest.Config) -> list[str]:
    """Return the options by which another pytest draws what this one draws."""
    names = {"hypothesis_profile": "--hypothesis-profile", "hypothesis_seed": "--hypothesis-seed"}
    given = {option: getattr(config.option, attribute) for attribute, option in names.items()}
    return [f"{option}={value}" for option, value in given.items() if value is not None]


def forget_constants_of_modules() -> None:
    """Keep Hypothesis from drawing constants that it finds in the sources of the project's modules.

    It takes those of the modules that are loaded at that time, which depends on what ran before on the same worker.
    Releases before 6.131 take none.
    """
    try:
        from hypothesis.internal.conjecture import providers
    except ImportError:
        return
    if hasattr(providers, "is_local_module_file"):
        providers.is_local_module_file = lambda file: False


def profile() -> str:
    """The profile of this run."""
    return FULL if settings.default.max_examples == settings.get_profile(FULL).max_examples else ORDINARY


def examples(count: int) -> int:
    """As many examples as an ordinary run takes of `count`; `count` in a full one."""
    return count if profile() == FULL else max(min(count, 3), count // 4)


def some_slow(values: Sequence[Any], ordinary: int) -> list[Any]:
    """The cases of a test, of which all but the first `ordinary` are slow."""
    return [*values[:ordinary], *(pytest.param(value, marks=pytest.mark.slow) for value in values[ordinary:])]


def mark_repetition(items: Sequence[pytest.Item]) -> None:
    """Mark cases that an ordinary run leaves to the long one as slow.

    Of a test that is marked ``sampled(count)``, whose cases state one fact of many ops, types or sizes, it takes
    `count` cases, or as many as each value of each of several parameters needs to occur. Of others with three
    parameters and more it takes the cases in which each pair of values occurs: a fault that needs certain values of
    three parameters at once is for the long run. What one machine skips covers nothing for the others.
    """
    tests: dict[object, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            marks = tuple(mark.name for mark in item.callspec.marks)
            tests[item.nodeid.partition("[")[0], marks].append(item)
    for cases in tests.values():
        cases.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        sampled = cases[0].get_closest_marker("sampled")
        parameters = len(_values(cases[0]))
        if sampled is not None:
            _keep(cases, int(parameters > 1), sampled.args[0])
        elif parameters > 2:
            _keep(cases, 2, 0)


def _keep(cases: Sequence[pytest.Item], width: int, count: int) -> None:
    """Mark cases as slow, but for `count` and those in which values of `width` parameters meet for the first time."""
    covered: set[object] = set()
    others = []
    for item in cases:
        groups = {*itertools.combinations(enumerate(_values(item)), width)} if width else set()
        if groups <= covered:
            others.append(item)
        covered |= groups
    for item in others[max(count - (len(cases) - len(others)), 0) :]:
        item.add_marker(pytest.mark.slow)


def _values(item: pytest.Item) -> list[tuple[int, ...]]:
    """Return what tells the values of a case's parameters from other values; those that are given together are one."""
    values = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        values.append(tuple(id(item.callspec.params[name]) for name in names))  # type: ignore[attr-defined]
    return values
