"""The temporary folders of jobs: they go with their launchers, killed ones too, and those that live keep theirs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch import mpirun
from launch.folders import job_folder, remove_abandoned
from spmd.runtime.notes import FOLDER_PREFIX
from tests.launch.failures import ROOT

HOLD = """
import sys, time
from pathlib import Path
from launch.folders import job_folder
with job_folder(Path(sys.argv[1])) as folder:
    (folder / "ranks").mkdir()
    (folder / "ranks" / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def holder(parent: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A process that has a folder in `parent`."""
    command = [sys.executable, "-c", HOLD, str(parent)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_folders_of_killed_launchers_go_and_those_of_others_stay(tmp_path: Path) -> None:
    killed, abandoned = holder(tmp_path)
    living, held = holder(tmp_path)
    foreign = tmp_path / f"{FOLDER_PREFIX}other"  # without a lock: not known to be anybody's
    foreign.mkdir()
    killed.kill()
    killed.communicate()
    assert abandoned.is_dir() and abandoned.stat().st_mode & 0o777 == 0o700
    with job_folder(tmp_path) as own:
        assert sorted(tmp_path.iterdir()) == sorted([held, foreign, own])
        remove_abandoned(tmp_path)
        assert own.is_dir() and (held / "ranks" / "file").exists()
    living.communicate()
    assert list(tmp_path.iterdir()) == [foreign]


def test_folders_of_other_users_are_left(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can have others own files")
    killed, abandoned = holder(tmp_path)
    killed.kill()
    killed.communicate()
    os.chown(abandoned, 65534, 65534)
    remove_abandoned(tmp_path)
    assert abandoned.is_dir()


def test_the_next_launch_removes_what_a_killed_launcher_left(tmp_path: Path) -> None:
    if mpirun.find() is None:
        pytest.skip("there is no launcher")
    launch = [sys.executable, "-m", "launch", "launch", "-n", "1", "--", "sh", "-c"]
    options = {"cwd": ROOT, "env": {**os.environ, "TMPDIR": str(tmp_path)}, "stdout": subprocess.PIPE, "text": True}
    job = subprocess.Popen([*launch, "echo $OMPI_MCA_btl_sm_backing_directory; sleep 600"], **options)  # type: ignore[call-overload]
    shared = Path(job.stdout.readline().strip())
    left = [*tmp_path.glob(f"{FOLDER_PREFIX}*"), *([shared] if str(shared) != "." else [])]
    assert left and all(folder.is_dir() for folder in left)
    job.send_signal(signal.SIGKILL)
    job.communicate()
    assert all(folder.is_dir() for folder in left)
    subprocess.run([*launch, "true"], **options, check=True)  # type: ignore[call-overload]
    assert not any(folder.exists() for folder in left)
