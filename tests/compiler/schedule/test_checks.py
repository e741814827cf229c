"""What is expected of the schedules of programs, in files: `checks/*.mlir`, in the manner of LLVM's FileCheck.

A line `// THREADS: 4` says how many threads share the work, one where there is none.
"""

import io
import re
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from launch.cli import main

filecheck = pytest.importorskip("filecheck.main")
FOLDER = Path(__file__).parent / "checks"
FILES = sorted(FOLDER.glob("*.mlir"))


def check(file: Path, printed: Path) -> str:
    """What FileCheck says of a printed schedule; nothing where it is as `file` says."""
    report = io.StringIO()
    with redirect_stderr(report), pytest.raises(SystemExit) as exit:
        filecheck.main(["filecheck", str(file), "--input-file", str(printed)])
    return report.getvalue() if exit.value.code else ""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_schedule_is_as_the_file_says(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = re.search(r"// THREADS: (\d+)", file.read_text())
    assert main(["print", str(file), "--after", "schedule", "--threads", threads[1] if threads else "1"]) == 0
    printed = tmp_path / "schedule.txt"
    printed.write_text(capsys.readouterr().out)
    report = check(file, printed)
    assert not report, f"{report}\n{printed.read_text()}"


def test_a_file_that_says_otherwise_fails(tmp_path: Path) -> None:
    printed, file = tmp_path / "schedule.txt", tmp_path / "wrong.mlir"
    printed.write_text("step 0: library call, tasks 1\n")
    file.write_text("// CHECK: step 0: loop nests\n")
    assert check(file, printed)
