"""JAX's own tests are run whatever they do to their process, and what only spmd's client fails is listed."""

from pathlib import Path

import pytest

from benchmarks.jax_suite.__main__ import Result, report, sampled
from benchmarks.jax_suite.running import Runs, Settings, names_of

TESTS = """
import os
import unittest

class Some(unittest.TestCase):
    def test_crashes(self):
        os.abort()

    def test_depends(self):
        self.assertEqual(os.environ["JAX_PLATFORMS"], "cpu")

    def test_hangs(self):
        while True:
            pass

    def test_is_not_for_this(self):
        self.skipTest("of another machine")

    def test_parts(self):
        for part in range(3):
            with self.subTest(part):
                self.assertNotEqual(part, 1)

    def test_passes(self):
        pass
"""


def test_every_test_has_an_outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "some_test.py"
    file.write_text(TESTS)
    names, settings = names_of(file), Settings(0.2, 2, tmp_path / "kept")
    assert [name.removeprefix("Some.test_") for name in names] == [
        "crashes",
        "depends",
        "hangs",
        "is_not_for_this",
        "parts",
        "passes",
    ]
    xla = Runs(file, "cpu", settings).outcomes(names)
    found = [xla[name].outcome for name in names]
    assert found == ["crashed", "passed", "timed out", "skipped", "failed", "passed"]
    held_to = ["Some.test_depends", "Some.test_passes"]
    result = Result("some_test", xla, Runs(file, "spmd", settings).outcomes(held_to))
    assert result.line().split() == ["some_test", "6", "2", "1", "50.00", "%"]
    report([result])
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line == "some_test: Some.test_depends: failed: + cpu"


def test_outcomes_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "none_test.py"
    file.write_text("raise AssertionError('it is run again')")
    kept = tmp_path / "spmd" / "none_test.jsonl"
    kept.parent.mkdir()
    kept.write_text('{"name": "A.test", "outcome": "passed"}\n{"name": "A.other", "outcome": "started"}\n')
    assert Runs(file, "spmd", Settings(1, 2, tmp_path)).outcomes(["A.test"])["A.test"].outcome == "passed"


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    names = [f"A.test{number}" for number in range(50)]
    drawn = sampled(names, 10, seed=1)
    assert len(drawn) == 10 and drawn == sampled(names, 10, seed=1) == sorted(drawn, key=names.index)
    assert drawn != sampled(names, 10, seed=2)
    assert sampled(names, None, seed=1) == names
