"""Conformance files, where the folder is there: every module does what its file says (see launch/conformance.py)."""

from itertools import groupby
from pathlib import Path

import pytest

from launch.conformance import Case, judge, read_cases

FOLDER = Path(__file__).parents[1].parent / "shared" / "conformance"
CASES = [list(group) for _, group in groupby(read_cases([FOLDER]), lambda case: case.path)] if FOLDER.is_dir() else []


@pytest.mark.skipif(not CASES, reason=f"no conformance files at {FOLDER}")
@pytest.mark.parametrize("cases", CASES, ids=lambda cases: str(cases[0].path.relative_to(FOLDER)))
def test_a_file_of_programs(cases: list[Case]) -> None:
    problems = {case.name: problem for case in cases if (problem := judge(case).problem) is not None}
    assert problems == {}


RUNS = [case for group in CASES for case in group if "interpreter.run_parallel" in case.text]


@pytest.mark.skipif(not RUNS, reason=f"no conformance files at {FOLDER}")
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name.removeprefix(f"{FOLDER}/"))
def test_a_grid_of_processes_stacked(case: Case) -> None:
    """Those that can be stacked; different programs run as threads."""
    assert judge(case, mode="auto").problem is None
