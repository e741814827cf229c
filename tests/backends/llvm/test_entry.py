"""Calling native functions: what they take as it is, and what is brought into form first."""

import threading

import numpy as np

import spmd

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
    for given in (x, np.asfortranarray(x), wide[:, ::2], x[::-1][::-1], unaligned, read_only):
        for scalar in (np.float32(2), 2.0, np.asarray(2, np.float32)):
            (got,) = executable(given, scalar)
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
