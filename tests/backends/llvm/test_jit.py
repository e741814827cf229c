"""LLVM's text becomes code that this process calls."""

import ctypes
import gc
import math
import re
import subprocess
import sys
import threading
import weakref
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import spmd
from spmd.backends.llvm.emit.text import FunctionText
from spmd.backends.llvm.jit import jit
from spmd.backends.llvm.jit.jit import Library, compile_ir, compile_object, load_object, once_per_process
from spmd.backends.llvm.jit.processor import host, target_machine
from spmd.support.processor import Processor
from tests.clocks import until

SQUARE = """
define <16 x float> @square(<16 x float> %x) {
  %y = fmul <16 x float> %x, %x
  ret <16 x float> %y
}
"""
LOOP = """
declare <16 x float> @square(<16 x float>)
define void @squares(ptr %p, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %q = getelementptr float, ptr %p, i64 %i
  %v = load <16 x float>, ptr %q, align 4
  %w = call <16 x float> @square(<16 x float> %v)
  store <16 x float> %w, ptr %q, align 4
  %next = add i64 %i, 16
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def test_a_library_calls_what_another_one_holds() -> None:
    square = compile_ir(SQUARE, {})
    loop = compile_ir(LOOP, {"square": square.address("square")}, uses=[square])
    values = np.arange(48, dtype=np.float32)
    expected = values * values
    del square
    gc.collect()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loop.address("squares"))(values.ctypes.data, 48)
    assert values.tobytes() == expected.tobytes()


def test_functions_of_the_c_library_are_found() -> None:
    library = compile_ir(
        "define double @f(double %x, double %y) { %r = frem double %x, %y\n ret double %r }",
        {},
    )
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(library.address("f"))
    assert function(-7.5, 2.0) == math.fmod(-7.5, 2.0)


def test_code_that_only_calls_is_not_optimized() -> None:
    text = FunctionText()
    for _ in range(2):
        text.open_loop()
    text.call("call void @long()")
    for _ in range(2):
        text.close_loop(3)
    assert text.only_calls
    text.open_loop()
    text.line("call void @short()")
    text.close_loop(3)
    assert not text.only_calls
    text = FunctionText()
    text.call("call void @long(<2 x float> zeroinitializer)")
    assert not text.only_calls


def test_a_sum_of_a_product_rounds_twice() -> None:
    text = "define double @f(double %x) { %p = fmul double %x, %x\n %s = fsub double %p, 1.0\n ret double %s }"
    library = compile_ir(text, {})
    x = 1 + 2.0**-30
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library.address("f"))(x) == x * x - 1 == 2.0**-29


def test_a_symbol_that_is_nowhere_is_told_of() -> None:
    with pytest.raises(KeyError, match="absent"):
        compile_ir(SQUARE, {}).address("absent")
    with pytest.raises(RuntimeError, match="symbols"):
        compile_ir("declare void @nowhere()\ndefine void @f() { call void @nowhere()\n ret void }", {})


def test_a_text_that_is_no_module_is_refused() -> None:
    with pytest.raises(RuntimeError, match="expected"):
        compile_object("define nothing")


def test_vectors_are_as_wide_as_registers() -> None:
    assert host().vector_bits in (128, 256, 512)


def test_there_is_one_library_whichever_threads_ask_first() -> None:
    """One that nobody keeps is unloaded, under who has its addresses."""
    made: list[Library] = []
    came: list[None] = []

    def make() -> Library:
        until(lambda: len(came) == 4)
        made.append(compile_ir("define i32 @f() {\n  ret i32 1\n}", {}))
        return made[-1]

    library = once_per_process(make)
    got: list[Library] = []

    def ask() -> None:
        came.append(None)
        got.append(library())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and got == made * 4


def test_a_process_that_compiled_ends_well() -> None:
    program = f"from spmd.backends.llvm.jit.jit import compile_ir; kept = compile_ir({SQUARE!r}, {{}})"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_registers_that_are_put_aside_lie_on_their_own_cache_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that live across calls are kept on the stack, which the caller aligns to 16 bytes alone."""
    texts = []

    def kept(text: str, processor: Processor) -> Any:
        texts.append(text)
        return compile_object(text, processor)

    monkeypatch.setattr("spmd.backends.llvm.native_region.compile_object", kept)
    lines = ["%0 = stablehlo.exponential %x", "%1 = stablehlo.tanh %x", "%2 = stablehlo.multiply %0, %1"]
    lines += ["%3 = stablehlo.log %x", "%4 = stablehlo.add %2, %3"]
    body = "\n".join(f"{line} : tensor<4096xf32>" for line in lines)
    head = "func.func @main(%x: tensor<4096xf32>) -> tensor<4096xf32>"
    spmd.compile(spmd.parse(f"{head} {{\n{body}\nreturn %4 : tensor<4096xf32> }}"))
    module = llvm.parse_assembly(texts[0])
    assembly = target_machine(host()).emit_assembly(module)
    stack = [line for line in assembly.splitlines() if re.search(r"vmov\w+\s.*\(%rsp\)|mov[au]ps\s.*\(%rsp\)", line)]
    assert not [line for line in stack if re.search(r"vmovu\w+\s.*[yz]mm", line)]
    if host().vector_bits == 512:
        assert [line for line in stack if "vmovaps" in line and "zmm" in line]


def test_nothing_of_libraries_that_were_unloaded_stays() -> None:
    """LLVM keeps something of every library as long as the session that it was loaded in."""
    code = compile_object("define i64 @f(i64 %x) {\n  ret i64 %x\n}\n")
    sessions = []
    for _ in range(200):
        library = load_object(code, {})
        sessions.append(weakref.ref(library._session))
    gc.collect()
    assert library.address("f")
    assert len({id(session()) for session in sessions if session() is not None}) <= 2


def test_a_module_leaves_no_types_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one context LLVM would rename the second module's type, and keep the first one's forever."""
    text = "%pair = type { i64, i64 }\ndefine void @f(ptr %p) {\n  store %pair zeroinitializer, ptr %p\n  ret void\n}\n"
    found: list[str] = []
    monkeypatch.setattr(jit, "_simplify", lambda module, machine: found.append(str(module)))
    for _ in range(2):
        jit.compile_module(text, host())
    assert found[0] == found[1]
