"""Ops whose shapes are values: every result as its static counterpart gives it, and what does not fit refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spmd
from tests.backends.modules import here, type_of
from tests.effort import examples

SOME = settings(max_examples=examples(30))


def dynamic(text: str, arrays: list[Any], result: str) -> np.ndarray:
    """Runs the lines, whose result is %r, on arguments of the given types."""
    arguments = ", ".join(f"%{k}: {type_of(array)}" for k, array in enumerate(arrays))
    return here(f"func.func @main({arguments}) -> {result} {{\n{text}\nreturn %r : {result}\n}}", *arrays)[0]


def shape_type(rank: int, element: str = "f32") -> str:
    return "tensor<" + "?x" * rank + f"{element}>"


@given(st.lists(st.integers(1, 4), max_size=3), st.data())
@SOME
def test_broadcast_and_reshape(shape: list[int], data: st.DataObject) -> None:
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    sizes = [data.draw(st.integers(0, 3)) if size == 1 else size for size in shape] + [2]
    text = f"""%r = stablehlo.dynamic_broadcast_in_dim %0, %1, dims = {list(range(len(shape)))}
        : ({type_of(x)}, tensor<{len(sizes)}xi32>) -> {shape_type(len(sizes))}"""
    got = dynamic(text, [x, np.array(sizes, np.int32)], shape_type(len(sizes)))
    np.testing.assert_array_equal(got, np.broadcast_to(x[..., None], sizes))
    text = f"%r = stablehlo.dynamic_reshape %0, %1 : ({type_of(x)}, tensor<2xi64>) -> tensor<?x?xf32>"
    assert dynamic(text, [x, np.array([1, x.size])], "tensor<?x?xf32>").shape == (1, x.size)
    with pytest.raises(spmd.ExecutionError, match="has no shape"):
        dynamic(text, [x, np.array([3, x.size])], "tensor<?x?xf32>")


def test_iota_pad_and_slice() -> None:
    text = "%r = stablehlo.dynamic_iota %0, dim = 1 : (tensor<2xi64>) -> tensor<?x?xi32>"
    assert dynamic(text, [np.array([2, 3])], "tensor<?x?xi32>").tolist() == [[0, 1, 2]] * 2
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = """%r = stablehlo.dynamic_pad %0, %1, %2, %3, %4
      : (tensor<2x3xf32>, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>"""
    got = dynamic(text, [x, np.float32(9), np.array([1, -1]), np.array([0, 1]), np.array([0, 1])], "tensor<?x?xf32>")
    assert got.tolist() == [[9] * 5, [9, 1, 9, 2, 9], [9, 4, 9, 5, 9]]
    text = """%r = stablehlo.real_dynamic_slice %0, %1, %2, %3
      : (tensor<2x3xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<?x?xf32>"""
    got = dynamic(text, [x, np.array([1, 0]), np.array([2, 3]), np.array([1, 2])], "tensor<?x?xf32>")
    assert got.tolist() == [[3, 5]]
    with pytest.raises(spmd.ExecutionError, match="is no slice of dimension 0 of size 2"):
        dynamic(text, [x, np.array([1, 0]), np.array([3, 3]), np.array([1, 2])], "tensor<?x?xf32>")


def test_gather_with_slice_sizes_that_are_values() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    text = """%r = "stablehlo.dynamic_gather"(%0, %1, %2) {dimension_numbers = #stablehlo.gather<offset_dims = [1, 2],
        start_index_map = [0, 1], index_vector_dim = 1>} : (tensor<3x4xf32>, tensor<2x2xi64>, tensor<2xi64>)
        -> tensor<2x?x?xf32>"""
    starts = np.array([[0, 1], [2, 9]])
    for sizes in ([2, 2], [1, 3]):
        got = dynamic(text, [x, starts, np.array(sizes)], "tensor<2x?x?xf32>")
        for part, start in zip(got, starts, strict=True):
            row, column = (min(s, full - size) for s, full, size in zip(start, x.shape, sizes, strict=True))
            np.testing.assert_array_equal(part, x[row : row + sizes[0], column : column + sizes[1]])


def test_a_dimension_made_smaller() -> None:
    text = """func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<i32> {
      %b = stablehlo.set_dimension_size %x, %n, dim = 0
        : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
      %s = stablehlo.get_dimension_size %b, dim = 0 : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<i32>
      return %s : tensor<i32>
    }"""
    x = np.arange(4, dtype=np.float32)
    assert int(here(text, x, np.int32(3))[0]) == 3
    with pytest.raises(spmd.ExecutionError, match="size 5 of dimension 0 is not within"):
        here(text, x, np.int32(5))


@pytest.mark.parametrize("size", [0, 1])
def test_a_reshape_keeps_the_size_of_a_dimension_of_bound_one(size: int) -> None:
    text = """func.func @main(%x: tensor<1x3xf32>, %n: tensor<i32>) -> tensor<?x3x1xf32, #stablehlo.bounds<1, ?, ?>> {
      %b = stablehlo.set_dimension_size %x, %n, dim = 0
        : (tensor<1x3xf32>, tensor<i32>) -> tensor<?x3xf32, #stablehlo.bounds<1, ?>>
      %r = stablehlo.reshape %b
        : (tensor<?x3xf32, #stablehlo.bounds<1, ?>>) -> tensor<?x3x1xf32, #stablehlo.bounds<1, ?, ?>>
      return %r : tensor<?x3x1xf32, #stablehlo.bounds<1, ?, ?>>
    }"""
    assert here(text, np.ones((1, 3), np.float32), np.int32(size))[0].shape == (size, 3, 1)


SHAPES = """
func.func @main(%x: tensor<?x?xf32>, %y: tensor<?xf32>) -> tensor<?x?xf32> {
  %a = shape.shape_of %x : tensor<?x?xf32> -> tensor<2xindex>
  %b = shape.shape_of %y : tensor<?xf32> -> tensor<1xindex>
  %w = shape.cstr_broadcastable %a, %b : tensor<2xindex>, tensor<1xindex>
  %r = shape.assuming %w -> (tensor<?x?xf32>) {
    %c = shape.broadcast %a, %b : tensor<2xindex>, tensor<1xindex> -> tensor<2xindex>
    %u = stablehlo.dynamic_broadcast_in_dim %x, %c, dims = [0, 1]
      : (tensor<?x?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
    %v = stablehlo.dynamic_broadcast_in_dim %y, %c, dims = [1] : (tensor<?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
    %s = stablehlo.add %u, %v : tensor<?x?xf32>
    shape.assuming_yield %s : tensor<?x?xf32>
  }
  return %r : tensor<?x?xf32>
}"""


def test_shapes_are_computed_and_witnessed() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(here(SHAPES, x, y)[0], x + y)
    np.testing.assert_array_equal(here(SHAPES, x[:, :1], y)[0], x[:, :1] + y)
    with pytest.raises(spmd.ExecutionError, match=r"do not broadcast together: \(2, 3\), \(2,\)"):
        here(SHAPES, x, y[:2])


@pytest.mark.parametrize(
    ("name", "x", "y", "want"),
    [
        ("addi", 2**31 - 1, 1, -(2**31)), ("muli", 7, -3, -21), ("divsi", -7, 2, -3), ("floordivsi", -7, 2, -4),
        ("ceildivsi", 7, 2, 4), ("ceildivsi", -7, 2, -3), ("remsi", -7, 2, -1), ("divui", -1, 2, 2**31 - 1),
        ("remui", -1, 10, 5), ("maxui", -1, 1, -1), ("maxsi", -1, 1, 1), ("minui", -1, 1, 1), ("shrsi", -8, 1, -4),
        ("shrui", -8, 1, 2**31 - 4), ("shli", 3, 2, 12), ("xori", 6, 3, 5), ("ceildivui", -1, 2, -(2**31)),
    ],
)  # fmt: skip
def test_scalars_of_builtin_types(name: str, x: int, y: int, want: int) -> None:
    text = f"""func.func @main(%x: tensor<i32>, %y: tensor<i32>) -> tensor<1xi32> {{
      %a = tensor.extract %x[] : tensor<i32>
      %b = tensor.extract %y[] : tensor<i32>
      %c = arith.{name} %a, %b : i32
      %r = tensor.from_elements %c : tensor<1xi32>
      return %r : tensor<1xi32>
    }}"""
    assert here(text, np.int32(x), np.int32(y))[0].tolist() == [want]


def test_division_by_zero_is_an_error() -> None:
    text = """func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
      %r = arith.divsi %x, %x : tensor<2xi32>
      return %r : tensor<2xi32>
    }"""
    with pytest.raises(spmd.ExecutionError, match="division by zero"):
        here(text, np.int32([1, 0]))


def test_dimensions_ranks_and_casts() -> None:
    text = """func.func @main(%x: tensor<?x3xf32>) -> tensor<6xi32> {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %d = tensor.dim %x, %zero : tensor<?x3xf32>
      %rank = tensor.rank %x : tensor<?x3xf32>
      %s = shape.shape_of %x : tensor<?x3xf32> -> tensor<2xindex>
      %n = shape.num_elements %s : tensor<2xindex> -> index
      %e = shape.get_extent %s, %one : tensor<2xindex>, index -> index
      %p = arith.cmpi slt, %d, %e : index
      %m = arith.select %p, %d, %e : index
      %sum = arith.addi %m, %n : index
      %t = tensor.from_elements %d, %rank, %n, %e, %m, %sum : tensor<6xindex>
      %i = arith.index_cast %t : tensor<6xindex> to tensor<6xi32>
      return %i : tensor<6xi32>
    }"""
    assert here(text, np.zeros((2, 3), np.float32))[0].tolist() == [2, 2, 6, 3, 2, 8]


# --- programs exported with symbolic shapes --------------------------------------------------------------------------

EXPORTED: dict[str, str] = {
    "softmax": "jax.nn.softmax(x)",
    "matrix product": "x @ x.T",
    "reshape": "x.reshape(-1)",
    "iota": "np.arange(x.shape[0]) + x.shape[1]",
    "running total": "np.cumsum(x, 0)",
    "pooling": "jax.lax.reduce_window(x, -np.inf, jax.lax.max, (2, 2), (1, 1), 'SAME')",
    "sort": "np.sort(x, 0)",
    "argmax": "np.argmax(x, 1)",
    "scan": "jax.lax.scan(lambda h, v: (h + v, h), np.zeros(x.shape[1]), x)[1]",
    "gradient": "jax.grad(lambda x: (np.tanh(x) @ x.T).sum())(x)",
    "roll": "np.roll(x, 1, 0)",
    "cholesky": "np.linalg.cholesky(x @ x.T + 9 * np.eye(x.shape[0]))",
    "linear system": "np.linalg.solve(x @ x.T + 9 * np.eye(x.shape[0]), x)",
    "singular values": "np.linalg.svd(x, compute_uv=False)",
    "random": "x + jax.random.uniform(jax.random.PRNGKey(0), x.shape)",
    "random bits": "x + jax.random.uniform(jax.random.key(0, impl='rbg'), x.shape)",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", EXPORTED)
def test_exported_with_symbolic_shapes(name: str) -> None:
    """One compiled program for arrays of any shape."""
    jax = pytest.importorskip("jax", reason="programs are exported by JAX")
    function = eval(f"lambda x: {EXPORTED[name]}", {"jax": jax, "np": jax.numpy})
    export = __import__("jax.export", fromlist=["export"])
    symbols = export.symbolic_args_specs([jax.ShapeDtypeStruct((4, 6), np.float32)], ["(b, c)"])
    executable = spmd.compile(spmd.parse(export.export(jax.jit(function))(*symbols).mlir_module()))
    for shape in ((4, 6), (2, 3)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(executable(x)[0], function(x), rtol=1e-5, atol=1e-5)


def test_a_symbolic_shape_that_is_not_met() -> None:
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %three = stablehlo.constant dense<3> : tensor<i32>
      %p = stablehlo.compare EQ, %n, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.custom_call @shape_assertion(%p, %n) {has_side_effect = true, error_message = "3 rows, not {0}"}
        : (tensor<i1>, tensor<i32>) -> ()
      return %x : tensor<?xf32>
    }"""
    assert here(text, np.zeros(3, np.float32))[0].shape == (3,)
    with pytest.raises(spmd.ExecutionError, match="3 rows, not 5"):
        here(text, np.zeros(5, np.float32))


def test_top_k_of_a_number_that_is_a_value() -> None:
    text = """func.func @main(%x: tensor<2x5xf32>, %k: tensor<i32>) -> (tensor<2x?xf32>, tensor<2x?xi32>) {
      %r:2 = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %k)
        : (tensor<2x5xf32>, tensor<i32>) -> (tensor<2x?xf32>, tensor<2x?xi32>)
      return %r#0, %r#1 : tensor<2x?xf32>, tensor<2x?xi32>
    }"""
    x = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], np.float32)
    for k in (1, 3):
        values, places = here(text, x, np.int32(k))
        np.testing.assert_array_equal(places, np.argsort(-x, 1, kind="stable")[:, :k])
        np.testing.assert_array_equal(values, -np.sort(-x, 1)[:, :k])


def test_approximate_top_k_of_a_number_that_is_a_value() -> None:
    text = """
    func.func @above(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
      %c = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      return %c : tensor<i1>
    }
    func.func @main(%x: tensor<3x5xf32>, %k: tensor<i32>, %shape: tensor<2xi32>) -> (tensor<3x?xf32>, tensor<3x?xi32>) {
      %i = stablehlo.iota dim = 1 : tensor<3x5xi32>
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %none = stablehlo.constant dense<-1> : tensor<i32>
      %r:2 = stablehlo.custom_call @stablehlo.dynamic_approx_top_k(%x, %i, %low, %none, %k, %shape, %shape) {
        called_computations = [@above], indices_of_shape_operands = dense<[5, 6]> : tensor<2xi64>,
        mhlo.backend_config = {reduction_dim = 1 : i64, recall_target = 0.95 : f32}
      } : (tensor<3x5xf32>, tensor<3x5xi32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<2xi32>, tensor<2xi32>)
        -> (tensor<3x?xf32>, tensor<3x?xi32>)
      return %r#0, %r#1 : tensor<3x?xf32>, tensor<3x?xi32>
    }"""
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    for k in (1, 3):
        values, places = here(text, x, np.int32(k), np.array([3, k], np.int32))
        np.testing.assert_array_equal(places, np.argsort(-x, 1)[:, :k])
        np.testing.assert_array_equal(values, -np.sort(-x, 1)[:, :k])


def test_random_bits_of_a_shape_that_is_a_value() -> None:
    call = """func.func @main(%s: tensor<2xui64>, %n: tensor<2xi32>) -> (tensor<2xui64>, tensor<?x4xui32>) {
      %r:2 = stablehlo.custom_call @stablehlo.dynamic_rng_bit_generator(%s, %n)
        {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>}
        : (tensor<2xui64>, tensor<2xi32>) -> (tensor<2xui64>, tensor<?x4xui32>)
      return %r#0, %r#1 : tensor<2xui64>, tensor<?x4xui32>
    }"""
    static = """func.func @main(%s: tensor<2xui64>) -> (tensor<2xui64>, tensor<3x4xui32>) {
      %r:2 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY
        : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3x4xui32>)
      return %r#0, %r#1 : tensor<2xui64>, tensor<3x4xui32>
    }"""
    state = np.array([7, 11], np.uint64)
    for got, want in zip(here(call, state, np.array([3, 4], np.int32)), here(static, state), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("count", "shape", "want"),
    [(12, [3, -1], [3, 4]), (12, [3, 4], [3, 4]), (0, [0, 5], [0, 5]), (12, [5, -1], None), (12, [-1, -1], None),
     (12, [3, 5], None), (12, [-2, -6], None), (0, [0, -1], None), (12, [12], [12])],
)  # fmt: skip
def test_shapes_of_reshapes(count: int, shape: list[int], want: list[int] | None) -> None:
    type = f"tensor<{len(shape)}xi32>"
    for name, result_type in (("compute_reshape_shape", type), ("cstr_reshapable", "!shape.witness")):
        text = f"""func.func @main(%n: index, %d: {type}) -> {result_type} {{
          %r = stablehlo.{name} %n, %d : (index, {type}) -> {result_type}
          return %r : {result_type}
        }}"""
        program = spmd.compile(spmd.parse(text))
        if want is None:
            with pytest.raises(spmd.ExecutionError, match="have no shape"):
                program(np.int64(count), np.int32(shape))
        else:
            (got,) = program(np.int64(count), np.int32(shape))
            assert np.asarray(got).tolist() == (want if result_type == type else True)


def test_a_bounded_result_is_as_large_as_its_bound() -> None:
    text = """func.func @main(%a: tensor<1xf32>) -> tensor<1x?xf32, #stablehlo.bounds<?, 5>> {
      %r = stablehlo.broadcast_in_dim %a, dims = [0] : (tensor<1xf32>) -> tensor<1x?xf32, #stablehlo.bounds<?, 5>>
      return %r : tensor<1x?xf32, #stablehlo.bounds<?, 5>>
    }"""
    (got,) = spmd.compile(spmd.parse(text))(np.float32([2]))
    assert got.tolist() == [[2.0] * 5]


def test_a_carried_array_that_grows_in_each_iteration() -> None:
    """The regions of a loop are run as they are: each iteration sees the shape that the one before gave."""
    module = spmd.parse(
        """func.func @main(%x: tensor<?xf32>, %n: tensor<i32>) -> tensor<?xf32> {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<?xf32>
      cond {
        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        %b = stablehlo.concatenate %a, %a, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
        stablehlo.return %j, %b : tensor<i32>, tensor<?xf32>
      }
      return %r#1 : tensor<?xf32>
    }"""
    )
    (grown,) = spmd.compile(module)(np.array([1, 2], np.float32), np.int32(2))
    assert grown.tolist() == [1, 2] * 4


BOUNDED = """func.func @main(%a: tensor<1x?xf32>) -> tensor<1x?xf32, #stablehlo.bounds<?, 5>> {
  %r = stablehlo.broadcast_in_dim %a, dims = [0, 1] : (tensor<1x?xf32>) -> tensor<1x?xf32, #stablehlo.bounds<?, 5>>
  return %r : tensor<1x?xf32, #stablehlo.bounds<?, 5>>
}"""


@pytest.mark.parametrize(("size", "broadcast"), [(0, 0), (1, 5), (2, 2), (5, 5)])
def test_a_bounded_dimension_is_as_large_as_the_operands_unless_that_is_one(size: int, broadcast: int) -> None:
    (result,) = here(BOUNDED, np.arange(size, dtype=np.float32)[None])
    np.testing.assert_array_equal(result, np.broadcast_to(np.arange(size), (1, broadcast)))


def test_a_size_beyond_its_bound_is_refused() -> None:
    with pytest.raises(spmd.SpmdError, match="a size of 6 is beyond the bound of 5"):
        here(BOUNDED, np.ones((1, 6), np.float32))


GROWING = """func.func @main(%first: tensor<i32>, %turns: tensor<i32>) -> (tensor<2xi32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %full = stablehlo.broadcast_in_dim %first, dims = [] : (tensor<i32>) -> tensor<4x2xi32>
  %empty = stablehlo.set_dimension_size %full, %zero, dim = 0
    : (tensor<4x2xi32>, tensor<i32>) -> tensor<?x2xi32, #stablehlo.bounds<4, ?>>
  %w = stablehlo.while(%b = %empty) : tensor<?x2xi32, #stablehlo.bounds<4, ?>>
  cond {
    %n = stablehlo.get_dimension_size %b, dim = 0 : (tensor<?x2xi32, #stablehlo.bounds<4, ?>>) -> tensor<i32>
    %p = stablehlo.compare LT, %n, %turns, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %n = stablehlo.get_dimension_size %b, dim = 0 : (tensor<?x2xi32, #stablehlo.bounds<4, ?>>) -> tensor<i32>
    %m = stablehlo.add %n, %one : tensor<i32>
    %l = stablehlo.set_dimension_size %b, %m, dim = 0
      : (tensor<?x2xi32, #stablehlo.bounds<4, ?>>, tensor<i32>) -> tensor<?x2xi32, #stablehlo.bounds<4, ?>>
    %row = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<i32>) -> tensor<1x2xi32>
    %x = stablehlo.dynamic_update_slice %l, %row, %n, %zero
      : (tensor<?x2xi32, #stablehlo.bounds<4, ?>>, tensor<1x2xi32>, tensor<i32>, tensor<i32>)
        -> tensor<?x2xi32, #stablehlo.bounds<4, ?>>
    stablehlo.return %x : tensor<?x2xi32, #stablehlo.bounds<4, ?>>
  }
  %s = stablehlo.reduce(%w init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<?x2xi32, #stablehlo.bounds<4, ?>>, tensor<i32>) -> tensor<2xi32>
  %k = stablehlo.get_dimension_size %w, dim = 0 : (tensor<?x2xi32, #stablehlo.bounds<4, ?>>) -> tensor<i32>
  return %s, %k : tensor<2xi32>, tensor<i32>
}"""


@pytest.mark.parametrize("turns", [0, 1, 3, 4])
@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
def test_a_bounded_dimension_grows_in_a_loop(turns: int, backends: tuple[str, ...]) -> None:
    total, size = spmd.compile(spmd.parse(GROWING), backends=backends)(np.int32(7), np.int32(turns))
    assert total.tolist() == [sum(range(turns))] * 2 and size == turns


def test_a_bounded_dimension_grows_no_further_than_its_bound() -> None:
    with pytest.raises(spmd.ExecutionError, match="size 5 of dimension 0 is not within its bound 4"):
        spmd.compile(spmd.parse(GROWING))(np.int32(7), np.int32(5))


def test_what_a_dimension_grows_by_is_zero() -> None:
    text = """func.func @main(%x: tensor<4xf32>, %n: tensor<i32>, %m: tensor<i32>) -> tensor<f32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %a = stablehlo.set_dimension_size %x, %n, dim = 0
        : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
      %b = stablehlo.set_dimension_size %a, %m, dim = 0
        : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
      %s = stablehlo.reduce(%b init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>) -> tensor<f32>
      return %s : tensor<f32>
    }"""
    run = spmd.compile(spmd.parse(text))
    assert [float(run(np.float32([1, 2, 4, 8]), np.int32(a), np.int32(b))[0]) for a, b in ((2, 4), (4, 1), (0, 3))] == [
        3,
        1,
        0,
    ]
