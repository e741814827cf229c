"""What a test draws is the same at each run: in the order of its own generators, each of which has a seed."""

import random
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests import chance, effort

ROOT = Path(__file__).parents[1]
OWN = np.random.default_rng(0)
UNSEEDED = re.compile(r"\b(default_rng|Random|RandomState|SeedSequence)\(\)")
#: Settings that profiles give, and what runs without them: a process of its own, which draws by a seed.
OF_PROFILES = re.compile(r"\b(derandomize|deadline|database)=")
WITHOUT_PROFILES = {"tests/effort.py", "tests/memory/guarded.py"}


def test_each_generator_has_a_seed() -> None:
    files = [file for folder in ("tests", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.py")]
    assert [str(file) for file in files if UNSEEDED.search(file.read_text())] == []


def test_settings_of_tests_leave_to_the_profile_whether_they_draw_anew() -> None:
    files = {str(file.relative_to(ROOT)): file.read_text() for file in (ROOT / "tests").rglob("*.py")}
    assert {name for name, text in files.items() if OF_PROFILES.search(text)} == WITHOUT_PROFILES


@pytest.mark.parametrize("draw", [random.random, np.random.normal, lambda: random.seed(1), lambda: np.random.seed(1)])
def test_a_draw_from_a_generator_that_all_share_is_found(draw: object, request: pytest.FixtureRequest) -> None:
    states = random.getstate(), np.random.get_state()
    chance.check(request.session)
    draw()  # type: ignore[operator]
    with pytest.raises(pytest.fail.Exception, match="a generator that all share"):
        chance.check(request.session)
    random.setstate(states[0])
    np.random.set_state(states[1])
    with pytest.raises(pytest.fail.Exception):
        chance.check(request.session)
    chance.check(request.session)


def test_what_is_drawn_when_a_library_is_imported_is_no_draw_of_the_test(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = random.getstate()
    chance.check(request.session)
    monkeypatch.setattr(chance, "DRAWING_IMPORTS", chance.DRAWING_IMPORTS | {"tests.drawing"})
    monkeypatch.setitem(sys.modules, "tests.drawing", ModuleType("tests.drawing"))
    random.random()
    chance.check(request.session)
    random.setstate(state)
    with pytest.raises(pytest.fail.Exception, match="a generator that all share"):
        chance.check(request.session)


def test_another_pytest_is_given_what_decides_the_examples(pytestconfig: pytest.Config) -> None:
    """Ranks draw what the run draws that starts them."""
    is_full = effort.profile() == effort.FULL
    assert [option.partition("=")[0] for option in effort.options(pytestconfig)] == (
        ["--hypothesis-profile", "--hypothesis-seed"] if is_full else []
    )


@pytest.mark.parametrize("turn", range(2))
def test_the_generator_of_a_module_begins_anew_for_each_test(turn: int) -> None:
    assert OWN.integers(1000) == np.random.default_rng(0).integers(1000)
