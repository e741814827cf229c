"""What a lowering computes from positions: counted in integers that hold them all, converted once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import partitioner
import spmd
from tests.partitioner.running import run_parts

SHARDED = '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'
#: Element types, and a size past what they count exactly, or past their range.
COUNTED = {
    "bf16": (ml_dtypes.bfloat16, 6009), "f16": (np.float16, 3001), "f8E4M3FN": (ml_dtypes.float8_e4m3fn, 300),
    "f8E5M2": (ml_dtypes.float8_e5m2, 301), "f32": (np.float32, (1 << 24) + 1001), "f64": (np.float64, 1001),
    "i8": (np.int8, 400), "ui8": (np.uint8, 700), "i16": (np.int16, 70001), "i64": (np.int64, 100),
    "complex<f32>": (np.complex64, 1001),
}  # fmt: skip
#: Integer types of indices, and whole positions that are out of the array or at an end of the type.
INDICES = {name: np.dtype(name) for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("element", COUNTED)
def test_an_iota_counts_as_on_one_process(element: str) -> None:
    dtype, size = COUNTED[element]
    tensor = f"tensor<{size}x{element}>"
    text = f"""func.func @main() -> ({tensor} {SHARDED}) {{
  %0 = stablehlo.iota dim = 0 : {tensor}
  return %0 : {tensor}
}}"""
    (result,) = run_parts('sdy.mesh @mesh = <["x"=3]>\n' + text, [], 3)
    whole = spmd.compile(spmd.parse(text.replace(SHARDED, "")))()[0]
    assert result.dtype == whole.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result.view(np.uint8), whole.view(np.uint8))


def element_of(dtype: np.dtype) -> str:
    return f"{'ui' if dtype.kind == 'u' else 'i'}{8 * dtype.itemsize}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", INDICES)
def test_slices_and_updates_begin_where_they_do_on_one_process(name: str) -> None:
    dtype = INDICES[name]
    element, limits = element_of(dtype), np.iinfo(dtype)
    size, extent = 200, 60
    text = f"""func.func @main(%x: tensor<{size}xi32> {SHARDED}, %u: tensor<{extent}xi32>, %i: tensor<{element}>)
    -> (tensor<{extent}xi32>, tensor<{size}xi32> {SHARDED}) {{
  %0 = stablehlo.dynamic_slice %x, %i, sizes = [{extent}]
    : (tensor<{size}xi32>, tensor<{element}>) -> tensor<{extent}xi32>
  %1 = stablehlo.dynamic_update_slice %x, %u, %i
    : (tensor<{size}xi32>, tensor<{extent}xi32>, tensor<{element}>) -> tensor<{size}xi32>
  return %0, %1 : tensor<{extent}xi32>, tensor<{size}xi32>
}}"""
    x, update = np.arange(size, dtype=np.int32), -np.arange(1, extent + 1, dtype=np.int32)
    simulation = spmd.simulate(spmd.parse('sdy.mesh @mesh = <["x"=2]>\n' + text), spmd.ProcessGrid(1, 2))
    for start in sorted({limits.min, -1, 0, 39, 40, 90, 99, 100, 127, 128, 139, 140, 200, limits.max}):
        if not limits.min <= start <= limits.max:
            continue
        begin = min(max(start, 0), size - extent)
        written = x.copy()
        written[begin : begin + extent] = update
        results = simulation(*simulation.shard(x, update, np.array(start, dtype)))
        taken, updated = simulation.unshard(*results)
        np.testing.assert_array_equal(taken, x[begin : begin + extent], err_msg=f"{start}")
        np.testing.assert_array_equal(updated, written, err_msg=f"{start}")


@pytest.mark.parametrize("name", INDICES)
def test_gathers_and_scatters_go_where_they_do_on_one_process(name: str) -> None:
    """Indices at the ends of their type: a gather clamps them into the array, a scatter drops those outside."""
    dtype = INDICES[name]
    element, limits, size = element_of(dtype), np.iinfo(dtype), 200
    wanted = [limits.min, -1, 0, 99, 100, 101, 127, 128, 199, 200, 255, limits.max]
    indices = np.array([index for index in wanted if limits.min <= index <= limits.max], dtype)[:, None]
    count = len(indices)
    i, x_type = f"tensor<{count}x1x{element}>", f"tensor<{size}xi32>"
    text = f"""func.func @main(%x: {x_type} {SHARDED}, %i: {i}, %u: tensor<{count}xi32>)
    -> (tensor<{count}xi32>, {x_type} {SHARDED}) {{
  %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
    start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}}>
    : ({x_type}, {i}) -> tensor<{count}xi32>
  %1 = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
    scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %c : tensor<i32>
  }}) : ({x_type}, {i}, tensor<{count}xi32>) -> {x_type}
  return %0, %1 : tensor<{count}xi32>, {x_type}
}}"""
    x, updates = np.arange(size, dtype=np.int32), np.arange(1, count + 1, dtype=np.int32) << 10
    gathered, scattered = run_parts('sdy.mesh @mesh = <["x"=3]>\n' + text, [x, indices, updates], 3)
    places = [int(index) for index in indices[:, 0]]
    np.testing.assert_array_equal(gathered, np.clip(places, 0, size - 1))
    inside = [0 <= place < size for place in places]
    expected = x.copy()
    np.add.at(expected, np.array(places, object)[inside].astype(int), updates[inside])
    np.testing.assert_array_equal(scattered, expected)


HUGE = "tensor<8589934592xi8>"
BEYOND = {
    "slice": "%r = stablehlo.dynamic_slice %x, %i, sizes = [4] : (tensor<8589934592xi8>, tensor<i64>) -> tensor<4xi8>",
    "update": "%c = stablehlo.constant dense<1> : tensor<4xi8>\n"
    "%r = stablehlo.dynamic_update_slice %x, %c, %i : (tensor<8589934592xi8>, tensor<4xi8>, tensor<i64>) -> " + HUGE,
    "iota": "%n = stablehlo.iota dim = 0 : tensor<8589934592xui64>\n"
    f"%r = stablehlo.convert %n : (tensor<8589934592xui64>) -> {HUGE}",
    "pad": "%z = stablehlo.constant dense<1> : tensor<i8>\n"
    f"%r = stablehlo.pad %x, %z, low = [1], high = [-1], interior = [0] : ({HUGE}, tensor<i8>) -> {HUGE}",
    "reverse": f"%r = stablehlo.reverse %x, dims = [0] : {HUGE}",
    "gather": "%k = stablehlo.reshape %i : (tensor<i64>) -> tensor<1xi64>\n"
    '%r = "stablehlo.gather"(%x, %k) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], '
    "start_index_map = [0], index_vector_dim = 0>, slice_sizes = array<i64: 1>}> "
    f": ({HUGE}, tensor<1xi64>) -> tensor<i8>",
}


@pytest.mark.parametrize("name", BEYOND)
def test_positions_past_i32_are_i64(name: str) -> None:
    body = BEYOND[name]
    result = body.rpartition(" -> ")[2] if " -> " in body else HUGE
    text = f"""sdy.mesh @mesh = <["x"=4096]>
func.func @main(%x: {HUGE} {SHARDED}, %i: tensor<i64>) -> {result} {{
  {body}
  return %r : {result}
}}"""
    parts = partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, 4096))
    spmd.verify(parts.module)
    (entry,) = parts.module.functions
    narrow = [
        op for op in entry.walk() if any("i32" in str(type) and "ui32" not in str(type) for type in op.result_types)
    ]
    assert not narrow


def test_positions_are_i32_where_all_are_below_2_to_the_30() -> None:
    text = BEYOND["update"].replace("8589934592", "8192")
    module = spmd.parse(f"""sdy.mesh @mesh = <["x"=4]>
func.func @main(%x: tensor<8192xi8> {SHARDED}, %i: tensor<i64>) -> tensor<8192xi8> {{
  {text}
  return %r : tensor<8192xi8>
}}""")
    parts = partitioner.partition(module, spmd.ProcessGrid(1, 4))
    (update,) = [op for op in parts.module.walk() if op.name == "stablehlo.dynamic_update_slice"]
    assert str(update.operand_types[2]) == "tensor<i32>"
