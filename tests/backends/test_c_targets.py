"""Targets of custom calls that are functions of C. Source: XLA operation semantics, "CustomCall"."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spmd
from launch.cli import main
from spmd.ahead import compile_ahead
from spmd.analysis import custom_calls
from spmd.backends.c_targets import C_TARGETS
from spmd.backends.kernels import TARGETS
from spmd.builder import Shape, XlaBuilder
from spmd.dialects.custom_call_targets import REGISTERED
from tests.loops import counted_loop

cc = shutil.which("cc")
pytestmark = pytest.mark.skipif(cc is None, reason="there is no compiler of C")

#: The example of the documents; several results; a tuple; a state that is changed where it lies; nothing in or out.
SOURCE = """
#include <stdint.h>
void myfunc(void* out, void** in) {
  float (*x)[2] = in[0], (*y)[2][3] = in[1], (*z)[3][3] = out;
  for (int i = 0; i < 3; i++) for (int j = 0; j < 3; j++) (*z)[i][j] = (*x)[1] + (*y)[i % 2][j];
}
void twice(void* out, void** in) {
  const float* x = in[0];
  float* doubled = ((void**)out)[0];
  int32_t* count = ((void**)out)[1];
  for (*count = 0; *count < 3; ++*count) doubled[*count] = 2 * x[*count];
}
void swap(void* out, void** in) {
  void **pair = in[0], **made = out, **inner = made[1];
  *(float*)made[0] = *(float*)pair[1];
  *(float*)inner[0] = *(float*)pair[0];
}
void add_to(void* out, void** in) {
  int32_t *state = out, *more = in[1];
  for (int i = 0; i < 2; i++) state[i] += more[i];
}
void rows(void* out, void** in) {
  const double* x = in[0];
  double* y = out;
  for (int i = 0; i < 6; i++) y[i] = 10 * i + x[i];
}
void negate_first(void* out, void** in) { *(float*)((void**)out)[0] = -*(float*)in[0]; }
static int calls;
void tick(void* out, void** in) { calls++; }
void ticks(void* out, void** in) { *(int32_t*)out = calls; }
"""
NAMES = ("myfunc", "twice", "swap", "add_to", "rows", "negate_first", "tick", "ticks")
EVERY = pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",), ("c", "numpy")], ids=lambda names: names[0])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("targets")
    (folder / "targets.c").write_text(SOURCE)
    subprocess.run([str(cc), "-shared", "-fPIC", "targets.c", "-o", "targets.so"], check=True, cwd=folder)
    return folder


@pytest.fixture
def library(built: Path) -> Iterator[ctypes.CDLL]:
    """The functions of SOURCE, registered until the test ends."""
    loaded = ctypes.CDLL(str(built / "targets.so"))
    for name in NAMES:
        spmd.register_custom_call(name, loaded)
    yield loaded
    for name in NAMES:
        custom_calls.declare_registered(name, takes_batch=False)
        REGISTERED.discard(name)
        C_TARGETS.pop(name, None)
        TARGETS.pop(name, None)


def run(text: str, *arrays: Any, backends: tuple[str, ...] = ("llvm", "numpy")) -> tuple[Any, ...]:
    return spmd.compile(spmd.parse(text, name="calls.mlir"), backends=backends)(*arrays)


@EVERY
def test_the_example_of_the_documents(library: ctypes.CDLL, backends: tuple[str, ...]) -> None:
    builder = XlaBuilder("example")
    x = builder.Constant(np.float32([1, 2]))
    y = builder.Constant(np.float32([[10, 20, 30], [40, 50, 60]]))
    computation = builder.build(builder.CustomCall("myfunc", [x, y], Shape("f32[3,3]")))
    (z,) = spmd.compile(computation.to_stablehlo(), backends=backends)()
    np.testing.assert_array_equal(z, [[12, 22, 32], [42, 52, 62], [12, 22, 32]])


@EVERY
def test_several_results_have_an_address_each(library: ctypes.CDLL, backends: tuple[str, ...]) -> None:
    text = """func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>) {
      %d = stablehlo.negate %x : tensor<3xf32>
      %r:2 = stablehlo.custom_call @twice(%d) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>)
      %s = stablehlo.add %r#0, %x : tensor<3xf32>
      return %s, %r#1 : tensor<3xf32>, tensor<i32>
    }"""
    x = np.float32([1, 2, 4])
    for array in (x, np.float32([1, 0, 2, 0, 4, 0])[::2]):
        total, count = run(text, array, backends=backends)
        assert (total.tolist(), int(count)) == ([-1, -2, -4], 3)


def test_tuples_are_addresses_of_their_parts_however_deep(library: ctypes.CDLL) -> None:
    builder = XlaBuilder("tuples")
    parts = [builder.Constant(np.float32(value)) for value in (1, 2)]
    made = builder.CustomCall("swap", [builder.Tuple(parts)], Shape("(f32[], (f32[]))"))
    inner = builder.GetTupleElement(builder.GetTupleElement(made, 1), 0)
    computation = builder.build(builder.Tuple([builder.GetTupleElement(made, 0), inner]))
    results = spmd.compile(computation.to_stablehlo())()
    assert [float(value) for value in results] == [2, 1]
    text = computation.as_hlo_text()
    assert "(f32[], (f32[])) custom-call" in text
    assert [float(value) for value in spmd.compile(spmd.parse(text))()] == [2, 1]


@EVERY
def test_a_tuple_of_one_result_is_a_tuple(library: ctypes.CDLL, backends: tuple[str, ...]) -> None:
    builder = XlaBuilder("one")
    x = builder.Parameter(0, Shape("f32[2]"))
    made = builder.CustomCall("negate_first", [builder.Add(x, x)], Shape("(f32[])"))
    module = builder.build(builder.Neg(builder.GetTupleElement(made, 0))).to_stablehlo()
    assert spmd.compile(module, backends=backends)(np.float32([1, 2]))[0] == 2


@EVERY
def test_an_aliased_result_is_the_operand_in_the_target(library: ctypes.CDLL, backends: tuple[str, ...]) -> None:
    text = """func.func @main(%s: tensor<2xi32>, %m: tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>) {
      %r = stablehlo.custom_call @add_to(%s, %m) {output_operand_aliases = [#stablehlo.output_operand_alias<
        output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]}
        : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
      return %s, %r : tensor<2xi32>, tensor<2xi32>
    }"""
    before, after = run(text, np.int32([1, 2]), np.int32([10, 20]), backends=backends)
    assert (before.tolist(), after.tolist()) == ([1, 2], [11, 22])


@EVERY
def test_arrays_lie_in_the_layouts_of_the_call(library: ctypes.CDLL, backends: tuple[str, ...]) -> None:
    text = """func.func @main(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
      %r = stablehlo.custom_call @rows(%x) {operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
        result_layouts = [dense<[1, 0]> : tensor<2xindex>]} : (tensor<2x3xf64>) -> tensor<2x3xf64>
      return %r : tensor<2x3xf64>
    }"""
    x = np.arange(6.0).reshape(2, 3)
    (y,) = run(text, x, backends=backends)
    np.testing.assert_array_equal(y, (10 * np.arange(6) + x.T.ravel()).reshape(2, 3))


@EVERY
def test_a_target_in_a_loop_and_one_that_gives_nothing(library: ctypes.CDLL, backends: tuple[str, ...]) -> None:
    body = """%d:2 = stablehlo.custom_call @twice(%v) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>)
      stablehlo.custom_call @tick() {has_side_effect = true} : () -> ()
      %u = stablehlo.add %d#0, %v : tensor<3xf32>"""
    text = f"""func.func @main(%x: tensor<3xf32>, %n: tensor<i32>) -> tensor<3xf32> {{
      {counted_loop("tensor<3xf32>", body)}
      return %r#1 : tensor<3xf32>
    }}"""
    before = _ticks(library)
    (x,) = run(text, np.float32([1, 2, 3]), np.int32(4), backends=backends)
    assert x.tolist() == [81, 162, 243]
    assert _ticks(library) - before == 4


def _ticks(library: ctypes.CDLL) -> int:
    count = ctypes.c_int32()
    library.ticks(ctypes.byref(count), None)
    return count.value


def test_native_code_calls_it_without_python(library: ctypes.CDLL) -> None:
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %r:2 = stablehlo.custom_call @twice(%x) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>)
      return %r#0 : tensor<3xf32>
    }"""
    compiled = spmd.compile(spmd.parse(text), backends=("llvm",))
    assert compiled(np.ones(3, np.float32))[0].tolist() == [2, 2, 2]


def test_processes_of_a_grid_and_simulated_ones_call_it_each(library: ctypes.CDLL) -> None:
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %p = stablehlo.replica_id : tensor<ui32>
      %q = stablehlo.convert %p : (tensor<ui32>) -> tensor<f32>
      %b = stablehlo.broadcast_in_dim %q, dims = [] : (tensor<f32>) -> tensor<3xf32>
      %s = stablehlo.add %x, %b : tensor<3xf32>
      %r:2 = stablehlo.custom_call @twice(%s) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>)
      return %r#0 : tensor<3xf32>
    }"""
    module, grid, x = spmd.parse(text), spmd.ProcessGrid(4, 1), np.float32([0, 1, 2])
    want = [2 * (x + rank) for rank in range(4)]
    np.testing.assert_array_equal([r for (r,) in spmd.run_parallel(module, grid, [(x,)] * 4)], want)
    np.testing.assert_array_equal(spmd.simulate(module, grid)(x[None])[0], want)


@EVERY
def test_what_is_registered_last_is_called(library: ctypes.CDLL, backends: tuple[str, ...]) -> None:
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %r:2 = stablehlo.custom_call @twice(%x) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>)
      return %r#0 : tensor<3xf32>
    }"""
    x, addresses = np.float32([1, 2, 4]), ctypes.POINTER(ctypes.c_void_p)

    @ctypes.CFUNCTYPE(None, addresses, addresses)
    def negative(out: Any, given: Any) -> None:
        source, target = (ctypes.cast(pointer[0], ctypes.POINTER(ctypes.c_float)) for pointer in (given, out))
        for place in range(3):
            target[place] = -source[place]

    first = spmd.compile(spmd.parse(text), backends=backends)
    spmd.register_custom_call("twice", negative)
    second = spmd.compile(spmd.parse(text), backends=backends)
    spmd.register_custom_call("twice", lambda x, attributes: (x + 1, np.int32(0)))
    third = spmd.compile(spmd.parse(text), backends=backends)
    del negative
    assert [program(x)[0].tolist() for program in (first, second, third)] == [[2, 4, 8], [-1, -2, -4], [2, 3, 5]]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (ctypes.CDLL(None), r"has no symbol 'tests\.c': a target is declared extern \"C\" void tests\.c\(void\* out, "),
        (ctypes.PyDLL(None), r"ctypes\.PyDLL is for: use ctypes\.CDLL"),
        (ctypes.pythonapi.Py_IncRef, r"ctypes\.PyDLL is for: use ctypes\.CDLL"),
        (ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(0), "null pointer"),
    ],
)  # fmt: skip
def test_what_is_no_target_of_c_is_refused(function: Any, message: str) -> None:
    with pytest.raises(spmd.UsageError, match=message):
        spmd.register_custom_call("tests.c", function)


def test_a_function_of_other_parameters_and_a_batch_are_refused(built: Path) -> None:
    function = ctypes.CDLL(str(built / "targets.so")).twice
    with pytest.raises(spmd.UsageError, match="takes_batch requires a Python function"):
        spmd.register_custom_call("tests.c", function, takes_batch=True)
    function.argtypes = [ctypes.c_void_p] * 3
    with pytest.raises(spmd.UsageError, match=r"void tests\.c\(void\* out, void\*\* in\), got 3 argtypes"):
        spmd.register_custom_call("tests.c", function)


@EVERY
def test_a_call_of_another_version_is_refused_with_its_line(library: ctypes.CDLL, backends: tuple[str, ...]) -> None:
    text = """func.func @main(%x: tensor<6xf64>) -> tensor<6xf64> {
      %r = stablehlo.custom_call @rows(%x) {api_version = 4 : i32, backend_config = {}} : (tensor<6xf64>) -> tensor<6xf64>
      return %r : tensor<6xf64>
    }"""  # noqa: E501
    with pytest.raises(spmd.CompileError, match=r"calls\.mlir:2:12.*'rows' is a function of C.*got api_version = 4"):
        run(text, np.zeros(6), backends=backends)


AHEAD = """func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>) {{
  %d = stablehlo.negate %x : tensor<3xf32>
  %r:2 = stablehlo.custom_call @{target}(%d) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<i32>)
  return %r#0, %r#1 : tensor<3xf32>, tensor<i32>
}}"""
DRIVER = """
#include <stdio.h>
#include <stdint.h>
void program(const float *, float *, int32_t *, void *);
int main(void) {
  static _Alignas(64) char room[4096];
  float x[] = {1, 2, 4}, y[3];
  int32_t n;
  program(x, y, &n, room);
  printf("%g %g %g %d", y[0], y[1], y[2], n);
  return 0;
}
"""


@pytest.mark.parametrize("emit", ["object", "c"])
def test_a_compiled_program_calls_the_symbol_registered_or_not(
    emit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPMD_BACKENDS", raising=False)  # NumPy's back end compiles no files
    source, made = tmp_path / "program.mlir", tmp_path / ("program.o" if emit == "object" else "program.c")
    source.write_text(AHEAD.format(target="twice"))
    assert main(["compile", str(source), "--emit", emit, "-o", str(made)]) == 0
    (tmp_path / "driver.c").write_text(DRIVER)
    (tmp_path / "targets.c").write_text(SOURCE)
    files = ["driver.c", "targets.c", made.name, "-o", "driver", "-lm"]
    subprocess.run([str(cc), "-std=c11", *files], check=True, cwd=tmp_path)
    done = subprocess.run([str(tmp_path / "driver")], check=True, capture_output=True, text=True)
    assert done.stdout == "-2 -4 -8 3"
    if emit == "object":
        header = (tmp_path / "program.h").read_text()
        assert "Link with the custom call's target void twice(void* out, void** in)." in header


@pytest.mark.parametrize(
    ("target", "reason"),
    [("my.target", "no identifier of C"), ("free", "a name of C's library"), ("program", "the function's own name")],
)
@pytest.mark.parametrize("backends", [("llvm",), ("c",)])
def test_a_target_that_no_linker_finds_is_refused(target: str, reason: str, backends: tuple[str, ...]) -> None:
    module = spmd.parse(AHEAD.format(target=target), name="calls.mlir")
    with pytest.raises(spmd.CompileError, match=rf"calls\.mlir:3:10.*'{target}' is {reason}"):
        compile_ahead(module, name="program", backends=(*backends, "numpy"))


def test_a_function_of_python_is_not_left_to_the_linker() -> None:
    spmd.register_custom_call("tests.python", lambda x, attributes: (x, np.int32(0)))
    with pytest.raises(spmd.CompileError, match="its target must be a C function"):
        compile_ahead(spmd.parse(AHEAD.format(target="tests.python")), name="program", backends=("llvm", "numpy"))
