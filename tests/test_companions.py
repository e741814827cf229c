"""What is installed beside spmd is what it was made for, or the user is told how to mend it."""

import sys
import tomllib
from pathlib import Path

import pytest

from spmd.support import companions

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (["llvmlite-0.44.0.dist-info"], "0.44.0"),
        (["llvmlite-0.49.1rc1.dist-info", "numba-0.61.dist-info"], "0.49.1rc1"),
        (["llvmlite-0.50.0.dist-info"], None),
        (["llvmlite-1.0.dist-info"], None),
        (["llvmlite-0.44.0.dist-info", "llvmlite-0.50.1.dist-info"], None),  # one that pip has left behind
        (["llvmlite"], None),
    ],
)
def test_an_older_llvmlite_is_told_with_the_line_that_mends_it(
    tmp_path: Path, names: list[str], version: str | None
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    fault = companions.llvmlite_fault(str(tmp_path))
    if version is None:
        assert fault is None
    else:
        assert fault is not None and fault.startswith(f"llvmlite {version} is older than 0.50")
        assert fault.endswith(f"{sys.executable} -m pip install 'llvmlite>=0.50'")


def test_it_is_warned_of_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companions, "llvmlite_fault", lambda: "llvmlite 0.44 is older")
    with pytest.warns(RuntimeWarning, match="spmd: llvmlite 0.44 is older"):
        companions.warn_of_llvmlite()


def test_the_release_that_is_needed_is_what_is_required() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"llvmlite>={'.'.join(map(str, companions.LLVMLITE))}" in required
    assert companions.llvmlite_fault() is None
