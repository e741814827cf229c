"""Programs kept on disk: what is found again runs as it was compiled, in its own places; what differs is not found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spmd
from spmd.compiler.pipeline import cache_key, lower
from spmd.compiler.pipeline.cache_key import source_files
from spmd.compiler.pipeline.options import default_backends

if "llvm" not in default_backends():
    pytest.skip("native code alone is kept", allow_module_level=True)

#: By name: a program and its arguments. Native as a whole; with ops that Python runs; with donated memory.
PROGRAMS: dict[str, tuple[str, Callable[[], list[Any]]]] = {
    "native": (
        """
func.func @main(%x: tensor<4x600xf32>, %n: tensor<i32>) -> (tensor<4x600xf32>, tensor<f32>, tensor<4x600xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %c = stablehlo.iota dim = 1 : tensor<4x600xf32>
  %i, %s = stablehlo.while(%k = %n, %y = %x) : tensor<i32>, tensor<4x600xf32>
   cond {
    %done = stablehlo.compare LT, %k, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %done : tensor<i1>
  } do {
    %z = stablehlo.sine %y : tensor<4x600xf32>
    %m = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %m, %z : tensor<i32>, tensor<4x600xf32>
  }
  %t = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [0, 1] :
    (tensor<4x600xf32>, tensor<f32>) -> tensor<f32>
  %r = stablehlo.multiply %s, %c : tensor<4x600xf32>
  return %r, %t, %x : tensor<4x600xf32>, tensor<f32>, tensor<4x600xf32>
}""",
        lambda: [np.linspace(-3, 3, 2400, dtype=np.float32).reshape(4, 600), np.int32(-3)],
    ),
    "called": (
        """
func.func @main(%x: tensor<64xcomplex<f32>>, %k: tensor<64xi32>) -> (tensor<64xf32>, tensor<64xi32>) {
  %w = stablehlo.constant dense<[7, 1]> : tensor<2xi32>
  %f = stablehlo.fft %x, type = FFT, length = [64] : (tensor<64xcomplex<f32>>) -> tensor<64xcomplex<f32>>
  %a = stablehlo.abs %f : (tensor<64xcomplex<f32>>) -> tensor<64xf32>
  %v = stablehlo.slice %w [0:1] : (tensor<2xi32>) -> tensor<1xi32>
  %u = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<1xi32>) -> tensor<64xi32>
  %b = "stablehlo.sort"(%k) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%p: tensor<i32>, %q: tensor<i32>):
      %seven = stablehlo.constant dense<7> : tensor<i32>
      %l = stablehlo.remainder %p, %seven : tensor<i32>
      %m = stablehlo.remainder %q, %seven : tensor<i32>
      %o = stablehlo.compare LT, %l, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %o : tensor<i1>
  }) : (tensor<64xi32>) -> tensor<64xi32>
  %r = stablehlo.add %b, %u : tensor<64xi32>
  return %a, %r : tensor<64xf32>, tensor<64xi32>
}""",
        lambda: [np.exp(1j * np.arange(64)).astype(np.complex64), np.arange(64, dtype=np.int32)[::-1]],
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPMD_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of functions that were compiled, and not found."""
    names: list[str] = []
    run_passes = lower.run_passes

    def told(module: Any, function: Any, context: Any) -> Any:
        names.append(function.symbol)
        return run_passes(module, function, context)

    monkeypatch.setattr(lower, "run_passes", told)
    return names


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", [{}, {"donate": (0,)}, {"threads": 2}], ids=str)
def test_what_is_found_runs_as_what_was_compiled(name: str, options: dict[str, Any], compiled: list[str]) -> None:
    text, arguments = PROGRAMS[name]
    first = spmd.compile(spmd.parse(text), **options)
    again = spmd.compile(spmd.parse(text), **options)
    assert compiled == ["main"]
    for one, other in zip(first(*arguments()), again(*arguments()), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    kept = arguments()
    result = again(*kept)[-1]
    assert not np.shares_memory(result, kept[0]) or "donate" in options


def test_processes_that_find_their_program_still_communicate(compiled: list[str]) -> None:
    text = """
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = stablehlo.negate %x : tensor<3xf32>
  %r = "stablehlo.all_reduce"(%y) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) : (tensor<3xf32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}"""
    inputs = [[np.array([1, 2, 3], np.float32)], [np.array([10, 20, 30], np.float32)]]
    for _ in range(2):
        for (result,) in spmd.run_parallel(spmd.parse(text), spmd.ProcessGrid(2, 1), inputs):
            np.testing.assert_array_equal(result, [-11, -22, -33])
    assert compiled == ["main"]


SOME = """
func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {{
  %c = {c}
  %r = {op} %x, %c : tensor<5xf32>
  return %r : tensor<5xf32>
}}"""
CONSTANT = "stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, {last}]> : tensor<5xf32>"


def test_what_differs_is_compiled(compiled: list[str]) -> None:
    one = CONSTANT.format(last="5.0")
    texts = [
        SOME.format(c=one, op="stablehlo.add"),
        SOME.format(c=one, op="stablehlo.subtract"),
        SOME.format(c=CONSTANT.format(last="6.0"), op="stablehlo.add"),
        SOME.format(c="stablehlo.constant dense<1.0> : tensor<5xf32>", op="stablehlo.add"),
        SOME.format(c="stablehlo.constant dense<-1.0> : tensor<5xf32>", op="stablehlo.add"),
    ]
    x = np.zeros(5, np.float32)
    results = [spmd.compile(spmd.parse(text))(x)[0].tolist() for text in texts]
    assert len(compiled) == len(texts)
    assert results == [[1, 2, 3, 4, 5], [-1, -2, -3, -4, -5], [1, 2, 3, 4, 6], [1] * 5, [-1] * 5]
    spmd.compile(spmd.parse(texts[0]), donate=(0,))
    spmd.compile(spmd.parse(texts[0]), spmd.ProcessGrid(2, 1))
    assert len(compiled) == len(texts) + 2
    spmd.compile(spmd.parse(f"// elsewhere\n\n{texts[0]}", name="other.mlir"))
    assert len(compiled) == len(texts) + 2


def test_an_error_names_the_place_in_the_program_at_hand() -> None:
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = stablehlo.sine %x : tensor<3xf32>
  %r = stablehlo.custom_call @tests.refuses(%y) : (tensor<3xf32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}"""

    def refuse(x: Any, attributes: Any) -> Any:
        raise ValueError("not today")

    spmd.register_custom_call("tests.refuses", refuse)
    for name, before, line in (("one.mlir", "", 3), ("two.mlir", "// two lines\n\n", 5)):
        executable = spmd.compile(spmd.parse(before + text, name=name))
        with pytest.raises(spmd.ExecutionError, match="not today") as caught:
            executable(np.ones(3, np.float32))
        assert f"{name}:{line}:" in str(caught.value)
        assert "stablehlo.custom_call @tests.refuses(%y)" in str(caught.value)


def test_a_damaged_entry_is_none(folder: Path, compiled: list[str]) -> None:
    text, arguments = PROGRAMS["native"]
    first = spmd.compile(spmd.parse(text))(*arguments())
    for entry in folder.iterdir():
        data = entry.read_bytes()
        entry.write_bytes(data[:-9] + b"\0" + data[-8:])
    again = spmd.compile(spmd.parse(text))(*arguments())
    assert compiled == ["main", "main"]
    assert [one.tobytes() for one in first] == [other.tobytes() for other in again]


def test_large_constants_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    monkeypatch.setattr(cache_key, "_MOST_CONSTANTS", 16)
    for last, times in (("5.0", 2), ("1.0", 2)):
        text = SOME.format(c=CONSTANT.format(last=last), op="stablehlo.add")
        compiled.clear()
        for _ in range(2):
            spmd.compile(spmd.parse(text))
        assert len(compiled) == times
    compiled.clear()
    for _ in range(2):  # a splat is one element
        spmd.compile(spmd.parse(SOME.format(c="stablehlo.constant dense<1.0> : tensor<5xf32>", op="stablehlo.add")))
    assert len(compiled) == 1


def test_nothing_is_kept_for_who_watches(folder: Path, compiled: list[str]) -> None:
    text, _ = PROGRAMS["native"]
    spmd.compile(spmd.parse(text))
    spmd.compile(spmd.parse(text), watch=lambda unit, run: run())
    assert compiled == ["main", "main"]


def test_a_changed_source_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "inner" / "pass.py"
    source.parent.mkdir()
    source.write_text("one = 1\n")
    before = set(source_files(tmp_path))
    source.write_text("one = 11\n")
    assert len(before) == 1 and before.isdisjoint(source_files(tmp_path))
