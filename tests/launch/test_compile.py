"""``spmd compile``: what it writes is linked into a program of C, which computes what the Executable does."""

import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import spmd
from launch.cli import main
from spmd.ahead import compile_ahead
from tests.loops import counted_loop

cc = shutil.which("cc")
pytestmark = pytest.mark.skipif(cc is None, reason="there is no compiler of C")

#: Reads the arguments end to end from the standard input, and writes the results end to end.
DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include "program.h"
static void *room(size_t size) { return aligned_alloc(64, (size + 64) / 64 * 64); }
int main(void) {
  size_t in[] = {INPUTS}, out[] = {OUTPUTS};
  void *a[8], *r[8];
  for (int i = 0; i < ARGUMENTS; i++) { a[i] = room(in[i]); if (fread(a[i], 1, in[i], stdin) != in[i]) return 1; }
  for (int i = 0; i < RESULTS; i++) r[i] = room(out[i]);
  program(CALL, room(PROGRAM_SCRATCH_BYTES));
  for (int i = 0; i < RESULTS; i++) fwrite(r[i], 1, out[i], stdout);
  return 0;
}
"""


def run_in_c(folder: Path, text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    """The results of the program `text`, run by a program of C that is linked with it."""
    source = folder / "program.mlir"
    source.write_text(text)
    assert main(["compile", str(source), "-o", str(folder / "program.o"), "--header", str(folder / "program.h")]) == 0
    types = [value.tensor for value in spmd.parse(text).function("main").body.terminator.operands]
    sizes = [type.nbytes for type in types]
    driver = DRIVER.replace("INPUTS", ", ".join(str(array.nbytes) for array in inputs))
    driver = driver.replace("OUTPUTS", ", ".join(map(str, sizes)))
    driver = driver.replace("ARGUMENTS", str(len(inputs))).replace("RESULTS", str(len(sizes)))
    pointers = [f"a[{k}]" for k in range(len(inputs))] + [f"r[{k}]" for k in range(len(sizes))]
    (folder / "driver.c").write_text(driver.replace("CALL", ", ".join(pointers)))
    objects = [str(folder / "driver.c"), str(folder / "program.o"), "-o", str(folder / "driver"), "-lm"]
    subprocess.run([str(cc), "-Wall", "-Werror", *objects], check=True, cwd=folder)
    input_bytes = b"".join(np.ascontiguousarray(array).tobytes() for array in inputs)
    done = subprocess.run([str(folder / "driver")], input=input_bytes, check=True, capture_output=True)
    results, start = [], 0
    for type, size in zip(types, sizes, strict=True):
        part = done.stdout[start : start + size]
        results.append(np.frombuffer(part, type.dtype).reshape(type.static_shape))
        start += size
    assert start == len(done.stdout)
    return results


def check(folder: Path, text: str, *inputs: np.ndarray) -> None:
    expected = spmd.compile(spmd.parse(text))(*inputs)
    for mine, other in zip(run_in_c(folder, text, *inputs), expected, strict=True):
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        assert mine.tobytes() == np.asarray(other).tobytes()


HURT = [-np.inf, -3.5, -1e-40, -0.0, 0.0, 1e-40, 0.75, 2.0, np.inf, np.nan]


def test_functions_and_reductions_and_several_results(tmp_path: Path) -> None:
    text = """func.func @main(%x: tensor<7x10xf32>) -> (tensor<7x10xf32>, tensor<7xf32>) {
      %e = stablehlo.exponential %x : tensor<7x10xf32>
      %t = stablehlo.tanh %e : tensor<7x10xf32>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [1] : (tensor<7x10xf32>, tensor<f32>) -> tensor<7xf32>
      return %t, %s : tensor<7x10xf32>, tensor<7xf32>
    }"""  # noqa: E501
    check(tmp_path, text, np.resize(np.array(HURT, np.float32), (7, 10)))


def test_a_loop_and_a_small_product(tmp_path: Path) -> None:
    body = "%u = stablehlo.dot %v, %m : (tensor<3x3xf64>, tensor<3x3xf64>) -> tensor<3x3xf64>"
    text = f"""func.func @main(%m: tensor<3x3xf64>, %n: tensor<i32>) -> tensor<3x3xf64> {{
    {counted_loop("tensor<3x3xf64>", body, start="%m")}
      return %r#1 : tensor<3x3xf64>
    }}"""
    check(tmp_path, text, np.random.default_rng(0).standard_normal((3, 3)), np.array(5, np.int32))


def test_types_that_c_lacks_travel_as_their_bits(tmp_path: Path) -> None:
    text = """func.func @main(%a: tensor<5xbf16>, %b: tensor<5xi1>, %c: tensor<5xi8>)
        -> (tensor<5xbf16>, tensor<5xi8>) {
      %n = stablehlo.negate %a : tensor<5xbf16>
      %s = stablehlo.select %b, %a, %n : tensor<5xi1>, tensor<5xbf16>
      %w = stablehlo.add %c, %c : tensor<5xi8>
      return %s, %w : tensor<5xbf16>, tensor<5xi8>
    }"""
    bits = np.array([0.0, -0.0, 1e-40, np.inf, -2.5]).astype(ml_dtypes.bfloat16)
    flags, small = np.array([True, False, True, False, True]), np.array([-128, 127, 64, -1, 0], np.int8)
    check(tmp_path, text, bits, flags, small)
    header = (tmp_path / "program.h").read_text()
    assert "const uint16_t *arg0, /* tensor<5xbf16> a */" in header
    assert "const bool *arg1" in header
    assert "int8_t *result1" in header


def test_large_constants_are_in_the_object(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(-(2**31), 2**31, (3000,), np.int32)
    text = f"""func.func @main(%x: tensor<3000xi32>) -> tensor<3000xi32> {{
      %c = stablehlo.constant dense<"0x{values.tobytes().hex().upper()}"> : tensor<3000xi32>
      %s = stablehlo.xor %x, %c : tensor<3000xi32>
      return %s : tensor<3000xi32>
    }}"""
    check(tmp_path, text, np.arange(3000, dtype=np.int32))


def test_large_products_ask_for_a_blas(tmp_path: Path) -> None:
    program = tmp_path / "p.mlir"
    program.write_text(
        """func.func @main(%a: tensor<200x200xf32>) -> tensor<200x200xf32> {
          %p = stablehlo.dot %a, %a : (tensor<200x200xf32>, tensor<200x200xf32>) -> tensor<200x200xf32>
          return %p : tensor<200x200xf32>
        }"""
    )
    assert main(["compile", str(program), "-o", str(tmp_path / "p.o")]) == 0
    assert "Link with BLAS and LAPACK of 32-bit integers, for sgemm_," in (tmp_path / "p.h").read_text()
    assert b"sgemm_" in (tmp_path / "p.o").read_bytes()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            '%r = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): '
            "%s = stablehlo.add %a, %b : tensor<f32> stablehlo.return %s : tensor<f32> }) "
            "{replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<4xf32>) -> tensor<4xf32>",
            "stablehlo.all_reduce: it communicates with other processes; an object file contains native code only",
        ),
        (
            "%r = stablehlo.custom_call @MoveToHost(%x) {has_side_effect = true} : (tensor<4xf32>) -> tensor<4xf32>",
            "stablehlo.custom_call: its target must be a C function",
        ),
    ],
)
def test_what_needs_python_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, told: str
) -> None:
    program = tmp_path / "p.mlir"
    program.write_text(f"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\nreturn %r : tensor<4xf32> }}")
    assert main(["compile", str(program), "-o", str(tmp_path / "p.o")]) == 1
    message = capsys.readouterr().err
    assert f"{program}:2:" in message
    assert told in message
    assert not (tmp_path / "p.o").exists()


def test_a_name_must_be_one_of_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "p.mlir"
    program.write_text("func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }")
    assert main(["compile", str(program), "-o", str(tmp_path / "2-p.o"), "--name", "2-p"]) == 2
    assert "and '2-p' is no identifier of C" in capsys.readouterr().err
    assert main(["compile", str(program), "-o", str(tmp_path / "2-p.o")]) == 0
    assert "void _2_p(" in (tmp_path / "2-p.h").read_text()


NEGATE = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.negate %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
INCLUDED = "\n".join(f"#include <{name}.h>" for name in ("math", "stdio", "stdlib", "string", "tgmath"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("stem", ["while", "int", "main", "exp", "bool", "class", "uint8_t", "linux", "2x", "a-b"])
def test_any_name_of_a_file_gives_a_function_that_compilers_take(
    stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"{stem}.mlir").write_text(NEGATE)
    assert main(["compile", f"{stem}.mlir"]) == 0
    told = capsys.readouterr().err
    assert told.startswith("spmd compile: the function is called ") and "--name" in told
    name = told.split()[6].rstrip(",")
    call = f"float a[2], b[2]; char s[{name.upper()}_SCRATCH_BYTES + 1]; {name}(a, b, s); return 0;"
    Path("driver.c").write_text(f'#include "{stem}.h"\n{INCLUDED}\nint main(void) {{ {call} }}\n')
    subprocess.run([str(cc), "driver.c", f"{stem}.o", "-o", "driver", "-lm"], check=True)


@pytest.mark.parametrize("name", ["while", "main", "exp", "a b", "", "class"])
def test_a_name_that_no_function_can_have_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(spmd.UsageError, match="name is what a function of C can be called, and "):
        compile_ahead(spmd.parse(NEGATE), name=name)


@pytest.mark.parametrize(
    ("type", "words"),
    [
        ("tuple<tensor<2xf32>>", "argument 0 must be an array of static shape, but is a tuple, tuple<tensor<2xf32>>"),
        ("tensor<?xf32>", r"argument 0 must be an array of static shape, but is of dynamic shape, tensor<\?xf32>"),
        (
            "tensor<2x!quant.uniform<i8:f32, 0.5>>",
            "argument 0 must be an array of static shape, but is quantized, tensor<2x!quant",
        ),
        ("!stablehlo.token", "argument 0 must be an array of static shape, but is no array, !stablehlo.token"),
    ],
)
def test_types_that_c_does_not_have_are_named(type: str, words: str) -> None:
    module = spmd.parse(f"func.func @main(%x: {type}) -> {type} {{ return %x : {type} }}")
    with pytest.raises(spmd.CompileError, match=words):
        compile_ahead(module, name="f")


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [("2147483648x64", "64x64", "2147483648x64"), ("64x64", "64x2147483648", "64x2147483648")],
)
def test_sizes_beyond_the_integers_of_a_linked_blas_are_refused(lhs: str, rhs: str, result: str) -> None:
    """Any BLAS may be linked; most count in 32 bits, of which 2^31 is a negative number."""
    types = f"(tensor<{lhs}xf32>, tensor<{rhs}xf32>) -> tensor<{result}xf32>"
    text = f"""func.func @main(%x: tensor<{lhs}xf32>, %y: tensor<{rhs}xf32>) -> tensor<{result}xf32> {{
      %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : {types}
      return %r : tensor<{result}xf32>
    }}"""
    with pytest.raises(spmd.CompileError, match=r"large\.mlir:2:12.*2147483648 does not fit the 32-bit integers"):
        compile_ahead(spmd.parse(text, "large.mlir"), name="f")
