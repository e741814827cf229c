"""Checkpoints of many processes: each writes its own blocks, any number reads them, under other shardings too."""

import os
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import spmd
from spmd import checkpoint
from spmd.checkpoint import ArrayBlock, CheckpointError, DamagedCheckpointError, safetensors
from spmd.errors import OutputError

pytestmark = pytest.mark.mpi
WORLD = MPI.COMM_WORLD


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One folder for all ranks."""
    return Path(WORLD.bcast(os.fspath(tmp_path)))


@pytest.fixture(params=[1, 2, 3, 4])
def readers(request: pytest.FixtureRequest) -> Iterator[MPI.Comm]:
    """The first ranks alone, as many as there are to be; the others do not take part."""
    count = min(request.param, WORLD.size)
    group = WORLD.Split(0 if count > WORLD.rank else 1, WORLD.rank)
    yield group if count > WORLD.rank else MPI.COMM_NULL
    group.Free()
    WORLD.Barrier()


def cut(array: np.ndarray[Any, Any], axis: int, rank: int, size: int) -> ArrayBlock:
    """An even part, the first ones longer where there is a remainder."""
    bounds = [part * array.shape[axis] // size for part in range(size + 1)]
    index = [slice(0, length) for length in array.shape]
    index[axis] = slice(bounds[rank], bounds[rank + 1])
    return ArrayBlock(array.shape, tuple(index))


def whole_tree() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "rows": rng.normal(size=(37, 5)), "columns": rng.normal(size=(3, 11)).astype(np.float32),
        "middle": rng.integers(0, 99, (2, 9, 4)), "same": rng.normal(size=7), "none": None, "step": 5,
        "bytes": rng.integers(0, 2, (8, 3)).astype(np.bool_), "empty": np.zeros((0, 3)),
    }  # fmt: skip


CUTS = {"rows": 0, "columns": 1, "middle": 1, "bytes": 0}


def cut_tree(tree: dict[str, Any], axes: dict[str, int], rank: int, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    blocks = {name: cut(tree[name], axis, rank, size) for name, axis in axes.items()}
    return tree | {name: tree[name][block.index] for name, block in blocks.items()}, dict.fromkeys(tree) | blocks


def same(restored: dict[str, Any], expected: dict[str, Any]) -> None:
    assert restored.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(restored[name], value)


@pytest.mark.parametrize("axes", [CUTS, {"rows": 1, "middle": 2}, {}])
def test_blocks_of_all_ranks_are_read_by_any_number(folder: Path, readers: MPI.Comm, axes: dict[str, int]) -> None:
    tree = whole_tree()
    mine, shardings = cut_tree(tree, CUTS, WORLD.rank, WORLD.size)
    checkpoint.save(folder, 1, mine, shardings)
    if readers != MPI.COMM_NULL:
        expected, others = cut_tree(tree, axes, readers.rank, readers.size)
        same(checkpoint.restore(folder, like=expected, shardings=others, communicator=readers), expected)
        same(checkpoint.restore(folder, communicator=readers), tree)


def test_each_block_is_written_once_and_by_all(folder: Path) -> None:
    checkpoint.save(folder, 1, {str(leaf): np.zeros(1000) for leaf in range(8)})
    parts = sorted(folder.glob("*/*.safetensors"))
    assert len(parts) == WORLD.size
    assert 64_000 <= sum(part.stat().st_size for part in parts) < 70_000


PROGRAM = """
sdy.mesh @mesh = <["x"={size}]>
func.func @main(%x: tensor<5x3xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}) -> tensor<5x3xf32> {{
  return %x : tensor<5x3xf32>
}}"""


def test_shardings_of_an_executable_and_padded_blocks(folder: Path) -> None:
    executable = spmd.compile(spmd.parse(PROGRAM.format(size=WORLD.size)), spmd.ProcessGrid(1, WORLD.size))
    whole = np.arange(15, dtype=np.float32).reshape(5, 3)
    (block,) = executable.shard(whole)
    checkpoint.save(folder, 1, [block], executable.in_shardings)
    (restored,) = checkpoint.restore(folder, like=[block], shardings=executable.in_shardings)
    np.testing.assert_array_equal(restored, block)
    np.testing.assert_array_equal(checkpoint.restore(folder)[0], whole)


def test_only_the_chunks_that_are_needed_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors, "CHUNK", 1 << 10)
    whole = np.arange(1 << 14, dtype=np.float64).reshape(64, 256)  # a row is two chunks
    checkpoint.save(folder, 1, [whole])
    read = 0
    plain = os.preadv

    def counting(descriptor: int, buffers: Any, offset: int) -> int:
        nonlocal read
        count = plain(descriptor, buffers, offset)
        read += count
        return count

    monkeypatch.setattr(os, "preadv", counting)
    for index, chunks in [((slice(5, 7), slice(0, 256)), 4), ((slice(0, 64), slice(0, 100)), 64)]:
        read = 0
        (part,) = checkpoint.restore(folder, 1, shardings=[ArrayBlock(whole.shape, index)])
        np.testing.assert_array_equal(part, whole[index])
        assert chunks << 10 <= read < (chunks + 1) << 10


def test_without_waiting_all_ranks_commit_together(folder: Path) -> None:
    mine, shardings = cut_tree(whole_tree(), CUTS, WORLD.rank, WORLD.size)
    for step in (1, 2):
        pending = checkpoint.save(folder, step, mine, shardings, wait=False)
    pending.wait()
    assert (folder / "step-000000000002.json").exists()
    same(checkpoint.restore(folder), whole_tree())
    assert not list(folder.glob("*/receipt*"))


def test_a_rank_alone_may_save(folder: Path) -> None:
    if WORLD.rank == 0:
        checkpoint.save(folder, 1, {"a": np.ones(2)}, communicator=MPI.COMM_SELF)
    WORLD.Barrier()
    assert checkpoint.newest(folder) == 1


def test_what_one_rank_finds_wrong_is_raised_on_all(folder: Path) -> None:
    last = WORLD.rank == WORLD.size - 1
    with pytest.raises(CheckpointError, match="/a is of type object"):
        checkpoint.save(folder, 1, {"a": object() if last else np.ones(2)})
    if WORLD.size > 1:
        with pytest.raises(CheckpointError, match=r"the tree of process .* has another structure"):
            checkpoint.save(folder, 1, {"a": np.ones(2, np.float32 if last else np.float64)})
        with pytest.raises(CheckpointError, match="/a: the blocks of all processes have 2 elements"):
            checkpoint.save(folder, 1, {"a": np.ones(2)}, {"a": ArrayBlock((4,), (slice(0, 2),))})
    with pytest.raises(CheckpointError, match=r"/a must have the shape \(3,\) of its sharding's blocks, got \(2,\)"):
        checkpoint.save(folder, 1, {"a": np.ones(2)}, {"a": ArrayBlock((6,), (slice(0, 3),))})
    with pytest.raises(CheckpointError, match="the shardings have nothing for /a"):
        checkpoint.save(folder, 1, {"a": np.ones(2)}, {"b": None})
    WORLD.Barrier()
    assert not folder.exists() or not list(folder.glob("step*"))


def test_a_write_that_fails_on_one_rank_fails_on_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = os.fsync

    def full(descriptor: int) -> None:
        if WORLD.rank == WORLD.size - 1:
            raise OSError(28, "No space left on device")
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    tree = {str(leaf): np.zeros(10) for leaf in range(8)}
    own = OutputError if WORLD.rank == WORLD.size - 1 else CheckpointError
    with pytest.raises(own, match="No space left") as failed:
        checkpoint.save(folder, 1, tree)
    assert isinstance(failed.value, spmd.SpmdError)
    pending = checkpoint.save(folder, 1, tree, wait=False)
    told = "No space left" if own is OutputError else f"failed: process {WORLD.size - 1}: .*No space left"
    with pytest.raises(own, match=told):
        pending.wait()
    WORLD.Barrier()
    assert not list(folder.glob("step*"))


@pytest.mark.parametrize("what", ["folder", "wait"])
def test_ranks_that_save_elsewhere_or_in_another_way_are_told(folder: Path, what: str) -> None:
    if WORLD.size == 1:
        pytest.skip("there is one rank")
    last = WORLD.rank == WORLD.size - 1
    place, wait = (folder / "other", True) if what == "folder" and last else (folder, not (what == "wait" and last))
    with pytest.raises(CheckpointError, match=r"checkpoint\.save of step 1 to"):
        checkpoint.save(place, 1, {"a": np.ones(2)}, wait=wait)  # type: ignore[call-overload]
    WORLD.Barrier()
    assert not list(folder.glob("step*"))


def test_damage_that_one_rank_meets_sends_all_to_the_one_before(folder: Path) -> None:
    for step in (1, 2):
        checkpoint.save(folder, step, *cut_tree(whole_tree() | {"step": step}, CUTS, WORLD.rank, WORLD.size))
    if WORLD.rank == 0:
        part = sorted(folder.glob("step-000000000002-*/part-*"))[-1]
        content = bytearray(part.read_bytes())
        content[-1] ^= 4
        part.write_bytes(content)
    WORLD.Barrier()
    mine, shardings = cut_tree(whole_tree() | {"step": 1}, CUTS, WORLD.rank, WORLD.size)
    with pytest.raises((CheckpointError, DamagedCheckpointError), match="damaged"):
        checkpoint.restore(folder, 2, shardings=shardings)
    same(checkpoint.restore(folder, shardings=shardings), mine)
    assert checkpoint.newest(folder) == 1


@pytest.mark.parametrize("how", ["full", "removed"])
def test_without_waiting_nobody_waits_for_what_cannot_be_written(folder: Path, how: str) -> None:
    """On a disk that takes no byte, of a receipt neither; and where the folder goes while files are written."""
    tree = {str(leaf): np.zeros(10) for leaf in range(8)}
    last = WORLD.rank == WORLD.size - 1
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    write = safetensors.write
    if how == "full" and last:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))

    def remove_and_write(path: Path, *args: Any, **named: Any) -> Any:
        if last:
            shutil.rmtree(path.parent)
        return write(path, *args, **named)

    with pytest.MonkeyPatch.context() as patch:
        if how == "removed":
            patch.setattr(safetensors, "write", remove_and_write)
        pending = checkpoint.save(folder, 1, tree, wait=False)
        told = f"failed: process {WORLD.size - 1}: .*File too large" if how == "full" and not last else ""
        with pytest.raises((OSError, CheckpointError), match=told):
            pending.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, previous)
    WORLD.Barrier()
    assert not list(folder.glob("step*.json"))
    checkpoint.save(folder, 2, tree)
    assert checkpoint.newest(folder) == 2


needs_others = pytest.mark.skipif(WORLD.size == 1, reason="takes more than one rank")


@needs_others
def test_leaves_that_differ_between_ranks_without_saying_so_are_named(folder: Path) -> None:
    rank, last = WORLD.rank, WORLD.size - 1
    same_ranks = "process 0" if last == 1 else rf"processes {', '.join(map(str, range(last)))}"
    told = rf"/stats/mean must be equal .* different values on {same_ranks}; process {last}\."
    for value in (1.0, -0.0, np.nan):  # by their bits: zeros of both signs are two values
        tree = {"w": np.zeros(3), "stats": {"mean": np.array([2.0, value if rank == last else 0.0])}}
        with pytest.raises(CheckpointError, match=told):
            checkpoint.save(folder, 1, tree)
    with pytest.raises(CheckpointError, match=r"/a must be equal .* \(1 more leaves differ, too\)"):
        checkpoint.save(folder, 1, {"a": np.int8(rank), "b": np.array([rank == last])}, wait=False)
    with pytest.raises(CheckpointError, match=r"another structure, scalar, dtype or shape .*, first at /b/n"):
        checkpoint.save(folder, 1, {"a": 1, "b": {"n": 7 if rank == last else 6}})
    # Blocks of an array that is cut, each on two ranks, or more.
    half = slice(0, 2) if rank % 2 else slice(2, 4)
    if WORLD.size % 2 == 0 and WORLD.size > 2:
        with pytest.raises(CheckpointError, match="/c must be equal"):
            checkpoint.save(folder, 1, {"c": np.full(2, rank)}, {"c": ArrayBlock((4,), (half,))})
    WORLD.Barrier()
    assert not folder.exists() or not list(folder.glob("step*"))


OWN = {
    "all": True, "a name": "/stats", "names": ["stats/mean", "/stats/seed", "stats/empty", "/stats/bits"],
    "a tree": {"stats": True, "w": False},
}  # fmt: skip


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("per_rank", OWN.values(), ids=OWN)
def test_each_rank_gets_back_what_is_its_own(folder: Path, per_rank: Any, wait: bool) -> None:
    rank, size = WORLD.rank, WORLD.size
    own = {"mean": np.array([rank, -rank], ml_dtypes.bfloat16), "seed": 3 + rank, "empty": np.zeros((0, rank * 0 + 2))}
    tree = {"w": np.arange(4.0), "stats": own | {"bits": np.bool_(rank % 2)}, "n": 5}
    saved = checkpoint.save(folder, 1, tree, per_rank=per_rank, wait=wait)  # type: ignore[call-overload]
    if not wait:
        saved.wait()
    for like in (None, tree):
        restored = checkpoint.restore(folder, 1, like=like)
        assert restored["n"] == 5 and restored["stats"]["seed"] == 3 + rank
        same(restored["stats"], tree["stats"])
        same({"w": restored["w"]}, {"w": tree["w"]})
        assert restored["stats"]["mean"].dtype == ml_dtypes.bfloat16
    if size > 1:
        with pytest.raises(CheckpointError, match=rf"saved with per_rank by {size} processes, but restored by 1"):
            checkpoint.restore(folder, 1, communicator=MPI.COMM_SELF)
    assert checkpoint.newest(folder) == 1


def test_any_process_reads_the_array_of_all_ranks(folder: Path) -> None:
    checkpoint.save(folder, 1, [np.arange(2) + WORLD.rank], per_rank=True)
    block = ArrayBlock((WORLD.size, 2), (slice(0, WORLD.size), slice(1, 2)))
    (restored,) = checkpoint.restore(folder, 1, shardings=[block], communicator=MPI.COMM_SELF)
    np.testing.assert_array_equal(restored, 1 + np.arange(WORLD.size)[:, None])


@pytest.mark.parametrize("per_rank", ["nothing", ["/w", "/absent"], {"absent": True}, 3, {"w": 1}, b"w"])
def test_what_names_no_leaf_is_refused(folder: Path, per_rank: Any) -> None:
    with pytest.raises(CheckpointError, match="per_rank"):
        checkpoint.save(folder, 1, {"w": np.zeros(2)}, per_rank=per_rank)
    if WORLD.size > 1:
        with pytest.raises(CheckpointError, match="but its sharding divides"):
            blocks = cut(np.zeros(WORLD.size * 2), 0, WORLD.rank, WORLD.size)
            checkpoint.save(folder, 1, {"w": np.zeros(2)}, {"w": blocks}, per_rank="w")
