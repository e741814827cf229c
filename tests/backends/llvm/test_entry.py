"""Calling native functions: what they take as it is, and what is brought into form first."""

import ctypes
import gc
import threading

import numpy as np

import spmd
from spmd.backends.llvm.jit.entry import python_function
from spmd.backends.llvm.jit.jit import compile_ir

TEXT = """func.func @main(%x: tensor<3x4xf32>, %s: tensor<f32>) -> tensor<3x4xf32> {
  %0 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<3x4xf32>
  %1 = stablehlo.multiply %x, %0 : tensor<3x4xf32>
  return %1 : tensor<3x4xf32>
}"""


def test_arrays_of_any_layout_and_scalars() -> None:
    executable = spmd.compile(spmd.parse(TEXT))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    wide = np.zeros((3, 8), np.float32)
    wide[:, ::2] = x
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 4)
    read_only = x.copy()
    read_only.flags.writeable = False
    for x_of_layout in (x, np.asfortranarray(x), wide[:, ::2], x[::-1][::-1], unaligned, read_only):
        for scalar in (np.float32(2), 2.0, np.asarray(2, np.float32)):
            (got,) = executable(x_of_layout, scalar)
            np.testing.assert_array_equal(got, 2 * x)


def test_threads_share_a_native_function() -> None:
    executable = spmd.compile(spmd.parse(TEXT))
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full((3, 4), number, np.float32)
        outcomes = [(executable(x, np.float32(3))[0] == 3 * number).all() for _ in range(200)]
        if not all(outcomes):
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_a_function_is_told_lives_as_long_as_it_in_a_cycle_too() -> None:
    """CPython reads a function's definition when it ends the function, after the cycle's attributes are gone."""
    library = compile_ir("define void @nothing(ptr %addresses) {\n  ret void\n}", {})
    for _ in range(200):
        cycle: list[object] = [library]
        function = python_function(library.address("nothing"), 0, "nothing", cycle)
        cycle.append(function)
        del function, cycle
        gc.collect(0)
    gc.collect()


def test_other_numbers_of_arrays_are_declined() -> None:
    """And whatever else is no array; of none at all, the function is called with no addresses."""
    text = "@calls = internal global i64 0\ndefine void @count(ptr %addresses) {\n  %n = load i64, ptr @calls\n"
    text += "  %m = add i64 %n, 1\n  store i64 %m, ptr @calls\n  ret void\n}\n"
    text += "define i64 @called() {\n  %n = load i64, ptr @calls\n  ret i64 %n\n}"
    library = compile_ir(text, {})
    called = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("called"))
    none, two = (python_function(library.address("count"), count, "count", library) for count in (0, 2))
    x = np.zeros(3)
    assert [none(), two(x, x)] == [0, 0]
    assert called() == 2
    assert [none(x), two(x), two(x, x, x), two(x, 1.0), two(x, x[::2])] == [1, 1, 1, 1, 1]
    assert called() == 2


def test_each_of_many_arrays_is_looked_at() -> None:
    count = 300
    names = [f"%x{place}" for place in range(count)]
    type = "tensor<600xf32>"
    sums = [f"  %s{place} = stablehlo.subtract {name}, %scaled : {type}" for place, name in enumerate(names)]
    text = "\n".join(
        [
            f"func.func @main({', '.join(f'{name}: {type}' for name in names)}) -> ({', '.join([type] * count)}) {{",
            "  %zero = stablehlo.constant dense<0.0> : tensor<f32>",
            f"  %least = stablehlo.reduce(%x0 init: %zero) applies stablehlo.minimum across dimensions = [0] : "
            f"({type}, tensor<f32>) -> tensor<f32>",
            f"  %scaled = stablehlo.broadcast_in_dim %least, dims = [] : (tensor<f32>) -> {type}",
            *sums,
            f"  return {', '.join(f'%s{place}' for place in range(count))} : {', '.join([type] * count)}",
            "}",
        ]
    )
    executable = spmd.compile(spmd.parse(text))
    arrays = [np.full(600, place - 5, np.float32) for place in range(count)]
    arrays[-1] = np.full(1200, count, np.float32)[::2]
    for place, result in enumerate(executable(*arrays)):
        np.testing.assert_array_equal(result, arrays[place] + 5)
