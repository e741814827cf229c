"""What is asked of a running job from outside."""

import os
import time
from pathlib import Path

from spmd.runtime import requests


def test_a_job_is_deserted_when_nobody_looks_for_requests_any_more(tmp_path: Path) -> None:
    """Before its first rank has begun nobody has looked yet: that one is waited for."""
    job = requests.RunningJob(os.getpid(), 4, "", tmp_path)
    assert not job.is_deserted
    requests.attend(tmp_path)
    assert not job.is_deserted
    (sign,) = tmp_path.iterdir()
    os.utime(sign, (time.time() - 60,) * 2)
    assert job.is_deserted
    requests.attend(tmp_path)
    assert not job.is_deserted
    requests.attend(tmp_path / "of another host")


def test_a_request_is_answered_once(tmp_path: Path) -> None:
    job = requests.RunningJob(os.getpid(), 4, "", tmp_path)
    asked = [requests.ask(job), requests.ask(job, "b")]
    assert sorted(request.host for request in requests.open_requests(tmp_path)) == ["", "b"]
    asked[1].answer("rank 4 joined", joined=True)
    asked[0].answer("the job has ended", joined=False)
    assert [request.answered for request in asked] == [(False, "the job has ended"), (True, "rank 4 joined")]
    assert requests.open_requests(tmp_path) == []
