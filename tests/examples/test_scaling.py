"""The cluster that nobody has: what the example prints is what its page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "scaling"


@pytest.mark.slow
def test_what_it_prints_is_what_its_page_shows() -> None:
    answer = subprocess.run(
        [sys.executable, str(FOLDER / "predict.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    (shown,) = re.findall(r"```\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert answer.stdout == shown, "where the schedule or its prices have changed on purpose, the page has to follow"
