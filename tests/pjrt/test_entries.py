"""Whatever the entries of the interface are called with, the process goes on."""

import subprocess
import sys
from pathlib import Path


def test_every_entry_bears_wrong_handles_and_sizes() -> None:
    script = Path(__file__).parent / "wrong_calls.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, cwd=Path.cwd())
    assert (done.returncode, done.stdout) == (0, "unharmed\n"), done.stderr
