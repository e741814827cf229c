"""Hosts on the command line and in files, and what each launcher is told of them."""

import argparse
from pathlib import Path

import pytest

from launch import hosts, mpirun
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
    with pytest.raises(argparse.ArgumentTypeError, match="hosts:2: a line is a host"):
        hosts.from_file(str(file))


def test_what_names_no_hosts_is_refused(tmp_path: Path) -> None:
    for text in ("", "a:0", "a,,b", "a b,c"):
        with pytest.raises(argparse.ArgumentTypeError, match="hosts are named as a:2,b:2"):
            hosts.from_text(text)
    file = tmp_path / "hosts"
    file.write_text("# nobody\n")
    with pytest.raises(argparse.ArgumentTypeError, match="names no host"):
        hosts.from_file(str(file))
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be read"):
        hosts.from_file(str(tmp_path / "absent"))


def test_each_launcher_is_told_in_its_own_words() -> None:
    job = Job(["prog"], 3, hosts=TWO)
    assert not mpirun.on_one_machine(job)
    line = " ".join(mpirun.command_line(Launcher("mpirun", "openmpi"), job))
    assert "--host a:2,b.net:1" in line and "--oversubscribe" not in line and "--bind-to" not in line
    assert "-hosts a:2,b.net:1" in " ".join(mpirun.command_line(Launcher("mpiexec", "hydra"), job))
