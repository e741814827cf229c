"""Requests to join a job, and the notes by which jobs are found: only those of this user's live launchers are."""

import json
import os
import re
import tempfile
from pathlib import Path

import pytest

from collectives.processes import start_of
from launch import recording
from spmd.runtime.notes import FOLDER_PREFIX
from spmd.runtime.requests import RunningJob, ask, open_requests, running_jobs


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of temporary files, for this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def folder_of(temporary: Path, name: str = "job", mode: int = 0o700) -> Path:
    folder = temporary / f"{FOLDER_PREFIX}{name}"
    folder.mkdir()
    folder.chmod(mode)
    return folder


def note(**changes: object) -> str:
    """What a launcher that is this process leaves."""
    right = {"process": os.getpid(), "most": 4, "host": "", "started": start_of(os.getpid())}
    return json.dumps({name: value for name, value in {**right, **changes}.items() if value is not ...})


def test_a_job_is_found_as_long_as_its_launcher_lives(temporary: Path) -> None:
    job = RunningJob(os.getpid(), 4, "here", folder_of(temporary))
    job.leave_note()
    assert running_jobs() == [job]
    (job.folder / "elastic.json").write_text(note(process=2**22 + 1))
    assert running_jobs() == []


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "3", '"x"', "\x00", "[" * 100_000, note(process=0), note(process=-1), note(process="1"),
        note(process=True), note(process=10**30), note(most="4"), note(most=-1), note(host=None), note(started="1"),
        note(started=...), note(process=...), json.dumps([os.getpid(), 4, ""]),
    ],
    ids=lambda text: re.sub(r"\d{2,}", "N", text)[:40],  # workers of one run collect the same names
)  # fmt: skip
def test_a_damaged_note_and_one_of_a_process_that_has_the_id_now_are_passed_over(temporary: Path, text: str) -> None:
    (folder_of(temporary, "damaged") / "elastic.json").write_text(text)
    job = RunningJob(os.getpid(), 1, "", folder_of(temporary, "sound"))
    job.leave_note()
    assert running_jobs() == [job]


def test_a_note_that_others_may_have_left_is_not_believed(temporary: Path) -> None:
    (folder_of(temporary, "open", 0o777) / "elastic.json").write_text(note())
    own = folder_of(temporary, "own")
    (own / "elastic.json").write_text(note())
    (temporary / f"{FOLDER_PREFIX}link").symlink_to(own)
    assert [job.folder for job in running_jobs()] == [own]
    if os.geteuid() == 0:
        os.chown(own, 65534, 65534)
        assert running_jobs() == []


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"host": 3}', "\udcff"])
def test_a_damaged_request_is_passed_over(temporary: Path, text: str) -> None:
    job = RunningJob(os.getpid(), 1, "", folder_of(temporary))
    (job.folder / "join-1.json").write_bytes(text.encode(errors="surrogateescape"))
    request = ask(job, "a")
    assert open_requests(job.folder) == [request]


def test_notes_that_are_pipes_links_or_endless_are_passed_over(temporary: Path) -> None:
    os.mkfifo(folder_of(temporary, "pipe") / "elastic.json")
    (folder_of(temporary, "zero") / "elastic.json").symlink_to("/dev/zero")
    (folder_of(temporary, "long") / "elastic.json").write_text(note(host="x" * 10**6))
    job = RunningJob(os.getpid(), 1, "", folder_of(temporary, "sound"))
    job.leave_note()
    assert running_jobs() == [job]


@pytest.mark.parametrize(
    "text",
    ["3", "[]", note(), note(ranks="x", records=None), note(ranks=2, records=[])],
    ids=["number", "list", "no ranks", "ranks in letters", "records in a list"],
)
def test_a_damaged_note_of_a_job_without_growth_is_passed_over(temporary: Path, text: str) -> None:
    (folder_of(temporary, "damaged") / "job.json").write_text(text)
    os.mkfifo(folder_of(temporary, "pipe", 0o777) / "job.json")  # of a folder that others may write to
    job = recording.LaunchedJob(os.getpid(), folder_of(temporary), 2, None)
    job.leave_note()
    assert list(recording.running_jobs()) == [job]


def test_records_that_are_pipes_are_none(temporary: Path) -> None:
    os.mkfifo(temporary / "rank_0")
    (temporary / "rank_1").touch()
    assert recording.LaunchedJob(os.getpid(), temporary, 2, temporary).written_since(0.0) == ["rank_1"]
