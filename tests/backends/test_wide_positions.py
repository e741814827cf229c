"""Arrays and dimensions of more than 2^31 elements: what counts them has 64 bits.

Ordinary tests look at what is written, or compute a few elements of what is never stored; slow ones take 2 GiB arrays.
"""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from spmd.backends.llvm.emit.writer import index_type
from spmd.compiler.transforms.ragged_all_to_all_expansion import expand_ragged_all_to_all
from spmd.ir import Op
from spmd.types import I64, ElementType, TensorType

SIZE = 2**31 + 5
ARRAY = f"tensor<{SIZE}xi8>"


def test_rows_of_all_processes_are_counted_in_64_bits() -> None:
    """Three processes of 2^30 rows each."""
    rows, vector = 2**30, "tensor<3xi32>"
    array = f"tensor<{rows}xi8>"
    text = f"""func.func @main(%x: {array}, %y: {array}, %a: {vector}, %b: {vector}, %c: {vector}, %d: {vector})
    -> {array} {{
  %r = stablehlo.custom_call @ragged_all_to_all(%x, %y, %a, %b, %c, %d)
    {{api_version = 4 : i32, backend_config = {{replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}}}}
    : ({array}, {array}, {vector}, {vector}, {vector}, {vector}) -> {array}
  return %r : {array}
}}"""
    block = spmd.parse(text).function("main").body
    expand_ragged_all_to_all(block, spmd.ProcessGrid(3, 1))
    results = [result.tensor for op in block.ops[:-1] for result in op.results]
    integers = {str(type.element_type) for type in results if _is_integer(type) and type.element_type.bits > 8}
    assert integers == {"i64"}
    firsts = [op["value"].array.tolist() for op in block.ops if _is_of(op, TensorType((3,), I64))]
    assert firsts == [[0, rows, 2 * rows]]


def _is_integer(type: TensorType) -> bool:
    return isinstance(type.element_type, ElementType) and type.element_type.is_integer


def _is_of(op: Op, type: TensorType) -> bool:
    return op.name == "stablehlo.constant" and op.result.type is type


@pytest.mark.parametrize(
    ("op", "result"),
    [
        ("%0 = stablehlo.get_dimension_size %x, dim = 0", "tensor<i32>"),
        ("%0:2 = chlo.top_k(%x, k = 2)", "tensor<2xi8>, tensor<2xi32>"),
    ],
)
def test_what_an_i32_does_not_hold_is_refused(op: str, result: str) -> None:
    """XLA's shape inference refuses the size of such a dimension, too."""
    form = f"({ARRAY}) -> {result}" if "size" in op else f"{ARRAY} -> ({result})"
    names = "%0" if "size" in op else "%0#0, %0#1"
    text = f"func.func @main(%x: {ARRAY}) -> ({result}) {{\n{op} : {form}\nreturn {names} : {result}\n}}"
    with pytest.raises(spmd.VerificationError, match=rf"<string>:2:.*got {SIZE}"):
        spmd.parse(text)
    spmd.parse(text.replace(str(SIZE), "5"))


@pytest.mark.parametrize(
    ("span", "name"), [(2**31 - 1, "i32"), (-(2**31) + 1, "i32"), (2**31, "i64"), (-(2**31), "i64")]
)
def test_lanes_are_gathered_by_what_holds_their_places(span: int, name: str) -> None:
    assert index_type(span) == name


@pytest.mark.parametrize("element", ["i64", "ui32", "f32", "f64"])
def test_an_iota_is_counted_in_64_bits_where_it_is_read(element: str) -> None:
    """In native code the array is computed where its elements are read, and never stored."""
    array, three = f"tensor<{SIZE}x{element}>", f"tensor<3x{element}>"
    text = f"""func.func @main(%i: tensor<i64>) -> ({three}, {three}) {{
  %0 = stablehlo.iota dim = 0 : {array}
  %1 = stablehlo.slice %0 [{SIZE - 3}:{SIZE}] : ({array}) -> {three}
  %2 = stablehlo.dynamic_slice %0, %i, sizes = [3] : ({array}, tensor<i64>) -> {three}
  return %1, %2 : {three}, {three}
}}"""
    module = spmd.parse(text)
    at_end, at_place = spmd.compile(module, backends=("llvm", "numpy"))(np.int64(2**31 - 1))
    assert at_end.astype(np.float64).tolist() == np.arange(SIZE - 3, SIZE).astype(at_end.dtype).tolist()
    assert at_place.astype(np.float64).tolist() == np.arange(2**31 - 1, 2**31 + 2).astype(at_end.dtype).tolist()


def _available() -> int:
    """Bytes of memory that may be taken."""
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
    return int(lines["MemAvailable"].split()[0]) * 1024


large = pytest.mark.skipif(_available() < 10 << 30, reason="takes 10 GiB of memory")

PLACED = f"""func.func @main(%x: {ARRAY}, %i: tensor<i64>, %j: tensor<2x1xi64>)
    -> (tensor<4xi8>, tensor<4xi8>, tensor<2xi8>, tensor<6xi8>) {{
  %0 = stablehlo.slice %x [{SIZE - 6}:{SIZE - 2}] : ({ARRAY}) -> tensor<4xi8>
  %1 = stablehlo.dynamic_slice %x, %i, sizes = [4] : ({ARRAY}, tensor<i64>) -> tensor<4xi8>
  %2 = "stablehlo.gather"(%x, %j) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}}>
    : ({ARRAY}, tensor<2x1xi64>) -> tensor<2xi8>
  %u = stablehlo.constant dense<42> : tensor<2xi8>
  %3 = stablehlo.dynamic_update_slice %x, %u, %i : ({ARRAY}, tensor<2xi8>, tensor<i64>) -> {ARRAY}
  %4 = "stablehlo.scatter"(%3, %j, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
  ^bb0(%a: tensor<i8>, %b: tensor<i8>):
    %s = stablehlo.add %a, %b : tensor<i8>
    stablehlo.return %s : tensor<i8>
  }}) : ({ARRAY}, tensor<2x1xi64>, tensor<2xi8>) -> {ARRAY}
  %5 = stablehlo.slice %4 [{SIZE - 6}:{SIZE}] : ({ARRAY}) -> tensor<6xi8>
  return %0, %1, %2, %5 : tensor<4xi8>, tensor<4xi8>, tensor<2xi8>, tensor<6xi8>
}}"""


@large
@pytest.mark.slow
@pytest.mark.parametrize("backends", [("llvm", "numpy"), ("numpy",)])
def test_positions_beyond_32_bits(backends: tuple[str, ...]) -> None:
    x = np.zeros(SIZE, np.int8)
    x[-6:] = np.arange(1, 7)
    places = np.array([[SIZE - 1], [SIZE - 6]])
    results = spmd.compile(spmd.parse(PLACED), backends=backends)(x, np.int64(SIZE - 4), places)
    assert [result.tolist() for result in results] == [
        [1, 2, 3, 4],
        [3, 4, 5, 6],
        [6, 1],
        [43, 2, 42, 42, 5, 48],
    ]


@large
@pytest.mark.slow
def test_stacked_blocks_of_more_than_32_bits() -> None:
    """What three processes hold together; a slice of it begins in one block and ends in the next."""
    size = 3 * (SIZE // 3 + 1)
    block, whole = f"tensor<{size // 3}xi8>", f"tensor<{size}xi8>"
    text = f"""func.func @main(%x: {block}, %i: tensor<i64>) -> tensor<4xi8> {{
  %0 = "stablehlo.all_gather"(%x) <{{all_gather_dim = 0 : i64,
    replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}}> : ({block}) -> {whole}
  %1 = stablehlo.dynamic_slice %0, %i, sizes = [4] : ({whole}, tensor<i64>) -> tensor<4xi8>
  return %1 : tensor<4xi8>
}}"""
    x = np.zeros((3, size // 3), np.int8)
    x[1, -2:], x[2, :2], x[2, -4:] = (1, 2), (3, 4), (5, 6, 7, 8)
    starts = np.array([2 * (size // 3) - 2, size - 4, size + 9], np.int64)
    (result,) = spmd.simulate(spmd.parse(text), spmd.ProcessGrid(3, 1))(x, starts)
    assert np.asarray(result).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 8]]
