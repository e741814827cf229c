"""How much of a kind is tried: an ordinary run takes a part of it, the long one of .ci/full all.

What hypothesis draws is as much as its profile says: ``pytest -m hypothesis --hypothesis-profile full`` draws all. The
ordinary profile draws the same at each run; the full one draws by a seed that stands in the header of the run, and
``--hypothesis-seed`` repeats it. No example is timed, and none is kept for later runs. Tests give their own settings
for nothing but the number of examples and health checks.
"""

from __future__ import annotations

import secrets
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
