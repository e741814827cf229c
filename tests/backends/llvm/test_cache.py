"""What compiling made, kept on disk: found again, private, bounded, ignored when damaged."""

import os
from pathlib import Path

import pytest

from spmd.backends.llvm.jit import jit
from spmd.support import compiled_cache as cache
from spmd.support.compiled_cache import Cache, user_cache

TEXT = "define i64 @f(i64 %x) { %y = add i64 %x, 41\n ret i64 %y }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chosen = tmp_path / "kept"
    monkeypatch.setenv("SPMD_CACHE_DIR", str(chosen))
    return chosen


def test_what_was_compiled_is_not_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = jit.compile_object(TEXT)
    monkeypatch.setattr(jit, "compile_module", None)
    assert jit.compile_object(TEXT) == first
    assert first.functions == ("f",)
    with pytest.raises(TypeError):
        jit.compile_object(TEXT.replace("41", "42"))


def test_what_was_compiled_together_is_found_one_by_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [TEXT.replace("@f", f"@{name}") for name in "ghk"]
    alone = jit.compile_object(texts[0])
    first, *others = jit.compile_together(texts)
    assert first == alone
    assert [code.functions for code in others] == [("h", "k")] * 2
    monkeypatch.setattr(jit, "compile_module", None)
    assert jit.compile_together(texts[::-1]) == [*others, first]
    assert jit.compile_object(texts[2]) == others[1]
    assert jit.compile_together([]) == []


def test_a_damaged_entry_is_made_again(folder: Path) -> None:
    first = jit.compile_object(TEXT)
    (entry,) = folder.iterdir()
    data = entry.read_bytes()
    for broken in (b"", data[:-1], data[:-5] + b"12345", b"x" + data, data[:20]):
        entry.write_bytes(broken)
        assert jit.compile_object(TEXT) == first
        assert entry.read_bytes() == data


def test_the_folder_is_private(folder: Path) -> None:
    jit.compile_object(TEXT)
    assert folder.stat().st_mode & 0o077 == 0
    assert all(entry.stat().st_mode & 0o077 == 0 for entry in folder.iterdir())
    folder.chmod(0o777)
    assert user_cache() is None


def test_nothing_is_kept_where_nothing_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for told in ("", str(tmp_path / "file" / "below")):
        monkeypatch.setenv("SPMD_CACHE_DIR", told)
        assert user_cache() is None
        assert jit.compile_object(TEXT).functions == ("f",)


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LIMIT", 1000)
    monkeypatch.setattr(cache, "_LEFT", 700)
    monkeypatch.setattr(cache, "_BETWEEN_CHECKS", 1)
    kept = Cache(tmp_path)
    for number in range(3):
        kept.put(str(number), bytes(250))
        os.utime(kept._path(str(number)), (number, number))
    assert kept.get("0") is not None  # used: newer than the others now
    kept.put("3", bytes(250))
    assert [kept.get(str(number)) is not None for number in range(4)] == [True, False, False, True]
    assert kept.usage().entries == 2
    kept.clear()
    assert kept.usage() == cache.Usage(0, 0)


def test_files_of_killed_writers_are_counted_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_BETWEEN_CHECKS", 1)
    kept = Cache(tmp_path)
    (tmp_path / "tmpabcd1234").write_bytes(bytes(1000))  # as earlier versions named them
    (tmp_path / "tmp0.tmp").write_bytes(bytes(500))
    assert kept.usage() == cache.Usage(0, 1500)
    os.utime(tmp_path / "tmp0.tmp", (0, 0))
    kept.put("key", b"content")
    assert not (tmp_path / "tmp0.tmp").exists() and (tmp_path / "tmpabcd1234").exists()
    kept.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SPMD_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert user_cache() is None
