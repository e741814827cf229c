"""Hosts on the command line and in files, and what each launcher is told of them."""

import argparse
import os
from pathlib import Path

import pytest

from launch import hosts, mpirun, remote
from launch.hosts import Host
from launch.mpirun import Job, Launcher

TWO = (Host("a", 2), Host("b.net", 1))


def test_hosts_are_read_from_text_and_from_files(tmp_path: Path) -> None:
    assert hosts.from_text("a:2,b.net") == TWO
    file = tmp_path / "hosts"
    file.write_text("# ours\na slots=2 max_slots=4\n\nb.net   # one\n")
    assert hosts.from_file(str(file)) == TWO
    file.write_text("a:2\nb.net:1\n")
    assert hosts.from_file(str(file)) == TWO


@pytest.mark.parametrize("text", ["a:0", "a:x", "a,b", "-a", "a:2:3", "a b", "a slots=0"])
def test_a_line_that_names_no_host_is_refused_with_its_place(text: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"ok\n{text}\n")
    with pytest.raises(argparse.ArgumentTypeError, match="hosts:2: a line must be a host"):
        hosts.from_file(str(file))


def test_what_names_no_hosts_is_refused(tmp_path: Path) -> None:
    for text in ("", "a:0", "a,,b", "a b,c"):
        with pytest.raises(argparse.ArgumentTypeError, match="hosts must be given as a:2,b:2"):
            hosts.from_text(text)
    file = tmp_path / "hosts"
    file.write_text("# nobody\n")
    with pytest.raises(argparse.ArgumentTypeError, match="names no host"):
        hosts.from_file(str(file))
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be read"):
        hosts.from_file(str(tmp_path / "absent"))


def test_each_launcher_is_told_in_its_own_words() -> None:
    job = Job(["prog"], 3, hosts=TWO)
    assert not mpirun.on_one_machine(Launcher("mpirun", "openmpi"), job)
    line = " ".join(mpirun.command_line(Launcher("mpirun", "openmpi"), job))
    assert "--host a:2,b.net:1" in line and "--oversubscribe" not in line and "--bind-to" not in line
    assert "-hosts a:2,b.net:1" in " ".join(mpirun.command_line(Launcher("mpiexec", "hydra"), job))


def test_an_elastic_job_has_no_daemons_that_could_be_lost() -> None:
    job = Job(["prog"], 3, elastic=True, hosts=TWO)
    line = mpirun.command_line(Launcher("mpirun", "openmpi"), job)
    assert line[line.index("--host") + 1] == "localhost:3", "every rank is the launcher's own, to the launcher"
    assert line[-3] == "a:2,b.net:1" and line[-1] == "prog" and "remote.main" in line[-4]
    assert set(remote.VARIABLES) <= mpirun.environment(job).keys()


def test_a_host_is_this_machine_by_its_name_and_by_its_addresses() -> None:
    here = [Host(os.uname().nodename), Host("localhost"), Host("127.0.0.1")]
    assert remote.unreachable(here) == {}


def test_a_host_that_no_shell_comes_to_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text("#!/bin/sh\necho no route to $1 >&2\nexit 255\n")
    shell.chmod(0o755)
    monkeypatch.setenv(remote.SHELL_VARIABLE, str(shell))
    assert remote.unreachable([Host("localhost"), Host("nowhere")]) == {
        "nowhere": "host nowhere cannot be reached: no route to nowhere"
    }
