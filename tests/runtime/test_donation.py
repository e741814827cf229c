"""Arguments that a program may write over: results take their memory, and nothing else changes."""

import numpy as np
import pytest

import spmd
from spmd.runtime.executable import Executable
from tests.loops import counted_loop

ADAM = """func.func @main(%p: tensor<1000xf32>, %m: tensor<1000xf32>, %g: tensor<1000xf32>)
    -> (tensor<1000xf32>, tensor<1000xf32>) {
  %half = stablehlo.constant dense<0.5> : tensor<1000xf32>
  %a = stablehlo.multiply %m, %half : tensor<1000xf32>
  %n = stablehlo.add %a, %g : tensor<1000xf32>
  %q = stablehlo.subtract %p, %n : tensor<1000xf32>
  return %q, %n : tensor<1000xf32>, tensor<1000xf32>
}"""
#: What is read after its successor is made, elsewhere than where it is written, or as a view.
READ_LATER = """func.func @main(%x: tensor<40xf32>) -> (tensor<40xf32>, tensor<40xf32>, tensor<f32>, tensor<8x5xf32>) {
  %y = stablehlo.exponential %x : tensor<40xf32>
  %r = stablehlo.reverse %x, dims = [0] : tensor<40xf32>
  %z = stablehlo.add %r, %y : tensor<40xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<40xf32>, tensor<f32>) -> tensor<f32>
  %v = stablehlo.reshape %x : (tensor<40xf32>) -> tensor<8x5xf32>
  return %y, %z, %s, %v : tensor<40xf32>, tensor<40xf32>, tensor<f32>, tensor<8x5xf32>
}"""
LOOP = f"""func.func @main(%x: tensor<300xf32>, %n: tensor<i32>) -> tensor<300xf32> {{
{counted_loop("tensor<300xf32>", "%u = stablehlo.tanh %v : tensor<300xf32>")}
  return %r#1 : tensor<300xf32>
}}"""
VIEW_IN_LOOP = """func.func @main(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<4x4xf32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %i0, %v = %x, %s = %zero) : tensor<i32>, tensor<4x4xf32>, tensor<4x4xf32>
    cond { %n = stablehlo.constant dense<3> : tensor<i32>
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1> } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %flat = stablehlo.reshape %v : (tensor<4x4xf32>) -> tensor<2x8xf32>
      %w = stablehlo.add %v, %v : tensor<4x4xf32>
      %d = stablehlo.dot_general %flat, %flat, contracting_dims = [0] x [0]
        : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
      %t = stablehlo.slice %d [0:4, 0:4] : (tensor<8x8xf32>) -> tensor<4x4xf32>
      %u = stablehlo.add %s, %t : tensor<4x4xf32>
      stablehlo.return %j, %w, %u : tensor<i32>, tensor<4x4xf32>, tensor<4x4xf32>
    }
  return %r#1, %r#2 : tensor<4x4xf32>, tensor<4x4xf32>
}"""
#: A loop that adds READ to FIRST in each of its turns, and hands OTHER on.
ADDING = """func.func @main(%x: tensor<6144xf32>, %c: tensor<6144xf32>, %n: tensor<i32>)
    -> (tensor<6144xf32>, tensor<6144xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %v = FIRST, %u = OTHER) : tensor<i32>, tensor<6144xf32>, tensor<6144xf32>
  cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %w = stablehlo.add %v, READ : tensor<6144xf32>
    stablehlo.return %j, %w, %u : tensor<i32>, tensor<6144xf32>, tensor<6144xf32>
  }
  LAST
}"""
#: It reads what it begins with outside of its arguments, too.
CAPTURED = {
    "FIRST": "%x",
    "OTHER": "%c",
    "READ": "%x",
    "LAST": "return %r#1, %r#2 : tensor<6144xf32>, tensor<6144xf32>",
}
#: What it hands on is a name of the donated array, which is read for the last time by its own name behind the loop.
HANDED_ON = {
    "FIRST": "%c",
    "OTHER": "%x",
    "READ": "%u",
    "LAST": """%y = stablehlo.add %x, %r#1 : tensor<6144xf32>
  return %y, %r#2 : tensor<6144xf32>, tensor<6144xf32>""",
}
BACKENDS = [("llvm", "numpy"), ("numpy",)]


def compiled(text: str, backends: tuple[str, ...], **options: object) -> Executable:
    return spmd.compile(spmd.parse(text), backends=backends, **options)


def vectors(count: int, size: int = 1000) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    return [rng.standard_normal(size).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("backends", BACKENDS)
def test_results_stand_on_the_arrays_that_were_donated(backends: tuple[str, ...]) -> None:
    arrays = vectors(3)
    expected = compiled(ADAM, backends)(*arrays)
    p, m, g = (array.copy() for array in arrays)
    q, n = compiled(ADAM, backends, donate=(0, 1))(p, m, g)
    assert q.ctypes.data == p.ctypes.data and n.ctypes.data == m.ctypes.data
    np.testing.assert_array_equal(g, arrays[2])
    for result, other in zip((q, n), expected, strict=True):
        np.testing.assert_array_equal(result, other)


@pytest.mark.parametrize("backends", BACKENDS)
def test_steps_take_no_new_memory(backends: tuple[str, ...]) -> None:
    step = compiled(ADAM, backends, donate=(0, 1))
    p, m, g = vectors(3)
    places = {p.ctypes.data, m.ctypes.data}
    for _ in range(5):
        p, m = step(p, m, g)
        assert {p.ctypes.data, m.ctypes.data} == places


@pytest.mark.parametrize("backends", BACKENDS)
@pytest.mark.parametrize("text", [READ_LATER, VIEW_IN_LOOP])
def test_what_is_read_later_is_not_written_over(backends: tuple[str, ...], text: str) -> None:
    module = spmd.parse(text)
    shape = module.function("main").type.inputs[0].shape
    (array,) = vectors(1, int(np.prod(shape)))
    array = array.reshape(shape)
    expected = spmd.compile(module, backends=("numpy",))(array.copy())
    results = spmd.compile(module, backends=backends, donate=(0,))(array.copy())
    for mine, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backends", BACKENDS)
@pytest.mark.parametrize("parts", [CAPTURED, HANDED_ON], ids=["captured", "handed on"])
def test_an_array_of_a_loop_that_has_other_names_is_not_written_over(
    parts: dict[str, str], backends: tuple[str, ...]
) -> None:
    text = ADDING
    for name, part in parts.items():
        text = text.replace(name, part)
    x, c = np.arange(6144, dtype=np.float32), np.full(6144, 2, np.float32)
    expected = [c + 3 * x + x, x] if parts is HANDED_ON else [4 * x, c]
    results = compiled(text, backends, donate=(0,))(x.copy(), c, np.int32(3))
    for mine, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_loop_runs_in_the_memory_of_what_it_begins_with() -> None:
    (array,) = vectors(1, 300)
    donated = array.copy()
    (total,) = compiled(LOOP, ("llvm", "numpy"), donate=(0,))(donated, np.int32(3))
    assert total.ctypes.data == donated.ctypes.data
    np.testing.assert_allclose(total, np.tanh(np.tanh(np.tanh(array))), rtol=1e-5)


@pytest.mark.parametrize("backends", BACKENDS)
def test_what_cannot_be_written_over_is_copied(backends: tuple[str, ...]) -> None:
    step = compiled(ADAM, backends, donate=(0, 1))
    arrays = vectors(3)
    expected = step(*(array.copy() for array in arrays))
    fixed = arrays[0].copy()
    fixed.flags.writeable = False
    strided = np.zeros(2000, np.float32)[::2]
    strided[:] = arrays[0]
    odd = np.frombuffer(bytearray(4001), np.uint8)[1:].view(np.float32)
    odd[:] = arrays[0]
    for first in (fixed, strided, odd):
        kept = first.copy()
        results = step(first, arrays[1].copy(), arrays[2])
        np.testing.assert_array_equal(first, kept)
        for mine, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("backends", BACKENDS)
def test_arguments_that_share_memory_are_copied(backends: tuple[str, ...]) -> None:
    step = compiled(ADAM, backends, donate=(0, 1))
    whole = vectors(1, 1500)[0]
    for p, m, g in (
        (whole[:1000],) * 3,
        (whole[:1000], whole[500:], whole[250:1250]),
        (whole[500:], whole[:1000], whole[:1000]),
    ):
        before = whole.copy()
        expected = compiled(ADAM, ("numpy",))(p.copy(), m.copy(), g.copy())
        results = step(p, m, g)
        np.testing.assert_array_equal(whole, before)
        for mine, other in zip(results, expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_the_attributes_of_the_program_are_heeded_when_asked() -> None:
    text = ADAM.replace("%p: tensor<1000xf32>", "%p: tensor<1000xf32> {tf.aliasing_output = 0 : i32}")
    text = text.replace("%m: tensor<1000xf32>", "%m: tensor<1000xf32> {jax.buffer_donor = true}")
    text = text.replace("%g: tensor<1000xf32>", "%g: tensor<1000xf32> {jax.buffer_donor = false}")
    p, m, g = vectors(3)
    kept = p.copy(), m.copy(), g.copy()
    spmd.compile(spmd.parse(text))(p, m, g)
    np.testing.assert_array_equal([p, m, g], kept)
    q, n = spmd.compile(spmd.parse(text), donate="attributes")(p, m, g)
    assert q.ctypes.data == p.ctypes.data and n.ctypes.data == m.ctypes.data
    np.testing.assert_array_equal(g, kept[2])


@pytest.mark.parametrize("mode", ["threads", "stacked"])
def test_processes_in_one_do_not_write_over_each_others_arguments(mode: str) -> None:
    p, m, g = vectors(3)
    expected = spmd.compile(spmd.parse(ADAM))(p, m, g)
    grid = spmd.ProcessGrid(2, 1)
    for results in spmd.run_parallel(spmd.parse(ADAM), grid, [(p, m, g)] * 2, mode=mode, donate=(0, 1)):
        for mine, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("donate", [(3,), (-1,), 0, ("p",), "all", (True,)])
def test_what_is_no_argument_is_refused(donate: object) -> None:
    with pytest.raises(spmd.UsageError, match="donate"):
        spmd.compile(spmd.parse(ADAM), donate=donate)
