"""Values whose run-time shapes contradict what the program declares: an ExecutionError that names the op, no memory."""

import numpy as np
import pytest

import spmd

BACKENDS = [("llvm", "numpy"), ("numpy",)]
Q, R = "tensor<?xf32>", "tensor<40xf32>"
ONES = np.ones(3, np.float32)
SIZE = np.array([3], np.int32)

#: By op: the line, its result's type, and the arguments with their types.
PROGRAMS = {
    "convert": (f"stablehlo.convert %a : ({Q}) -> {R}", R, {"a": (Q, ONES)}),
    "add": (f"stablehlo.add %a, %a : ({Q}, {Q}) -> {R}", R, {"a": (Q, ONES)}),
    "add of other sizes": (f"stablehlo.add %a, %b : {Q}", Q, {"a": (Q, ONES), "b": (Q, ONES[:1])}),
    "concatenate": (f"stablehlo.concatenate %a, %a, dim = 0 : ({Q}, {Q}) -> {R}", R, {"a": (Q, ONES)}),
    "reverse": (f'"stablehlo.reverse"(%a) {{dimensions = array<i64: 0>}} : ({Q}) -> {R}', R, {"a": (Q, ONES)}),
    "cast": (f"tensor.cast %a : {Q} to {R}", R, {"a": (Q, ONES)}),
    "slice": (
        f'"stablehlo.slice"(%a) {{start_indices = array<i64: 0>, limit_indices = array<i64: 40>, '
        f"strides = array<i64: 1>}} : ({Q}) -> {R}", R, {"a": (Q, ONES)},
    ),
    "dynamic_slice": (
        f"stablehlo.dynamic_slice %a, %i, sizes = [40] : ({Q}, tensor<i32>) -> {R}", R,
        {"a": (Q, ONES), "i": ("tensor<i32>", np.int32(0))},
    ),
    "dynamic_update_slice": (
        f"stablehlo.dynamic_update_slice %a, %b, %i : ({Q}, {Q}, tensor<i32>) -> {Q}", Q,
        {"a": (Q, ONES), "b": (Q, np.ones(9, np.float32)), "i": ("tensor<i32>", np.int32(0))},
    ),
    "dot": (
        f"stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : ({Q}, {Q}) -> tensor<f32>", "tensor<f32>",
        {"a": (Q, ONES), "b": (Q, np.ones(9, np.float32))},
    ),
    "dynamic_iota": (
        f"stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> {R}", R, {"s": ("tensor<1xi32>", SIZE)},
    ),
    "dynamic_broadcast_in_dim": (
        f"stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [0] : (tensor<1xf32>, tensor<1xi32>) -> {R}", R,
        {"a": ("tensor<1xf32>", ONES[:1]), "s": ("tensor<1xi32>", SIZE)},
    ),
    "dynamic_reshape": (
        "stablehlo.dynamic_reshape %a, %s : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<2x3xf32>", "tensor<2x3xf32>",
        {"a": ("tensor<2x3xf32>", np.ones((2, 3), np.float32)), "s": ("tensor<2xi32>", np.array([3, 2], np.int32))},
    ),
    "dynamic_pad": (
        "stablehlo.dynamic_pad %a, %v, %s, %s, %s : (tensor<3xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, "
        f"tensor<1xi32>) -> {R}", R,
        {"a": ("tensor<3xf32>", ONES), "v": ("tensor<f32>", np.float32(0)), "s": ("tensor<1xi32>", SIZE)},
    ),
    "real_dynamic_slice": (
        "stablehlo.real_dynamic_slice %a, %z, %s, %o : (tensor<3xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> "
        f"{R}", R,
        {"a": ("tensor<3xf32>", ONES), "z": ("tensor<1xi32>", SIZE * 0), "s": ("tensor<1xi32>", SIZE),
         "o": ("tensor<1xi32>", SIZE // 3)},
    ),
    "dynamic_gather": (
        '"stablehlo.dynamic_gather"(%a, %i, %s) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "start_index_map = [0], index_vector_dim = 1>} : (tensor<30xf32>, tensor<2x1xi32>, tensor<1xi32>) -> "
        "tensor<2x40xf32>", "tensor<2x40xf32>",
        {"a": ("tensor<30xf32>", np.ones(30, np.float32)), "i": ("tensor<2x1xi32>", np.zeros((2, 1), np.int32)),
         "s": ("tensor<1xi32>", SIZE)},
    ),
    "dynamic_gather of too much": (
        '"stablehlo.dynamic_gather"(%a, %i, %s) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "start_index_map = [0], index_vector_dim = 1>} : (tensor<30xf32>, tensor<2x1xi32>, tensor<1xi32>) -> "
        "tensor<2x40xf32>", "tensor<2x40xf32>",
        {"a": ("tensor<30xf32>", np.ones(30, np.float32)), "i": ("tensor<2x1xi32>", np.zeros((2, 1), np.int32)),
         "s": ("tensor<1xi32>", np.array([40], np.int32))},
    ),
    "rng": (
        f"stablehlo.rng %l, %h, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi32>) -> {R}", R,
        {"l": ("tensor<f32>", np.float32(0)), "h": ("tensor<f32>", np.float32(1)), "s": ("tensor<1xi32>", SIZE)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_shape_that_contradicts_its_type_is_an_error(name: str) -> None:
    line, result, arguments = PROGRAMS[name]
    head = ", ".join(f"%{argument}: {type}" for argument, (type, _) in arguments.items())
    text = f"func.func @main({head}) -> {result} {{\n  %r = {line}\n  return %r : {result}\n}}"
    module = spmd.parse(text, name="shapes.mlir")
    for backends in BACKENDS:
        run = spmd.compile(module, backends=backends)
        with pytest.raises(spmd.ExecutionError, match=r"^shapes\.mlir:2:\d+: (stablehlo|tensor)\.\w+: .*\d"):
            run(*(array for _, array in arguments.values()))


def test_an_argument_beyond_its_bound_is_refused() -> None:
    type = "tensor<?xf32, #stablehlo.bounds<4>>"
    text = f"func.func @main(%a: {type}) -> {type} {{\n  %r = stablehlo.add %a, %a : {type}\n  return %r : {type}\n}}"
    for backends in BACKENDS:
        run = spmd.compile(spmd.parse(text), backends=backends)
        assert run(np.ones(4, np.float32))[0].tolist() == [2] * 4
        with pytest.raises(spmd.ExecutionError, match=r"argument 0 \(a\) of @main: .*got float32 of shape \(5,\)"):
            run(np.ones(5, np.float32))


def test_arrays_of_an_equal_dtype_are_taken_as_they_are() -> None:
    """Native code compares dtypes by the object that most arrays share; arrays that were pickled have their own."""
    type = "tensor<3xf32>"
    text = f"func.func @main(%a: {type}) -> {type} {{\n  %r = stablehlo.add %a, %a : {type}\n  return %r : {type}\n}}"
    other = np.dtype(np.float32, metadata={"unit": "m"})
    assert other is not np.dtype(np.float32)
    run = spmd.compile(spmd.parse(text))
    assert run(np.ones(3, other))[0].tolist() == [2, 2, 2]
    for wrong in (np.ones(3, ">f4"), np.ones(3), np.ones((3, 1), np.float32)):
        with pytest.raises(spmd.ExecutionError, match="tensor<3xf32> is needed"):
            run(wrong)


HUGE = "tensor<4294967296x4294967296x0xf32>"


@pytest.mark.parametrize(
    "line",
    [
        f"stablehlo.iota dim = 0 : {HUGE}",
        f"stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> {HUGE}",
        f"stablehlo.custom_call @Sharding(%b) : ({HUGE}) -> {HUGE}",
    ],
)
def test_a_type_that_no_array_has_is_refused(line: str) -> None:
    text = f"func.func @main(%a: tensor<f32>, %b: {HUGE}) -> {HUGE} {{\n  %r = {line}\n  return %r : {HUGE}\n}}"
    for backends in BACKENDS:
        with pytest.raises(spmd.CompileError, match=r":2:\d+: .*strides that do not fit into 64 bits"):
            spmd.compile(spmd.parse(text), backends=backends)


COLLAPSED = """func.func @main(%a: tensor<4x3xi32>, %i: tensor<2x1xi32>) -> tensor<2x3xi32> {
  %r = "stablehlo.gather"(%a, %i) {slice_sizes = array<i64: 0, 3>, dimension_numbers = #stablehlo.gather<
    offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}
    : (tensor<4x3xi32>, tensor<2x1xi32>) -> tensor<2x3xi32>
  return %r : tensor<2x3xi32>
}"""
EMPTY = """func.func @main(%a: tensor<0xi32>, %i: tensor<2x1xi32>, %u: tensor<2xi32>) -> tensor<0xi32> {
  %r = "stablehlo.scatter"(%a, %i, %u) ({
    ^bb0(%x: tensor<i32>, %y: tensor<i32>):
      %z = stablehlo.add %x, %y : tensor<i32>
      stablehlo.return %z : tensor<i32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>} : (tensor<0xi32>, tensor<2x1xi32>, tensor<2xi32>) -> tensor<0xi32>
  return %r : tensor<0xi32>
}"""


def test_elements_of_no_slice_are_refused() -> None:
    for backends in BACKENDS:
        with pytest.raises(spmd.CompileError, match=r":2:\d+: stablehlo.gather: a slice must have an element"):
            spmd.compile(spmd.parse(COLLAPSED), backends=backends)


def test_a_scatter_into_nothing_gives_nothing() -> None:
    arguments = np.zeros(0, np.int32), np.zeros((2, 1), np.int32), np.ones(2, np.int32)
    for backends in BACKENDS:
        assert spmd.compile(spmd.parse(EMPTY), backends=backends)(*arguments)[0].shape == (0,)
