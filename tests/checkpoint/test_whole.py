"""Checkpoints are whole or absent: damage is found and named, writers that die or fail lose nothing, old ones go."""

import json
import os
import subprocess
import sys
import time
import warnings
import zlib
from collections import namedtuple
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from spmd import checkpoint
from spmd.checkpoint import CheckpointError, DamagedCheckpointError
from tests.checkpoint.kills import ROOT, kill_writers
from tests.clocks import WATCHDOG_SECONDS

named = namedtuple("named", ["field"])


def files(folder: Path, step: int) -> list[Path]:
    """The files of a checkpoint: its manifest and its parts."""
    return [folder / f"step-{step:012d}.json", *sorted(folder.glob(f"step-{step:012d}-*/*"))]


def steps(folder: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.json"))


def newest(folder: Path) -> int | None:
    """checkpoint.newest, where damage is expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return checkpoint.newest(folder)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_each_flipped_bit_is_found_and_named_and_the_one_before_is_taken(tmp_path: Path, every: int) -> None:
    """Of every seventh each place in a byte has its turn."""
    checkpoint.save(tmp_path, 1, {"w": np.zeros(1)})
    checkpoint.save(tmp_path, 2, {"w": np.arange(3, dtype=np.int16), "n": 1, "f": np.float32(0.5)})
    for path in files(tmp_path, 2):
        content = path.read_bytes()
        for bit in range(0, 8 * len(content), every):
            spoilt = bytearray(content)
            spoilt[bit // 8] ^= 1 << bit % 8
            path.write_bytes(spoilt)
            with pytest.raises(DamagedCheckpointError, match=path.name):
                checkpoint.restore(tmp_path, 2)
            if bit % 17 == 0:  # the same code, and a third slower
                assert newest(tmp_path) == 1
        path.write_bytes(content)
    assert newest(tmp_path) == 2


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("index", [0, 1])
def test_a_torn_file_is_passed_over_for_the_one_before(tmp_path: Path, fraction: float, index: int) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, {"a": np.full(1000, step)})
    torn = files(tmp_path, 2)[index]
    os.truncate(torn, int(torn.stat().st_size * fraction))
    with pytest.warns(RuntimeWarning, match=f"passed over: .*{torn.name}: damaged"):
        assert checkpoint.newest(tmp_path) == 1
    with pytest.warns(RuntimeWarning, match="passed over"):
        assert checkpoint.restore(tmp_path)["a"][0] == 1
    with pytest.raises(DamagedCheckpointError, match="damaged"):
        checkpoint.restore(tmp_path, 2)


def test_a_longer_file_and_a_missing_one_are_damaged(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {"a": np.arange(10)})
    part = files(tmp_path, 1)[1]
    with part.open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(DamagedCheckpointError, match="bytes long"):
        checkpoint.verify(tmp_path, 1)
    part.unlink()
    with pytest.raises(DamagedCheckpointError, match="cannot be read"):
        checkpoint.verify(tmp_path, 1)
    assert newest(tmp_path) is None


def test_damage_is_named_by_the_array(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {"a": np.zeros(10, np.uint8), "b": np.zeros(100, np.uint8)})
    part = files(tmp_path, 1)[1]
    content = bytearray(part.read_bytes())
    content[-1] ^= 1  # arrays lie in order of size, the largest first
    part.write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=r"part-00000-of-00001\.safetensors: damaged: bytes .* of /a"):
        checkpoint.verify(tmp_path, 1)


def test_the_disk_begins_while_the_rest_is_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int, int]] = []

    def begin(descriptor: int, offset: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        told.append((offset, length, os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "posix_fadvise", begin)
    tree = {str(size): np.arange(size, dtype=np.uint8) % 251 for size in (0, 1, 7, 63, 64, 65, 200, 4096)}
    monkeypatch.setattr("spmd.checkpoint.safetensors._STRETCH", 64)
    checkpoint.save(tmp_path, 1, tree)
    ends = [offset + length for offset, length, _ in told]
    assert [offset for offset, _, _ in told] == [0, *ends[:-1]]
    assert [size for _, _, size in told] == ends and len(told) > 60
    assert files(tmp_path, 1)[1].stat().st_size - ends[-1] < 64
    for name, leaf in checkpoint.restore(tmp_path, 1).items():
        np.testing.assert_array_equal(leaf, tree[name])


def test_the_newest_ones_are_kept(tmp_path: Path) -> None:
    for step in (5, 20, 100, 3):
        checkpoint.save(tmp_path, step, {"a": np.array(step)}, keep=2)
    assert steps(tmp_path) == [3, 100]
    assert checkpoint.newest(tmp_path) == 100
    checkpoint.save(tmp_path, 1, {}, keep=None)
    assert steps(tmp_path) == [1, 3, 100]


def test_the_one_just_written_is_kept_though_others_are_newer(tmp_path: Path) -> None:
    for step in (7, 8, 9, 2):
        checkpoint.save(tmp_path, step, {"a": np.array(step)}, keep=1)
    assert steps(tmp_path) == [2]


@pytest.mark.parametrize("index", [0, 1])
def test_damaged_ones_do_not_count_as_kept(tmp_path: Path, index: int) -> None:
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, {"a": np.array(step)}, keep=None)
    for step in (2, 3):
        spoilt = files(tmp_path, step)[index]
        content = bytearray(spoilt.read_bytes())
        content[-3] ^= 1
        spoilt.write_bytes(content)
    checkpoint.save(tmp_path, 4, {"a": np.array(4)}, keep=2)
    assert {1, 4} <= set(steps(tmp_path))
    checkpoint.save(tmp_path, 5, {"a": np.array(5)}, keep=2)
    assert steps(tmp_path) == [4, 5]


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    for value in (1, 2):
        checkpoint.save(tmp_path, 3, {"a": np.array(value)})
    assert checkpoint.restore(tmp_path, 3)["a"] == 2
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 1, {"a": np.zeros(3)})
    there = sorted(tmp_path.rglob("*"))
    failing: set[int] = set()
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls in failing:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for call, name in ((1, r"part-\S+"), (2, r"step-\S+"), (3, r"\.step-\S+json")):  # a part, its folder, the manifest
        for wait in (True, False):
            failing, calls = {call}, 0
            with pytest.raises(OSError, match=rf"{tmp_path}/\S*{name}: cannot be written: No space"):
                checkpoint.save(tmp_path, 2, {"a": np.zeros(3)}, wait=wait)  # type: ignore[call-overload]
                checkpoint.save(tmp_path, 2, {})
            assert sorted(tmp_path.rglob("*")) == there


def test_a_failure_behind_the_caller_s_back_is_raised_by_the_next_save(tmp_path: Path) -> None:
    pending = checkpoint.save(tmp_path, 1, {"a": np.zeros(3)}, wait=False)
    pending.wait()
    (tmp_path / "step-000000000002.json").mkdir()  # nothing can be renamed to it
    checkpoint.save(tmp_path, 2, {"a": np.zeros(3)}, wait=False)
    with pytest.raises(OSError):
        checkpoint.save(tmp_path, 3, {"a": np.zeros(3)})


def test_without_waiting_the_arrays_may_change_at_once(tmp_path: Path) -> None:
    array = np.zeros(1_000_000)
    pending = checkpoint.save(tmp_path, 1, {"a": array}, wait=False)
    array[:] = 1
    assert pending.wait() == tmp_path / "step-000000000001.json" and pending.done
    assert not checkpoint.restore(tmp_path, 1)["a"].any()


def test_the_end_of_the_program_waits_for_what_is_being_written(tmp_path: Path) -> None:
    """And tells of what could not be."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    (bad / "step-000000000001.json").mkdir(parents=True)  # nothing can be renamed to it
    save = "[checkpoint.save(folder, 1, np.zeros(3_000_000), wait=False) for folder in sys.argv[1:]]"
    command = [sys.executable, "-c", f"import sys, numpy as np; from spmd import checkpoint; {save}", good, bad]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert checkpoint.newest(good) == 1
    assert f"{bad}/step-000000000001.json: the checkpoint was not written: " in ended.stderr
    assert str(good) not in ended.stderr


def test_no_folder_holds_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "absent") is None
    with pytest.raises(CheckpointError, match="no undamaged checkpoint"):
        checkpoint.restore(tmp_path / "absent")
    with pytest.raises(DamagedCheckpointError, match="cannot be read"):
        checkpoint.restore(tmp_path, 4)


@pytest.mark.parametrize("step", [-1, 1.5, True, "3", None])
def test_a_step_that_is_none_is_refused(tmp_path: Path, step: object) -> None:
    with pytest.raises(CheckpointError, match="step must be a non-negative integer"):
        checkpoint.save(tmp_path, step, {})  # type: ignore[call-overload]
    with pytest.raises(CheckpointError, match="keep must be at least 1"):
        checkpoint.save(tmp_path, 1, {}, keep=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "points",
    [range(1, 120, 13), pytest.param(range(1, 250), marks=pytest.mark.slow)],
    ids=["some points", "all points"],
)
def test_writers_killed_at_any_point_leave_whole_checkpoints_and_nothing_else(tmp_path: Path, points: range) -> None:
    last = kill_writers(tmp_path, points)
    assert last > 0
    checkpoint.save(tmp_path, last + 1, {"a": np.zeros(1)}, keep=1)
    manifest, part = files(tmp_path, last + 1)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {manifest, part, tmp_path / ".lock"}


WRITE_AND_PRUNE = """
import sys, numpy as np
from spmd import checkpoint
count = 0
while True:
    checkpoint.save(sys.argv[1], {step}, {{str(leaf): np.full(30_000, count) for leaf in range(4)}}, keep={keep})
    count += 1
    print(count, flush=True)
"""


@pytest.mark.parametrize(("step", "keep"), [("count", 1), ("count", 2), ("0", 1)], ids=["keep 1", "keep 2", "replaced"])
def test_beside_a_job_that_writes_and_prunes_there_is_always_a_whole_one(tmp_path: Path, step: str, keep: int) -> None:
    code = WRITE_AND_PRUNE.format(step=step, keep=keep)
    writer = subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    writer.stdout.readline()
    try:
        last = -1
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what goes away is not damaged
            rounds, end = 0, time.monotonic() + WATCHDOG_SECONDS
            while rounds < 60 or last <= 0:
                rounds += 1
                assert time.monotonic() < end, "the writer does not write on"
                assert checkpoint.newest(tmp_path) is not None
                restored = checkpoint.restore(tmp_path)
                values = {float(value) for leaf in restored.values() for value in np.unique(leaf)}
                assert len(values) == 1 and last <= max(values)
                last = max(values)
                if step == "0":
                    checkpoint.verify(tmp_path, 0)
                    assert checkpoint.restore(tmp_path, 0).keys() == restored.keys()
    finally:
        writer.kill()
        writer.communicate()
    assert last > 0


def foreign(path: Path, body: object) -> None:
    """Gives the manifest at `path` other content, with its checksum."""
    rest = f'", "manifest": {json.dumps(body)}}}\n'.encode()
    path.write_bytes(f'{{"crc32": "{zlib.crc32(rest):08x}'.encode() + rest)


def changes(value: object, replacements: Sequence[object]) -> Iterator[object]:
    """Copies of a JSON value, in each of which one part of it is another one, or missing."""
    yield from replacements
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: its for name, its in value.items() if name != key}
            yield from ({**value, key: changed} for changed in changes(part, replacements))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield value[:index] + value[index + 1 :]
            yield [*value, part]
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in changes(part, replacements))


def test_a_manifest_of_foreign_content_is_damaged(tmp_path: Path) -> None:
    """Whatever it holds, a reader gives a whole tree or one of our errors, and goes to the checkpoint before."""
    state = {"w": np.arange(6, dtype=np.int16).reshape(2, 3), "n": 1, "own": 2.5, "p": named("x")}
    checkpoint.save(tmp_path, 1, {})
    checkpoint.save(tmp_path, 2, state, per_rank="own")
    path = files(tmp_path, 2)[0]
    body = json.loads(path.read_bytes())["manifest"]
    foreign(path, body)
    assert checkpoint.restore(tmp_path, 2)["own"] == 2.5  # as it was
    refused = 0
    for changed in changes(body, [None, -1, True, "", "../x", [], {}, 10**400, 0.5, "object", "class"]):
        foreign(path, changed)
        try:
            checkpoint.restore(tmp_path, 2)
            checkpoint.verify(tmp_path, 2)
        except CheckpointError:
            refused += 1
            if refused % 25 == 0 and isinstance(changed, dict) and changed.get("format") == body["format"]:
                assert newest(tmp_path) == 1
    assert refused > 500
    for text in (b"[" * 100_000 + b"]" * 100_000, b'{"a": 1', b"\xff", b'"manifest"', b"1" * 5000):
        rest = b'", "manifest": ' + text + b"}\n"
        path.write_bytes(f'{{"crc32": "{zlib.crc32(rest):08x}'.encode() + rest)
        with pytest.raises(DamagedCheckpointError, match="is not a manifest of a checkpoint"):
            checkpoint.verify(tmp_path, 2)
        assert newest(tmp_path) == 1
