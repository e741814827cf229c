"""Starting elastic jobs in tests: what they find, and that nothing of them stays."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.job import SHARED_VARIABLE
from tests.launch.failures import kill_processes_left, processes_left

ROOT = Path(__file__).parents[2]
WORKER, SHARDED_WORKER = (ROOT / "tests" / "elastic" / name for name in ("worker.py", "sharded_worker.py"))
ACCURACY = 0.95  # of the worker's steps, of three epochs, without losses, less a percent
MOST_SECONDS = 240.0  # on a machine that does much else
#: Notes, in the folder $0, the job's folder in shared memory, and becomes the rank.
NOTE = f'echo "${SHARED_VARIABLE}" > "$0/$$"; exec "$@"'
#: In the command line of a rank that joins.
JOINING = re.compile(rb"SPMD_ELASTIC_RANK'\] = '(\d+)'")


class ElasticJob:
    """`spmd launch --elastic` of a script, with a place for temporary files of its own."""

    def __init__(
        self, ranks: int, arguments: Sequence[str], options: Sequence[str] = (), script: Path = WORKER, **variables: str
    ) -> None:
        self.marker = uuid.uuid4().hex
        self._folder = tempfile.TemporaryDirectory(prefix="el-", dir="/tmp")
        self._notes = tempfile.TemporaryDirectory(prefix="el-", dir="/tmp")
        command = [sys.executable, "-m", "launch", "launch", "--elastic", "-n", str(ranks), *options]
        environment = {**os.environ, "MARKER": self.marker, "PYTHONPATH": str(ROOT), "TMPDIR": self._folder.name}
        environment["PYTHONFAULTHANDLER"] = "1"
        self.environment = environment | variables
        self.process = subprocess.Popen(
            [*command, "--", "sh", "-c", NOTE, self._notes.name, sys.executable, str(script), *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self) -> dict[int, int]:
        """The ranks that run, by their numbers (those that join count on), and their processes."""
        by_rank = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if f"MARKER={self.marker}".encode() in variables:
                ranks = [word for word in variables if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
                joining = JOINING.search(command)
                by_rank |= {int(joining[1] if joining else word.partition(b"=")[2]): int(folder.name) for word in ranks}
        return by_rank

    def finish(self) -> "EndedElasticJob":
        """Waits for the end, and for all that the job may leave behind to go."""
        try:
            said, screen = self.process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            left = self.processes()
            for process in left.values():
                os.kill(process, signal.SIGABRT)  # Python tells where it was
            time.sleep(1)
            self.process.kill()
            kill_processes_left(self.marker)  # what else holds the streams
            said, screen = self.process.communicate()
            return EndedElasticJob(-1, said, screen, [f"did not end: ranks {sorted(left)} went on"])
        faults = [f"processes stay behind: {left}"] if (left := processes_left(self.marker)) else []
        noted = {Path(note.read_text().strip() or "/none") for note in Path(self._notes.name).iterdir()}
        if shared := sorted(str(folder) for folder in noted if folder.exists()):
            faults.append(f"shared memory stays behind: {shared}")
        # What ranks did last stays for the user.
        files = [str(path) for path in Path(self._folder.name).rglob("*") if path.is_file()]
        if files := [path for path in files if "/spmd-records-" not in path]:
            faults.append(f"files stay behind: {files}")
        self._folder.cleanup()
        self._notes.cleanup()
        return EndedElasticJob(self.process.returncode, said, screen, faults)


class EndedElasticJob:
    """How a job has ended: its status, what it wrote, and what should not be."""

    def __init__(self, status: int, said: str, screen: str, faults: list[str]) -> None:
        self.status, self.said, self.screen, self.faults = status, said, screen, faults

    @property
    def outcome(self) -> dict[str, Any]:
        """What the lowest of the ranks that told it has found; empty where none has."""
        told = [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]
        return dict(min(told, key=lambda each: each.get("rank", 0))) if told else {}
