"""What ranks leave of what they did last: on request, at SIGUSR1, at an error."""

import argparse
import contextlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from collectives.record.diagnosis import diagnose
from collectives.record.reading import Record, read_all
from launch import mpirun
from launch.cli import main
from launch.commands import dump, top

ROOT = Path(__file__).parents[2]
SPMD = [sys.executable, "-m", "launch"]
WORKER = Path(__file__).with_name("records_worker.py")
WATCHDOG_SECONDS = 120.0

pytestmark = pytest.mark.skipif(mpirun.find() is None, reason="no MPI")


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Waited:
    """What a job left: the folder of its records, what commands said of it while it ran, the records of its ranks at
    that time, as read and as plain contents, and what it told at its end."""

    folder: Path
    top: Said
    dump: Said
    records: list[Record]
    contents: list[dict[str, Any]]
    told: str


def start(folder: Path, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SPMD, "launch", "-n", "4", "--", sys.executable, str(WORKER), str(folder), what],
        cwd=ROOT,
        env={**os.environ, "COLLECTIVE_RECORDS": str(folder / "own")},
        stderr=subprocess.PIPE,
        text=True,
    )


def said(command: Callable[[], int]) -> Said:
    """What a command of this process returns and prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = command()
    return Said(status, out.getvalue(), err.getvalue())


def diagnosed(*files: Path) -> tuple[int, str]:
    ended = said(lambda: main(["diagnose", *map(str, files)]))
    assert not ended.err
    return ended.status, ended.out


@pytest.fixture(scope="module")
def waited(tmp_path_factory: pytest.TempPathFactory) -> Waited:
    """What one job leaves whose rank 2 comes last to five collectives, and whose rank 3 comes to no more, is asked for
    its records while the others wait for it, and fails."""
    folder = tmp_path_factory.mktemp("waited")
    own = folder / "own"
    with start(folder, "wait") as job:
        try:
            while not (folder / "ready").exists():
                assert job.poll() is None, job.communicate()[1]
                time.sleep(0.01)
            which = argparse.Namespace(process=job.pid, once=True, every=2.0)
            shown = said(lambda: top.run(which, WATCHDOG_SECONDS))
            dumped = said(lambda: dump.run(which, WATCHDOG_SECONDS))
            records = read_all([own])
            contents = [pickle.loads((own / f"rank_{rank}").read_bytes()) for rank in range(4)]
            (own / "rank_3").unlink()
            (folder / "go").touch()
            _, told = job.communicate(timeout=WATCHDOG_SECONDS)
        finally:
            job.kill()
    return Waited(own, shown, dumped, records, contents, told)


def test_top_shows_what_each_rank_does_and_for_whom_it_waits(waited: Waited) -> None:
    assert (waited.top.status, waited.top.err) == (0, "")
    heading, columns, *rows = waited.top.out.splitlines()
    assert "4 of 4 ranks respond" in heading and re.search(r"rank \d comes last, \S+ \w+ after the first", heading)
    assert columns.split() == ["rank", "steps/s", "late", "memory", "for", "does"]
    for rank, row in enumerate(rows[:3]):
        assert re.match(rf"\s*{rank}\s.*in all_reduce add of 4 float32, waits for 3 \(.*records_worker\.py:\d+\)", row)
    assert re.match(r"\s*3\s.*computes", rows[3])


def test_a_running_job_writes_on_request_and_the_rank_that_is_behind_is_named(waited: Waited) -> None:
    assert (waited.dump.status, waited.dump.err) == (0, "")
    assert waited.dump.out == f"{waited.folder}: 4 ranks (spmd diagnose {waited.folder})\n"
    diagnosis = diagnose(waited.records, moment=0.0)
    text = str(diagnosis)
    assert diagnosis.fault
    assert "Ranks 0-3 of 4 recorded what they did last." in text
    assert re.search(
        r"Ranks 0-2 wait for \S+ s in all_reduce add of 4 float32 at .*records_worker.py:\d+, number", text
    )
    assert "Rank 3 has not reached it.\nRank 3 is behind. Its last of that group was number" in text
    assert "since then it communicates no more, and computes or has ended." in text


def test_the_rank_that_the_others_waited_for_is_the_straggler(waited: Waited) -> None:
    turns = [
        replace(record, calls=tuple(call for call in record.calls if call.group == "0" and 2 <= call.number <= 6))
        for record in waited.records
    ]
    assert [[call.name for call in record.calls] for record in turns] == [["all_reduce"] * 5] * 4
    diagnosis = diagnose(turns)
    assert not diagnosis.fault
    assert "Rank 2 is the straggler: it came last to 5 of 5, and caused 100% of the waiting." in str(diagnosis)


def test_the_files_are_those_of_pytorchs_flight_recorder(waited: Waited) -> None:
    for rank, content in enumerate(waited.contents):
        assert content["version"].split(".")[0] == "2"
        assert content["pg_config"]["0"] == {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}
        assert content["rank"] == rank and content["world_size"] == 4
        entries = content["entries"]
        assert [entry["record_id"] for entry in entries] == sorted(entry["record_id"] for entry in entries)
        names = [entry["profiling_name"] for entry in entries]
        assert all(re.fullmatch(r"gloo:\w+( \d(->|<-)\d)?", name) for name in names)
        gather = next(entry for entry in entries if entry["profiling_name"] == "gloo:all_gather")
        assert gather["input_sizes"] == [[2, 3]] and gather["output_sizes"] == [[4, 3]]
        assert gather["input_dtypes"] == ["Long"]
        assert gather["process_group"] == (f"ranks {'0-1' if rank < 2 else '2-3'}", "undefined")
        assert gather["frames"][0]["filename"].endswith("records_worker.py")
        step = next(entry for entry in entries if entry["frames"] and entry["frames"][0]["filename"] == "step.mlir")
        assert (step["frames"][0]["line"], step["op"]) == (3, "all_reduce add of 4 float32")
        sent = next(entry for entry in entries if entry["profiling_name"].startswith("gloo:send"))
        assert sent["is_p2p"] and sent["process_group"][0] == f"{rank}->{(rank + 1) % 4} by channel 5"
        whole = [entry for entry in entries if entry["process_group"][0] == "0"]
        assert [entry["collective_seq_id"] for entry in whole] == list(range(1, len(whole) + 1))
        assert {"step @main", "compilation @main"} <= {f"{note['kind']} {note['what']}" for note in content["notes"]}
        done = content["pg_status"]["0"]
        assert (done["last_completed_collective"] < done["last_enqueued_collective"]) is (rank != 3)
        assert all(
            (entry["time_discovered_completed_ns"] is None) is (entry["state"] != "completed") for entry in entries
        )


def test_an_error_has_all_ranks_write_and_comes_last_on_the_screen(waited: Waited) -> None:
    folder, told = waited.folder, waited.told
    assert told.rstrip().endswith("ValueError: no cheese")
    assert f"(what each rank did last: spmd diagnose {folder})\nrank 3 of 4 on" in told
    for rank in range(4):
        content = json.loads((folder / f"{rank}.json").read_text())
        assert content == json.loads(json.dumps(pickle.loads((folder / f"rank_{rank}").read_bytes())))
        assert content["reason"] == "ValueError: no cheese"
    assert diagnosed(*(folder / f"{rank}.json" for rank in range(4)))[0] == 1


def test_who_calls_something_else_is_named(tmp_path: Path) -> None:
    with start(tmp_path, "other") as job:
        _, told = job.communicate(timeout=WATCHDOG_SECONDS)
    assert "processes of one group call different collectives" in told
    status, text = diagnosed(tmp_path / "own")
    assert status == 1
    assert "rank 3 calls all_gather of 4 float32, dim 0 at" in text
    assert "where ranks 0-2 call all_reduce add of 4 float32 at" in text


def test_a_sum_that_meets_a_maximum_ends_a_job_that_ends_at_once(tmp_path: Path) -> None:
    # Of integers both are MPI's own operations, by one algorithm: MPICH ends a process whose messages differ in size.
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from collectives.mpi import MpiCommunicator\n"
        "world = MpiCommunicator.world()\n"
        "call = world.all_reduce((4,), np.int32, 'max' if world.rank == 1 else 'add', where='script.py:4')\n"
        "call(np.ones(4, np.int32))\n"
    )
    command = [*SPMD, "launch", "-n", "2", "--", sys.executable, str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=WATCHDOG_SECONDS, check=False
    )
    assert ended.returncode == 1
    assert "process 0: all_reduce add of 4 int32 among [0, 1] at script.py:4" in ended.stderr
    assert "process 1: all_reduce maximum of 4 int32 among [0, 1] at script.py:4" in ended.stderr
