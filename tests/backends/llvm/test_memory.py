"""What a program takes beside its arguments: results, and what cannot lie in their places."""

import tracemalloc

import numpy as np
import pytest

import spmd
from spmd.types import ELEMENT_TYPES

STEP = """func.func @main(%w: tensor<256x256xf32>, %x: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %g = stablehlo.dot_general %x, %x, contracting_dims = [0] x [0]
    : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %r = stablehlo.constant dense<0.5> : tensor<256x256xf32>
  %s = stablehlo.multiply %g, %r : tensor<256x256xf32>
  %n = stablehlo.subtract %w, %s : tensor<256x256xf32>
  return %n : tensor<256x256xf32>
}"""
SCATTER = """func.func @main(%u: tensor<300xf32>, %i: tensor<300x1xi32>) -> tensor<100000xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %o = stablehlo.broadcast_in_dim %z, dims = [] : (tensor<f32>) -> tensor<100000xf32>
  %r = "stablehlo.scatter"(%o, %i, %u) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<100000xf32>, tensor<300x1xi32>, tensor<300xf32>) -> tensor<100000xf32>
  return %r : tensor<100000xf32>
}"""
CHAIN = """func.func @main(%x: tensor<400x400xf32>) -> tensor<f32> {
  %a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
    : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
  %b = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0]
    : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
  %c = stablehlo.dot_general %b, %x, contracting_dims = [1] x [0]
    : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
  %d = stablehlo.dot_general %c, %x, contracting_dims = [1] x [0]
    : (tensor<400x400xf32>, tensor<400x400xf32>) -> tensor<400x400xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%d init: %z) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<400x400xf32>, tensor<f32>) -> tensor<f32>
  return %s : tensor<f32>
}"""


def peak(text: str, *arrays: np.ndarray, threads: int | None = None) -> int:
    """Bytes that are taken at most while the program runs."""
    executable = spmd.compile(spmd.parse(text), backends=("llvm", "numpy"), threads=threads)
    executable(*arrays)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        executable(*arrays)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_gradient_lies_where_the_new_parameter_is_to_be() -> None:
    x = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    assert 4 * x.size <= peak(STEP, x, x) < 5 * x.size
    (updated,) = spmd.compile(spmd.parse(STEP))(x, x)
    np.testing.assert_allclose(updated, x - x.T @ x / 2, atol=1e-3)


def test_what_is_scattered_into_is_made_in_the_result() -> None:
    places = np.arange(300, dtype=np.int32)[:, None]
    assert peak(SCATTER, np.ones(300, np.float32), places) < 410_000


def test_values_share_the_memory_of_those_that_are_not_needed_any_more() -> None:
    assert peak(CHAIN, np.zeros((400, 400), np.float32)) < 2.2 * 400 * 400 * 4


def test_a_softmax_is_written_over_what_it_is_of() -> None:
    text = """func.func @main(%x: tensor<200x200xf32>) -> tensor<200x200xf32> {
      %a = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
        : (tensor<200x200xf32>, tensor<200x200xf32>) -> tensor<200x200xf32>
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %m = stablehlo.reduce(%a init: %low) applies stablehlo.maximum across dimensions = [1]
        : (tensor<200x200xf32>, tensor<f32>) -> tensor<200xf32>
      %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<200xf32>) -> tensor<200x200xf32>
      %s = stablehlo.subtract %a, %mb : tensor<200x200xf32>
      %e = stablehlo.exponential %s : tensor<200x200xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<200x200xf32>, tensor<f32>) -> tensor<200xf32>
      %tb = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<200xf32>) -> tensor<200x200xf32>
      %p = stablehlo.divide %e, %tb : tensor<200x200xf32>
      %r = stablehlo.dot_general %p, %x, contracting_dims = [1] x [0]
        : (tensor<200x200xf32>, tensor<200x200xf32>) -> tensor<200x200xf32>
      return %r : tensor<200x200xf32>
    }"""
    x = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
    assert peak(text, x) < 2.2 * 4 * x.size
    scores = (x @ x.T).astype(np.float64)
    p = np.exp(scores - scores.max(1, keepdims=True))
    (product,) = spmd.compile(spmd.parse(text))(x)
    np.testing.assert_allclose(product, p / p.sum(1, keepdims=True) @ x, rtol=1e-3, atol=1e-3)


def test_what_comes_before_a_result_may_lie_in_its_place() -> None:
    text = CHAIN.replace("-> tensor<f32> {", "-> (tensor<f32>, tensor<400x400xf32>) {").replace(
        "return %s : tensor<f32>", "%e = stablehlo.transpose %x, dims = [1, 0] : (tensor<400x400xf32>) "
        "-> tensor<400x400xf32>\n  return %s, %e : tensor<f32>, tensor<400x400xf32>"
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((400, 400)).astype(np.float32) / 20
    assert peak(text, x) < 2.2 * 4 * x.size
    total, turned = spmd.compile(spmd.parse(text))(x)
    np.testing.assert_allclose(total, (x @ x @ x @ x @ x).sum(), rtol=1e-3)
    np.testing.assert_array_equal(turned, x.T)


def test_short_folds_that_rows_are_folded_of_need_one_row() -> None:
    text = """func.func @main(%x: tensor<300x3xf32>, %y: tensor<400x3xf32>) -> tensor<300xf32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %a = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<300x3xf32>) -> tensor<300x400x3xf32>
      %b = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<400x3xf32>) -> tensor<300x400x3xf32>
      %d = stablehlo.subtract %a, %b : tensor<300x400x3xf32>
      %q = stablehlo.multiply %d, %d : tensor<300x400x3xf32>
      %s = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [2]
        : (tensor<300x400x3xf32>, tensor<f32>) -> tensor<300x400xf32>
      %n = stablehlo.negate %s : tensor<300x400xf32>
      %e = stablehlo.exponential %n : tensor<300x400xf32>
      %r = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1]
        : (tensor<300x400xf32>, tensor<f32>) -> tensor<300xf32>
      return %r : tensor<300xf32>
    }"""
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal((size, 3)).astype(np.float32) for size in (300, 400))
    assert peak(text, x, y) < 20_000
    for threads in (1, 2):
        (result,) = spmd.compile(spmd.parse(text), threads=threads)(x, y)
        distances = ((x[:, None].astype(np.float64) - y) ** 2).sum(-1)
        np.testing.assert_allclose(result, np.exp(-distances).sum(1), rtol=1e-5)


def test_the_last_of_the_values_that_a_loop_begins_with_alike_begins_where_they_lie() -> None:
    text = """func.func @main(%n: tensor<i32>, %v: tensor<f32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %z = stablehlo.broadcast_in_dim %v, dims = [] : (tensor<f32>) -> tensor<50x1000xf32>
      %f = stablehlo.constant dense<0.0> : tensor<f32>
      %r:4 = stablehlo.while(%k = %zero, %a = %z, %b = %z, %c = %z)
        : tensor<i32>, tensor<50x1000xf32>, tensor<50x1000xf32>, tensor<50x1000xf32>
       cond {
        %on = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %on : tensor<i1>
      } do {
        %k1 = stablehlo.add %k, %one : tensor<i32>
        %ra = stablehlo.slice %a [3:4, 0:1000] : (tensor<50x1000xf32>) -> tensor<1x1000xf32>
        %rb = stablehlo.slice %b [5:6, 0:1000] : (tensor<50x1000xf32>) -> tensor<1x1000xf32>
        %sa = stablehlo.sine %rb : tensor<1x1000xf32>
        %sb = stablehlo.cosine %ra : tensor<1x1000xf32>
        %sc = stablehlo.add %sa, %sb : tensor<1x1000xf32>
        %a1 = stablehlo.dynamic_update_slice %a, %sa, %k, %zero
          : (tensor<50x1000xf32>, tensor<1x1000xf32>, tensor<i32>, tensor<i32>) -> tensor<50x1000xf32>
        %b1 = stablehlo.dynamic_update_slice %b, %sb, %k, %zero
          : (tensor<50x1000xf32>, tensor<1x1000xf32>, tensor<i32>, tensor<i32>) -> tensor<50x1000xf32>
        %c1 = stablehlo.dynamic_update_slice %c, %sc, %k, %zero
          : (tensor<50x1000xf32>, tensor<1x1000xf32>, tensor<i32>, tensor<i32>) -> tensor<50x1000xf32>
        stablehlo.return %k1, %a1, %b1, %c1
          : tensor<i32>, tensor<50x1000xf32>, tensor<50x1000xf32>, tensor<50x1000xf32>
      }
      %sums = stablehlo.add %r#1, %r#2 : tensor<50x1000xf32>
      %s = stablehlo.reduce(%sums init: %f) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<50x1000xf32>, tensor<f32>) -> tensor<f32>
      %m = stablehlo.reduce(%r#3 init: %f) applies stablehlo.maximum across dimensions = [0, 1]
        : (tensor<50x1000xf32>, tensor<f32>) -> tensor<f32>
      %t = stablehlo.reduce(%r#3 init: %f) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<50x1000xf32>, tensor<f32>) -> tensor<f32>
      return %s, %m, %t : tensor<f32>, tensor<f32>, tensor<f32>
    }"""
    arguments = np.int32(20), np.float32(0.5)
    assert peak(text, *arguments) < 3 * 200_000 + 30_000
    native = spmd.compile(spmd.parse(text))(*arguments)
    plain = spmd.compile(spmd.parse(text), backends=("numpy",))(*arguments)
    np.testing.assert_allclose(native, plain, rtol=1e-5)


def test_padded_images_are_made_one_at_a_time() -> None:
    text = """func.func @main(%x: tensor<16x500x32xf32>, %w: tensor<5x32x32xf32>) -> tensor<16x500x32xf32> {
      %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[2, 2]]}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<16x500x32xf32>, tensor<5x32x32xf32>) -> tensor<16x500x32xf32>
      return %y : tensor<16x500x32xf32>
    }"""
    x = np.ones((16, 500, 32), np.float32)
    assert x.nbytes <= peak(text, x, np.ones((5, 32, 32), np.float32), threads=1) < 1.1 * x.nbytes


@pytest.mark.parametrize(("reach", "wide"), [(1, 1), (0, 40), (1, 40), (-1, 40)])
def test_an_update_that_is_computed_of_what_it_writes_into_is_made_in_its_place(reach: int, wide: int) -> None:
    """Row after row of a loop's array, each of the row `reach` before it, moved by one place."""
    rows = 1000
    row, whole = f"tensor<1x{wide}xf32>", f"tensor<{rows}x{wide}xf32>"
    rolled = f"""%left = stablehlo.slice %p [0:1, 0:{wide - 1}] : ({row}) -> tensor<1x{wide - 1}xf32>
        %right = stablehlo.slice %p [0:1, {wide - 1}:{wide}] : ({row}) -> tensor<1x1xf32>
        %q = stablehlo.concatenate %right, %left, dim = 1 : (tensor<1x1xf32>, tensor<1x{wide - 1}xf32>) -> {row}"""
    text = f"""func.func @main(%a: {whole}) -> {whole} {{
      %first = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %first, %x = %a) : tensor<i32>, {whole}
      cond {{
        %stop = stablehlo.constant dense<{rows - 1}> : tensor<i32>
        %more = stablehlo.compare LT, %i, %stop : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      }} do {{
        %zero = stablehlo.constant dense<0> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %reach = stablehlo.constant dense<{reach}> : tensor<i32>
        %j = stablehlo.subtract %i, %reach : tensor<i32>
        %p = stablehlo.dynamic_slice %x, %j, %zero, sizes = [1, {wide}] : ({whole}, tensor<i32>, tensor<i32>) -> {row}
        {rolled if wide > 1 else f"%q = stablehlo.negate %p : {row}"}
        %o = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, {wide}] : ({whole}, tensor<i32>, tensor<i32>) -> {row}
        %s = stablehlo.subtract %q, %o : {row}
        %y = stablehlo.dynamic_update_slice %x, %s, %i, %zero : ({whole}, {row}, tensor<i32>, tensor<i32>) -> {whole}
        %next = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %next, %y : tensor<i32>, {whole}
      }}
      return %r#1 : {whole}
    }}"""
    x = np.random.default_rng(0).standard_normal((rows, wide)).astype(np.float32)
    expected = x.copy()
    for i in range(1, rows - 1):
        p = expected[i - reach]
        expected[i] = (np.roll(p, 1) if wide > 1 else -p) - expected[i]
    np.testing.assert_array_equal(spmd.compile(spmd.parse(text))(x)[0], expected)
    assert peak(text, x) < x.nbytes + 2_000


@pytest.mark.parametrize("element", ["i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64"])
@pytest.mark.parametrize("columns", [3, 50])
def test_places_of_every_type_are_clamped(element: str, columns: int) -> None:
    """Those below, at and beyond the ends of the table, and of the type."""
    dtype = np.dtype(element.replace("ui", "uint") if element[0] == "u" else element.replace("i", "int"))
    info = np.iinfo(dtype)
    table, places = f"tensor<200x{columns}xf32>", f"tensor<70x2x{element}>"
    module = spmd.parse(f"""func.func @main(%x: {table}, %i: {places}) -> tensor<70xf32> {{
      %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1],
        start_index_map = [1, 0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}}>
        : ({table}, {places}) -> tensor<70xf32>
      return %0 : tensor<70xf32>
    }}""")
    x = np.arange(200 * columns, dtype=np.float32).reshape(200, columns)
    i = np.random.default_rng(columns).integers(info.min, info.max, (70, 2), dtype, endpoint=True)
    i[:5, 0], i[5:10, 1] = np.arange(5), np.arange(100, 105)
    i[10], i[11], i[-1] = info.min, info.max, (columns - 1, min(199, info.max))
    (got,) = spmd.compile(module)(x, i)
    rows = [min(max(int(place), 0), 199) for place in i[:, 1]]
    np.testing.assert_array_equal(got, x[rows, [min(max(int(place), 0), columns - 1) for place in i[:, 0]]])


@pytest.mark.parametrize(
    ("element", "value"),
    [("f32", "-1.5"), ("i16", "258"), ("f64", "0.1"), ("complex<f32>", "(1.0, -2.0)"), ("i1", "true"), ("ui8", "7")],
)
@pytest.mark.parametrize("size", [1, 15, 37, 1000])
def test_a_splat_that_is_updated(element: str, value: str, size: int) -> None:
    """It is written where the result lies, whatever its bytes are."""
    whole, one = f"tensor<{size}x{element}>", f"tensor<1x{element}>"
    module = spmd.parse(f"""func.func @main(%u: {one}, %i: tensor<i32>) -> {whole} {{
      %c = stablehlo.constant dense<{value}> : {whole}
      %r = stablehlo.dynamic_update_slice %c, %u, %i : ({whole}, {one}, tensor<i32>) -> {whole}
      return %r : {whole}
    }}""")
    update, place = np.zeros(1, ELEMENT_TYPES[element].dtype), np.int32(size // 2)
    (expected,) = spmd.compile(module, backends=("numpy",))(update, place)
    (mine,) = spmd.compile(module)(update, place)
    np.testing.assert_array_equal(mine, expected)
    assert mine[size // 2] == 0 and (size == 1 or mine[0] != 0)
