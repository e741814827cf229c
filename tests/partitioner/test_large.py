"""Meshes of many devices: nothing in the program or in its making has an entry for each of them.

The forms of large meshes are run on small ones, by setting the limit down.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partitioner
import spmd
from partitioner import emit, reshard
from partitioner.lowering.core import Lowering
from partitioner.report import collectives
from partitioner.window import contiguous_window, rounds
from tests.effort import some_slow
from tests.partitioner.drawn_programs import draw
from tests.partitioner.running import run_parts, run_whole


def _layers(devices: int, *, rows: int = 1) -> str:
    """Two layers, batch over one axis and features over the other."""
    side = round(devices**0.5)
    lines = [f"%x0 = stablehlo.convert %x : tensor<{devices * rows}x512xf32>"]
    for layer in range(2):
        lines += [
            f"%d{layer} = stablehlo.dot_general %x{layer}, %w, contracting_dims = [1] x [0]"
            f" : (tensor<{devices * rows}x512xf32>, tensor<512x512xf32>) -> tensor<{devices * rows}x512xf32>",
            f"%x{layer + 1} = stablehlo.tanh %d{layer} : tensor<{devices * rows}x512xf32>",
        ]
    body = "\n".join(lines)
    return f"""sdy.mesh @mesh = <["data"={side}, "model"={devices // side}]>
func.func @main(%x: tensor<{devices * rows}x512xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{"model"}}]>}},
    %w: tensor<512x512xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{"model"}}]>}})
    -> (tensor<{devices * rows}x512xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{"model"}}]>}}) {{
{body}
return %x2 : tensor<{devices * rows}x512xf32>
}}"""


def test_the_text_does_not_grow_with_the_mesh() -> None:
    small, large = (str(partitioner.partition(spmd.parse(_layers(count))).module) for count in (4096, 65536))
    assert len(large) < 1.1 * len(small) < 10_000
    assert "replica_group_mesh_axes<mesh = #stablehlo.mesh<axes" in large


def test_the_table_counts_groups_given_as_axes() -> None:
    rows = collectives(partitioner.partition(spmd.parse(_layers(4096))).module)
    assert {(row.kind, row.groups) for row in rows} == {("all_gather", "64x64")}
    assert {row.bytes for row in rows} == {64 * 8 * 4 * 63}


def test_the_search_for_a_way_does_not_grow_with_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    moves = reshard._moves

    def counted(*arguments_of_call):  # type: ignore[no-untyped-def]
        tried.append(1)
        return moves(*arguments_of_call)

    monkeypatch.setattr(reshard, "_moves", counted)
    counts = []
    for devices in (4096, 65536):
        reshard._plan.cache_clear()
        tried.clear()
        partitioner.partition(spmd.parse(_layers(devices)))
        counts.append(len(tried))
    assert counts[1] <= 2 * counts[0]


@pytest.mark.parametrize("seed", some_slow(range(40), 15))
def test_large_forms_give_what_small_ones_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "_LARGE", 1)
    monkeypatch.setattr(reshard, "_MOST_SUB_AXES", 0)
    reshard._plan.cache_clear()
    drawn = draw(1000 + seed)
    expected = run_whole(drawn.whole, drawn.arguments)
    actual = run_parts(drawn.sharded, drawn.arguments, drawn.devices)
    reshard._plan.cache_clear()
    for part, desired in zip(actual, expected, strict=True):
        np.testing.assert_allclose(part, desired, rtol=1e-4, atol=1e-4, err_msg=drawn.sharded)


def test_groups_of_several_replicas_as_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "_LARGE", 1)
    text = """sdy.mesh @mesh = <["replica"=2, "y":2]>
func.func @main(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"replica"}, {"y"}]>})
    -> (tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) {
  return %a : tensor<4x4xf32>
}""".replace('"y":2', '"y"=2')
    grid = spmd.ProcessGrid(2, 4)
    parts = partitioner.partition(spmd.parse(text), grid)
    assert '<name = "replica_", size = 2>' in str(parts.module)
    wholes = [np.arange(16, dtype=np.float32).reshape(4, 4) + 100 * replica for replica in range(2)]
    inputs = [[partitioner.shard_array(wholes[rank // 4], parts.in_shardings[0], rank)] for rank in range(8)]
    results = spmd.run_parallel(parts.module, grid, inputs, timeout=30)
    for replica, whole in enumerate(wholes):
        blocks = [results[4 * replica + device][0] for device in range(4)]
        np.testing.assert_array_equal(partitioner.join_blocks(blocks, parts.out_shardings[0]), whole)


_EMPTY = """sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func @main(%a: tensor<0x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
    %b: tensor<4x0xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>})
    -> (tensor<0x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
        tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>},
        tensor<0xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
  %t = stablehlo.transpose %b, dims = [1, 0] : (tensor<4x0xf32>) -> tensor<0x4xf32>
  %0 = stablehlo.reverse %a, dims = [1] : tensor<0x4xf32>
  %1 = stablehlo.dot_general %b, %t, contracting_dims = [1] x [0]
      : (tensor<4x0xf32>, tensor<0x4xf32>) -> tensor<4x4xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%b init: %c) applies stablehlo.add across dimensions = [0]
      : (tensor<4x0xf32>, tensor<f32>) -> tensor<0xf32>
  return %0, %1, %2 : tensor<0x4xf32>, tensor<4x4xf32>, tensor<0xf32>
}"""


def test_empty_values_need_no_collective() -> None:
    module = spmd.parse(_EMPTY)
    for op in partitioner.partition(module).module.walk():
        if op.name in ("stablehlo.all_gather", "stablehlo.all_to_all", "stablehlo.collective_permute"):
            assert op.operands[0].tensor.size
    a, b = np.zeros((0, 4), np.float32), np.zeros((4, 0), np.float32)
    results = run_parts(_EMPTY, [a, b], 4)
    assert [array.shape for array in results] == [(0, 4), (4, 4), (0,)]
    np.testing.assert_array_equal(results[1], np.zeros((4, 4)))


def _nested(depth: int) -> str:
    """Loops in loops, each of which sums up what the one inside gives."""
    text, value = (
        "%t = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]"
        " : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>\n",
        "%t",
    )
    for d in range(depth):
        text = f"""%z{d} = stablehlo.constant dense<0.0> : tensor<8x8xf32>
%i{d} = stablehlo.constant dense<0> : tensor<i32>
%n{d} = stablehlo.constant dense<2> : tensor<i32>
%o{d} = stablehlo.constant dense<1> : tensor<i32>
%w{d}:2 = stablehlo.while(%p{d} = %z{d}, %k{d} = %i{d}) : tensor<8x8xf32>, tensor<i32>
cond {{
  %c{d} = stablehlo.compare LT, %k{d}, %n{d} : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %c{d} : tensor<i1>
}} do {{
  {text}
  %x{d} = stablehlo.add %p{d}, {value} : tensor<8x8xf32>
  %y{d} = stablehlo.add %k{d}, %o{d} : tensor<i32>
  stablehlo.return %x{d}, %y{d} : tensor<8x8xf32>, tensor<i32>
}}
"""
        value = f"%w{d}#0"
    cuts = [f"{{sdy.sharding = #sdy.sharding<@mesh, [{axes}]>}}" for axes in ('{}, {"x"}', '{"x"}, {}')]
    return (
        f'sdy.mesh @mesh = <["x"=2]>\nfunc.func @main(%a: tensor<8x8xf32> {cuts[0]}, %b: tensor<8x8xf32> {cuts[1]})'
        f" -> tensor<8x8xf32> {{\n{text}return {value} : tensor<8x8xf32>\n}}"
    )


def test_nested_loops_are_not_tried_again_for_each_loop_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    block = Lowering.block

    def counted(lowering, source, arguments, *, is_loop):  # type: ignore[no-untyped-def]
        written.append(source)
        return block(lowering, source, arguments, is_loop=is_loop)

    monkeypatch.setattr(Lowering, "block", counted)
    counts = []
    for depth in (4, 8, 12):
        written.clear()
        partitioner.partition(spmd.parse(_nested(depth)))
        counts.append(len(written))
    assert counts[2] - counts[1] == counts[1] - counts[0]


def test_nested_sums_are_reduced_once() -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, (8, 8)).astype(np.float32) for _ in range(2))
    np.testing.assert_array_equal(run_parts(_nested(3), [a, b], 2)[0], 8 * (a @ b))
    kinds = [op.name for op in partitioner.partition(spmd.parse(_nested(3))).module.walk() if "all_reduce" in op.name]
    assert kinds == ["stablehlo.all_reduce"]


@pytest.mark.parametrize(
    "text",
    ["{devices=[65536]<=[65536]}", "{devices=[256,256]<=[16,16,16,16]T(2,0,3,1)}", "{devices=[16,4096]<=[65536]}"],
)
def test_large_tiles_are_read(text: str) -> None:
    program = f"""func.func @main(%a: tensor<65536x65536xi8> {{mhlo.sharding = "{text}"}}) -> tensor<65536x65536xi8> {{
  return %a : tensor<65536x65536xi8>
}}""".replace("65536x65536", "65536" if text.count(",") == 0 else "65536x65536")
    parts = partitioner.partition(spmd.parse(program))
    assert parts.in_shardings[0].sharding.mesh.size == 65536


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{devices=[1099511627776]<=[1099511627776]}", "there must be at most"),
        ("{devices=[99999999999999999999999]<=[99999999999999999999999]}", "digits"),
        ("{devices=[2,-2]<=[4]}", "not a sharding"),
        ("{devices=[0]<=[0]}", "at least 1"),
        ("{devices=[2,2]<=[5]}", "must be equal, got 4 and 5"),
        ("{devices=[2]0,0}", "a permutation of 0 to 1"),
        ("{devices=[2]<=[2]T(3)}", "must be a permutation of"),
    ],
)
def test_tiles_that_cannot_be(text: str, what: str) -> None:
    program = f"""func.func @main(%a: tensor<8xf32> {{mhlo.sharding = "{text}"}}) -> tensor<8xf32> {{
  return %a : tensor<8xf32>
}}"""
    with pytest.raises(spmd.CompileError, match=rf"^<string>:1:1: func\.func: argument 0 of @main: .*{what}"):
        partitioner.partition(spmd.parse(program))


def test_a_mesh_too_large_for_anything() -> None:
    program = """sdy.mesh @mesh = <["x"=1000000000000]>
func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
  return %a : tensor<8xf32>
}"""
    with pytest.raises(spmd.CompileError, match="got 1,000,000,000,000"):
        partitioner.partition(spmd.parse(program))


@pytest.mark.parametrize("depth", [600, 5000])
def test_a_chain_of_calls_is_as_long_as_it_likes(depth: int) -> None:
    """Each of its functions calls the next; the last one adds 1."""
    type = "tensor<4xf32>"
    links = [
        f"""func.func private @f{k}(%0: {type}) -> {type} {{
  %1 = call @f{k + 1}(%0) : ({type}) -> {type}
  return %1 : {type} }}"""
        for k in range(depth)
    ]
    text = f"""sdy.mesh @mesh = <["x"=2]>
func.func @main(%0: {type} {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}}) -> {type} {{
  %1 = call @f0(%0) : ({type}) -> {type}
  return %1 : {type}
}}
{chr(10).join(links)}
func.func private @f{depth}(%0: {type}) -> {type} {{
  %c = stablehlo.constant dense<1.0> : {type}
  %1 = stablehlo.add %0, %c : {type}
  return %1 : {type}
}}"""
    (counted,) = run_parts(text, [np.arange(4, dtype=np.float32)], 2)
    assert counted.tolist() == [1, 2, 3, 4]


def test_regions_that_nest_too_deep_are_refused() -> None:
    text = ""
    signature = "(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32>"
    call = "(tensor<i1>, tensor<4xf32>) -> tensor<4xf32>"
    for k in range(2000):
        text += f"""func.func private @f{k}{signature} {{
  %0 = "stablehlo.if"(%p) ({{
    %1 = func.call @f{k + 1}(%p, %x) : {call}
    stablehlo.return %1 : tensor<4xf32>
  }}, {{ stablehlo.return %x : tensor<4xf32> }}) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32> }}\n"""
    text += f"""func.func private @f2000{signature} {{ return %x : tensor<4xf32> }}
sdy.mesh @mesh = <["x"=2]>
func.func @main(%p: tensor<i1>, %x: tensor<4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}})
    -> tensor<4xf32> {{
  %0 = call @f0(%p, %x) : {call}
  return %0 : tensor<4xf32>
}}"""
    with pytest.raises(spmd.CompileError, match="@main nests too deep"):
        partitioner.partition(spmd.parse(text))


def test_neighbours_of_many_blocks_are_found_at_once() -> None:
    """A shift by one element: every process but one has one neighbour, whatever their number."""
    blocks = 1 << 14
    type = f"tensor<{2 * blocks}xf32>"
    text = f"""sdy.mesh @mesh = <["x"={blocks}]>
func.func @main(%a: {type} {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}}) -> {type} {{
  %0 = stablehlo.slice %a [1:{2 * blocks}] : ({type}) -> tensor<{2 * blocks - 1}xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.pad %0, %c, low = [0], high = [1], interior = [0]
      : (tensor<{2 * blocks - 1}xf32>, tensor<f32>) -> {type}
  return %1 : {type}
}}"""
    (permute,) = [
        op for op in partitioner.partition(spmd.parse(text)).module.walk() if op.name == "stablehlo.collective_permute"
    ]
    assert permute.operands[0].tensor.static_shape == (1,)
    assert permute["source_target_pairs"].tolist() == [[k + 1, k] for k in range(blocks - 1)]


@given(st.data())
def test_rounds_are_dealt_out_to_the_first_that_is_free(data: st.DataObject) -> None:
    blocks, size = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 20))
    width = data.draw(st.integers(1, 8))
    starts = data.draw(st.lists(st.integers(-5, 25), min_size=blocks, max_size=blocks))
    stays, moves = rounds(contiguous_window(max(size, 1), blocks, starts, width))
    assert all(transfer.sender == transfer.receiver for group in stays for transfer in group)
    for dealt in (stays, moves):
        for number, group in enumerate(dealt):
            assert len({transfer.sender for transfer in group}) == len(group)
            assert len({transfer.receiver for transfer in group}) == len(group)
            for transfer in group:
                assert all(
                    any(other.sender == transfer.sender or other.receiver == transfer.receiver for other in earlier)
                    for earlier in dealt[:number]
                )
    held = [0] * blocks
    for transfer in (transfer for group in (*stays, *moves) for transfer in group):
        held[transfer.receiver] += transfer.length
    assert held == [max(0, min(start + width, max(size, 1)) - max(start, 0)) for start in starts]
