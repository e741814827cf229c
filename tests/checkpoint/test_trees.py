"""Trees come back as they were saved, bit for bit, whatever their leaves, names and classes."""

from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spmd import checkpoint
from spmd.checkpoint import CheckpointError, safetensors
from spmd.checkpoint import tree as tree_module
from spmd.checkpoint.per_rank import select
from tests.effort import examples

DTYPES = [np.float32, np.float64, np.int8, np.uint64, np.bool_, np.complex64, np.complex128, np.float16, ">i4", ">f8"]
LOW_PRECISION = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, ml_dtypes.int4, ml_dtypes.uint2]
OTHERS = ["<U3", ">U3", "S2", "M8[s]", "m8[ns]", ">c16"]


@dataclass
class Saved:
    weights: Any
    step: Any
    apply: Any = field(default=None, metadata={"pytree_node": False})
    name: str = field(default="", metadata={"static": True})


Moments = namedtuple("Moments", "mean variance")


def roundtrip(folder: Path, tree: Any, **options: Any) -> Any:
    checkpoint.save(folder, 1, tree)
    return checkpoint.restore(folder, 1, **options)


@settings(max_examples=examples(40))
@given(st.data())
def test_any_array_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    array = data.draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)))
    restored = roundtrip(tmp_path_factory.mktemp("checkpoints"), {"a": array})["a"]
    native = array.astype(dtype.newbyteorder("="))
    assert (restored.dtype, restored.shape, restored.tobytes()) == (native.dtype, native.shape, native.tobytes())
    assert restored.flags.writeable


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_low_precision_types_come_back_as_themselves(tmp_path: Path, dtype: type) -> None:
    array = np.array([[0.5, 1, 2], [2, 1, 0.5]]).astype(dtype)
    restored = roundtrip(tmp_path, array)
    assert restored.dtype == array.dtype
    assert restored.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", OTHERS)
def test_every_dtype_of_numpy_without_objects_is_kept(tmp_path: Path, dtype: str) -> None:
    array = np.array([1, 2, 3]).astype(dtype)
    assert (roundtrip(tmp_path, [array])[0] == array).all()


def test_arrays_that_are_not_contiguous_come_back(tmp_path: Path) -> None:
    array = np.arange(24).reshape(2, 3, 4)
    tree = [array.T, array[:, ::-2], np.broadcast_to(array[0], (5, 3, 4))]
    for restored, leaf in zip(roundtrip(tmp_path, tree), tree, strict=True):
        np.testing.assert_array_equal(restored, leaf)


NAMES = ["allow_pickle", "file", "a\0b", "__metadata__", "", "a/b", "~", "\ud800", "é", "x" * 300, "\n", '"', "..", "1"]


def test_strange_names_are_names(tmp_path: Path) -> None:
    tree: dict[Any, Any] = {name: np.array(index) for index, name in enumerate(NAMES)}
    tree |= {1: np.array(-1), None: np.array(-2), 0.5: np.array(-3), ("a", 1): np.array(-4)}
    tree["a"] = {"b": np.array(-5)}
    assert roundtrip(tmp_path, tree) == tree
    assert list(roundtrip(tmp_path, tree)) == list(tree)


def test_python_s_own_values_come_back_as_themselves(tmp_path: Path) -> None:
    tree = [2**70, -0.0, 1e-320, float("inf"), True, "é\0", b"\xff", 1 - 2j, None, (), [], {}]
    restored = roundtrip(tmp_path, tree)
    assert repr(restored) == repr(tree)
    assert np.isnan(roundtrip(tmp_path, float("nan")))


def test_structure_comes_back_in_the_classes_of_a_tree_like_it(tmp_path: Path) -> None:
    tree = {
        "s": Saved(np.ones(2), 3, print, "x"),
        "m": (Moments(np.zeros(1), None),),
        "p": MappingProxyType({"a": 1}),
    }
    like = {
        "s": Saved(np.zeros(2), 0, len, "y"),
        "m": (Moments(np.zeros(1), None),),
        "p": MappingProxyType({"a": 0}),
    }
    restored = roundtrip(tmp_path, tree, like=like)
    assert type(restored["s"]) is Saved and (restored["s"].step, restored["s"].apply, restored["s"].name) == (
        3,
        len,
        "y",
    )
    np.testing.assert_array_equal(restored["s"].weights, np.ones(2))
    assert type(restored["m"][0]) is Moments and restored["m"][0].variance is None
    assert type(restored["p"]) is MappingProxyType


def test_without_such_a_tree_classes_come_back_by_name_and_field(tmp_path: Path) -> None:
    restored = roundtrip(tmp_path, {"s": Saved(np.ones(2), 3), "m": Moments(1, None)})
    assert (restored["s"].weights.tolist(), restored["s"].step) == ([1, 1], 3)
    assert restored["m"] == (1, None) and type(restored["m"]).__name__ == "Moments"


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"a": np.zeros(3)}, "the tree: the checkpoint has no a and the checkpoint's x, y is not in the tree here"),
        (
            {"x": np.zeros(4), "y": [1]},
            r"/x is float64 of shape \(3,\) in the checkpoint, float64 of shape \(4,\) here",
        ),
        ({"x": np.zeros(3, np.float32), "y": [1]}, "/x is float64 .* float32"),
        ({"x": np.zeros(3), "y": (1,)}, "/y is a list in the checkpoint, a tuple here"),
        ({"x": np.zeros(3), "y": None}, "/y is a list in the checkpoint, None here"),
        ({"x": {}, "y": [1]}, "/x is an array in the checkpoint, a dict here"),
        ([1], "the tree is a dict in the checkpoint, a list here"),
    ],
)
def test_a_tree_that_changed_is_told(tmp_path: Path, like: Any, message: str) -> None:
    checkpoint.save(tmp_path, 1, {"x": np.zeros(3), "y": [1]})
    with pytest.raises(CheckpointError, match=message):
        checkpoint.restore(tmp_path, like=like)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": np.array([object()])}, "/a cannot be saved in a checkpoint: it holds Python objects"),
        ({"a": [print]}, "/a/0 is of type builtin_function_or_method"),
        ({"a": np.zeros(1, [("x", "i4")])}, "/a .* has fields"),
        ({"a": np.ma.masked_array([1, 2], [True, False])}, "/a is a masked array"),
        ({"a": {b"k": 1}}, "/a: a key of type bytes"),
    ],
)
def test_what_cannot_be_kept_is_named(tmp_path: Path, tree: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        checkpoint.save(tmp_path, 1, tree)


def test_others_read_the_files(tmp_path: Path) -> None:
    reader = pytest.importorskip("safetensors.numpy")
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(1.5), "i": np.arange(3, dtype=np.int8)}
    checkpoint.save(tmp_path, 1, arrays | {"u": np.zeros(2, ml_dtypes.int4), "z": np.zeros((0, 3))})
    (part,) = tmp_path.glob("*/*.safetensors")
    tensors = reader.load_file(part)
    for name, array in arrays.items():
        assert tensors[f"/{name}"].dtype == array.dtype
        np.testing.assert_array_equal(tensors[f"/{name}"], array)


def within_itself() -> dict[str, Any]:
    tree: dict[str, Any] = {}
    tree["a"] = [tree]
    return tree


def nested(levels: int) -> list[Any]:
    tree: list[Any] = []
    for _ in range(levels - 1):
        tree = [tree]
    return tree


def nested_key(levels: int) -> tuple[Any, ...]:
    key: tuple[Any, ...] = ()
    for _ in range(levels - 1):
        key = (key,)
    return key


NOT_A_FIELD = type("Odd", (tuple,), {"_fields": ("a-b",)})


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (np.zeros(3, "V4"), "it has the dtype .V4, which has no name"),
        (np.zeros(3, "V0"), "it has the dtype .V0, which has no name"),
        ({"a": NOT_A_FIELD((1,))}, "/a: Python has no named tuple with the fields a-b"),
        ({"a": 10**4300}, "/a: an integer of more than 4300 digits"),
        ({10**4300: 1}, "the tree: an integer of more than 4300 digits"),
        ({"a": {float("nan"): 1}}, "/a: a key that is NaN equals none that is read back"),
        ({nested_key(129): 1}, "the tree: a key nests deeper than 128 levels"),
        ({nested_key(20_000): 1}, "the tree: a key nests deeper than 128 levels"),
        (within_itself(), "is deeper than 128 levels, or contains itself"),
        (nested(129), "is deeper than 128 levels, or contains itself"),
        (nested(20_000), "is deeper than 128 levels, or contains itself"),
    ],
    ids=[
        "V4",
        "V0",
        "fields",
        "integer",
        "key",
        "NaN",
        "129 tuples",
        "20,000 tuples",
        "within itself",
        "129 levels",
        "20,000 levels",
    ],
)
def test_what_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path: Path, tree: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        checkpoint.save(tmp_path, 1, tree)
    assert checkpoint.steps(tmp_path) == []


@pytest.mark.parametrize(
    "options", [{"keep": "2"}, {"keep": True}, {"keep": 0}, {"step": 2**63}, {"step": "1"}, {"wait": "no"}]
)
def test_options_that_are_invalid_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        checkpoint.save(tmp_path, **{"step": 1, "tree": {}, **options})


def test_what_is_just_within_the_limits_comes_back(tmp_path: Path) -> None:
    renamed = namedtuple("renamed", ["a", "def", "_x"], rename=True)
    tree = [nested(127), -(10**4299), renamed(1, 2, 3), {nested_key(128): 1}]
    restored = roundtrip(tmp_path, tree)
    assert restored == tree and type(restored[2])._fields == renamed._fields
    checkpoint.save(tmp_path, 2**63 - 1, tree)
    assert checkpoint.newest(tmp_path) == 2**63 - 1


def test_a_dictionary_with_a_factory_keeps_it(tmp_path: Path) -> None:
    like = defaultdict(list, {"a": np.zeros(2)})
    restored = roundtrip(tmp_path, defaultdict(list, {"a": np.ones(2)}), like=like)
    assert restored["b"] == [] and restored["a"].tolist() == [1, 1] and like["a"].tolist() == [0, 0]


def test_a_name_is_of_a_leaf_and_of_all_below() -> None:
    """Beside names that begin alike: characters before and after the slash."""
    inner = {"b": 1, "": 2, "c": {"d": np.ones(1)}}
    structure, _ = tree_module.flatten({"a": inner, "a-": 3, "a0": 4, "ab": 5, "": inner})
    below_a = {"/a/b", "/a/", "/a/c/d"}
    assert select(structure, "a") == below_a
    assert select(structure, ["a/c", "/a0", "a0"]) == {"/a/c/d", "/a0"}
    assert select(structure, "/") == {"//b", "//", "//c/d"}
    assert select(structure, "") == below_a | {"/a-", "/a0", "/ab", "//b", "//", "//c/d"}


class Doubled(Moments):
    """A named tuple that is not made of its fields."""

    def __new__(cls, value: Any) -> "Doubled":
        return super().__new__(cls, value, value)


def test_classes_that_add_or_are_made_in_another_way_come_back(tmp_path: Path) -> None:
    """`update` of a Counter adds to what it has, and `Doubled` takes one value for two fields."""
    tree = {"counts": Counter("aab"), "moments": Doubled(3), "order": OrderedDict(b=1, a=2)}
    restored = roundtrip(tmp_path, tree, like=tree)
    assert restored == tree and [type(part) for part in restored.values()] == [Counter, Doubled, OrderedDict]


class Labelled(UserDict[str, Any]):
    def __init__(self, entries: dict[str, Any], label: str) -> None:
        super().__init__(entries)
        self.label = label


def test_a_mapping_that_is_not_made_of_its_entries_is_named(tmp_path: Path) -> None:
    tree = Labelled({"a": 1}, "first")
    assert roundtrip(tmp_path, tree) == {"a": 1}
    with pytest.raises(CheckpointError, match=r"no Labelled is made of its entries alone.*label"):
        checkpoint.restore(tmp_path, 1, like=tree)


@settings(max_examples=examples(30))
@given(st.data())
def test_any_part_is_read_through_a_small_window(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Of blocks that are not read as a whole little is in memory at a time, chunk after chunk."""
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    starts = [data.draw(st.integers(0, size - 1)) for size in shape]
    part = tuple(
        slice(start, data.draw(st.integers(start + 1, size))) for start, size in zip(starts, shape, strict=True)
    )
    array = np.arange(np.prod(shape)).astype(data.draw(st.sampled_from(["f8", "i2", "u1", "c16"]))).reshape(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safetensors, "CHUNK", 32)
        patch.setattr(safetensors, "_WINDOW", data.draw(st.sampled_from([16, 48, 1000])))
        restored = roundtrip(tmp_path_factory.mktemp("parts"), array, shardings=checkpoint.ArrayBlock(shape, part))
    np.testing.assert_array_equal(restored, array[part])
