"""Checkpoints: what was saved is read back bit for bit; what is not whole is never taken for a checkpoint."""

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spmd.runtime import checkpoint
from spmd.runtime.checkpoint import Checkpoint

DTYPES = [np.float32, np.float64, np.int8, np.uint64, np.bool_, np.complex64, np.float16]
LOW_PRECISION = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint2]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_array_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    array = data.draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)))
    path = checkpoint.save(tmp_path_factory.mktemp("checkpoints"), Checkpoint(3, {"a": array}))
    restored = checkpoint.load(path).arrays["a"]
    assert (restored.dtype, restored.shape, restored.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_low_precision_types_come_back_as_themselves(tmp_path: Path, dtype: type) -> None:
    array = np.array([[0, 1, 2], [3, 1, 0]]).astype(dtype)
    restored = checkpoint.load(checkpoint.save(tmp_path, Checkpoint(0, {"a": array}))).arrays["a"]
    assert restored.dtype == array.dtype
    assert restored.tobytes() == array.tobytes()


def test_metadata_and_order_of_arrays_come_back(tmp_path: Path) -> None:
    arrays = {name: np.full(2, index) for index, name in enumerate("zab")}
    found = checkpoint.load(checkpoint.save(tmp_path, Checkpoint(7, arrays, {"seed": 1, "note": "é"})))
    assert (found.step, list(found.arrays), found.metadata) == (7, ["z", "a", "b"], {"seed": 1, "note": "é"})


def test_newest_is_by_step_and_only_the_last_are_kept(tmp_path: Path) -> None:
    for step in (5, 20, 100):
        checkpoint.save(tmp_path, Checkpoint(step, {"a": np.array(step)}), keep=2)
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.step == 100
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9, 0.999])
def test_a_torn_file_is_passed_over_for_the_one_before(tmp_path: Path, fraction: float) -> None:
    checkpoint.save(tmp_path, Checkpoint(1, {"a": np.arange(1000)}))
    torn = checkpoint.save(tmp_path, Checkpoint(2, {"a": np.arange(1000)}))
    os.truncate(torn, int(torn.stat().st_size * fraction))
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.step == 1
    with pytest.raises(ValueError, match="not a whole checkpoint"):
        checkpoint.load(torn)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, Checkpoint(1, {"a": np.zeros(10_000, np.uint8)}))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert checkpoint.newest(tmp_path) is None


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, Checkpoint(1, {"a": np.zeros(3)}))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, Checkpoint(2, {"a": np.zeros(3)}))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000001.npz"]


def test_no_folder_holds_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path / "absent") is None


def test_python_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a' holds Python objects"):
        checkpoint.save(tmp_path, Checkpoint(1, {"a": np.array([object()])}))
