"""Limits of the control groups around a process: the tightest one from its own group up to the root holds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spmd.analysis import memory
from spmd.support import control_groups, machine


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(control_groups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(control_groups, "OF_PROCESS", tmp_path / "of_process")
    memory.memory_here.cache_clear()
    yield tmp_path
    memory.memory_here.cache_clear()


def made(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


@pytest.mark.parametrize("limited", ["slurm", "slurm/job", "slurm/job/step"])
def test_any_group_on_the_way_up_limits_memory_and_processors(groups: Path, limited: str) -> None:
    (groups / "of_process").write_text("0::/slurm/job/step\n")
    made(groups / "cgroup" / "slurm/job/step", memory_max="max\n", cpu_max="max 100000\n")
    made(groups / "cgroup" / limited, memory_max="3000\n", cpu_max="100000 100000\n")
    stat = "anon 5\ninactive_file 400\n"
    made(groups / "cgroup" / limited, memory_current="1500\n", memory_stat=stat)
    assert memory.memory_here() == 3000 and memory.free_memory() == 3000 - (1500 - 400)
    assert machine.usable_cores() == 1


def test_groups_of_the_first_version(groups: Path) -> None:
    (groups / "of_process").write_text("5:memory,hugetlb:/user/job\n3:cpu:/other\n0::/\n")
    folder = groups / "cgroup" / "memory" / "user"
    (folder / "job").mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("5000\n")
    (folder / "memory.usage_in_bytes").write_text("700\n")
    (folder / "job" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory.memory_here() == 5000 and memory.free_memory() == 4300


@pytest.mark.parametrize("text", [None, "", "nonsense\n", "0::/../..\n", "0::/absent\n"])
def test_without_groups_nothing_is_limited(groups: Path, text: str | None) -> None:
    if text is not None:
        (groups / "of_process").write_text(text)
    assert memory.memory_here() > 1 << 20 and memory.free_memory() > 0
