"""Values and vectors that are kept to be used again are used where they stand before: LLVM takes what is written."""

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from spmd.backends.llvm import native_region
from spmd.backends.llvm.emit.math_library import function_text
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.jit import jit
from spmd.backends.llvm.jit.processor import chosen
from spmd.compiler.pipeline.lower import ModuleLowering
from spmd.compiler.pipeline.options import chosen_options
from spmd.compiler.schedule.schedule import NativeRegion
from spmd.errors import InternalError
from spmd.types import ELEMENT_TYPES
from tests.backends.llvm.harness import values_of
from tests.backends.llvm.moved import ELEMENTS, MOVES, Moved, moved_program
from tests.backends.together import Cases, Program, for_numpy, together
from tests.effort import FULL, profile

#: Programs of each element type: 20,000 in all in a full run.
DRAWS = 770 if profile() == FULL else 4
#: Functions out of line that were verified.
_verified: set[object] = set()


def verify_native_code(text: str) -> None:
    """Verify what is written for the native regions of a program, and make no code of it."""
    module = spmd.parse(text)
    spmd.verify(module)
    lowering = ModuleLowering(module, chosen_options(spmd.ProcessGrid(1, 1), {"backends": ("llvm", "numpy")}))
    flat = lowering.flatten(module.function("main"))
    for part in lowering.schedule(flat.body, check_memory=True).entries:
        if isinstance(part, NativeRegion):
            writer, written = native_region.write_region(part, pytest.fail, clocked=False)
            jit.verify(written, part.target.processor)
            for callee in writer.text.callees.values():
                if callee not in _verified:
                    jit.verify(function_text(callee), part.target.processor)
                    _verified.add(callee)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@settings(max_examples=DRAWS)
@given(seed=st.integers(0, 2**63))
def test_what_moves_elements_is_code_that_llvm_takes(element, seed) -> None:
    verify_native_code(moved_program(random.Random(seed), element))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@together
def test_what_moves_elements_is_what_numpy_gives(element) -> Cases:
    """Each with the bits of the other back end: nothing of a vector kept for another place is used."""
    text, arrays = [], []
    for seed in range(2):
        program = Moved(random.Random(seed), element, MOVES)
        program.grow(8)
        text.append(program.text())
        rng = np.random.default_rng(seed)
        arrays.append([values_of(element, rng, 400).repeat(75)[: np.prod(shape)].reshape(shape)
                       for shape, _ in program.arguments])  # fmt: skip
    cases = list(zip(text, arrays, strict=True))
    results = yield [*(Program(*case) for case in cases), *(for_numpy(text, *arrays) for text, arrays in cases)]
    for native, plain in zip(results[: len(cases)], results[len(cases) :], strict=True):
        for mine, other in zip(native, plain, strict=True):
            np.testing.assert_array_equal(mine.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i8", "ui16", "complex<f32>"])
@pytest.mark.parametrize("columns", [2, 3, 4, 5, 8])
@together
def test_differences_of_all_pairs_of_a_row(element: str, columns: int) -> Cases:
    """v[:, None, :] - v[:, :, None]: both read a row's elements, one of them where the inner loop stands."""
    few, many = f"tensor<20x{columns}x{element}>", f"tensor<20x{columns}x{columns}x{element}>"
    text = f"""func.func @main(%v: {few}) -> {many} {{
      %0 = stablehlo.broadcast_in_dim %v, dims = [0, 2] : ({few}) -> {many}
      %1 = stablehlo.broadcast_in_dim %v, dims = [0, 1] : ({few}) -> {many}
      %2 = stablehlo.subtract %0, %1 : {many}
      return %2 : {many}
    }}"""
    v = np.random.default_rng(0).integers(0, 99, (20, columns)).astype(ELEMENT_TYPES[element].dtype)
    ((got,),) = yield [Program(text, [v])]
    np.testing.assert_array_equal(got, v[:, None, :] - v[:, :, None])


def test_what_is_kept_further_in_is_not_found_further_out() -> None:
    text = FunctionText()
    with text.scope() as outer, text.scope() as inner:
        text.keep("key", "%inner", inner)
        assert text.find("key") == text.find("key", inner) == "%inner"
        assert text.find("key", outer) is None
        text.keep("key", "%outer", outer)
        assert text.find("key", outer) == "%outer" and text.find("key") == "%inner"


def test_what_one_branch_keeps_is_not_found_in_the_other() -> None:
    text, found = FunctionText(), []
    text.either("%c", lambda: text.keep("key", "%v", text.depth - 1), lambda: found.append(text.find("key")))
    assert found == [None]


NEGATE = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  %1 = stablehlo.multiply %0, %x : tensor<4xf32>
  return %1 : tensor<4xf32>
}"""


def test_code_that_llvm_does_not_take_is_told_with_op_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = native_region.RegionEmitter.finish
    broken = lambda self, **how: finish(self, **how).replace("ret void", "ret i32 0", 1)  # noqa: E731
    monkeypatch.setattr(native_region.RegionEmitter, "finish", broken)
    said = r"(?s)mlir:2:8: stablehlo.negate: LLVM rejects .*with stablehlo.multiply at .*:3:8\n.*a fault of spmd"
    with pytest.raises(InternalError, match=said):
        spmd.compile(spmd.parse(NEGATE, "negate.mlir"), backends=("llvm", "numpy"))


@pytest.mark.parametrize("wanted", ["1", "0"])
def test_what_is_kept_is_verified_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    text = "define i32 @f() {\n  ret i32 77\n}"
    jit.compile_object(text)
    verified: list[str] = []
    monkeypatch.setattr(jit, "verify", lambda text, processor: verified.append(text))
    monkeypatch.setenv(jit.CHECK_VARIABLE, wanted)
    jit.compile_together([text], chosen())
    assert verified == ([text] if wanted == "1" else [])


def test_the_texts_of_llvm_errors_are_whole() -> None:
    with pytest.raises(InternalError, match=re.escape("rejects the native code: ")):
        jit.verify("define nothing", chosen())
