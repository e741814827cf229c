"""Programs cut into parts: results, what is sent, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

import partitioner
import spmd
from partitioner.lowering import Lowering
from partitioner.lowering import core as lowering_core
from partitioner.report import collectives, format_table, total_bytes
from spmd.errors import InternalError
from spmd.ir import Op
from tests.loops import counted_loop
from tests.partitioner.loops import THREE_TURNS
from tests.partitioner.running import Array, collective_kinds, run_parts, run_whole

_MESH = 'sdy.mesh @mesh = <["x"=2, "y"=2]>\n'
_RANDOM = np.random.default_rng(0)


def _array(*shape: int) -> Array:
    return _RANDOM.integers(-4, 5, shape).astype(np.float32)


def _agree(sharded: str, whole: str, *arguments: Array, devices: int = 4) -> None:
    for part, desired in zip(run_parts(sharded, arguments, devices), run_whole(whole, arguments), strict=True):
        np.testing.assert_allclose(part, desired, rtol=1e-5, atol=1e-5)


#: Where the sharding of an argument or a result goes, behind its type.
_MARK = re.compile(r"(?<=>)[A-Z]S\b")


def _placed(text: str, **specs: str) -> str:
    """`text` with the dimension shardings of `specs` at their marks, and the mesh they are of."""
    shardings = {name: f" {{sdy.sharding = #sdy.sharding<@mesh, [{spec}]>}}" for name, spec in specs.items()}
    return _MESH + _MARK.sub(lambda mark: shardings.get(mark[0], ""), text)


def _whole(text: str) -> str:
    """`text` without shardings."""
    return _MARK.sub("", text)


_MLP = """func.func @main(%x: tensor<8x6xf32>XS, %u: tensor<6x12xf32>US, %d: tensor<12x6xf32>DS)
    -> (tensor<8x6xf32>RS) {
  %h = stablehlo.dot_general %x, %u, contracting_dims = [1] x [0]
      : (tensor<8x6xf32>, tensor<6x12xf32>) -> tensor<8x12xf32>
  %t = stablehlo.tanh %h : tensor<8x12xf32>
  %o = stablehlo.dot_general %t, %d, contracting_dims = [1] x [0]
      : (tensor<8x12xf32>, tensor<12x6xf32>) -> tensor<8x6xf32>
  return %o : tensor<8x6xf32>
}"""


def _mlp(**specs: str) -> str:
    return _placed(_MLP, **specs) if specs else _whole(_MLP)


@pytest.mark.parametrize(
    ("specs", "kinds"),
    [
        ({"XS": '{"x"}, {}', "US": "{}, {}", "DS": "{}, {}"}, []),
        # Hidden units cut: one sum at the end.
        ({"XS": "{}, {}", "US": '{}, {"x"}', "DS": '{"x"}, {}', "RS": "{}, {}"}, ["all_reduce"]),
        # The sum leaves cut when the result is cut.
        ({"XS": "{}, {}", "US": '{}, {"x"}', "DS": '{"x"}, {}', "RS": '{"x"}, {}'}, ["reduce_scatter"]),
        # Parameters cut as the batch is: gathered where they are used.
        ({"XS": '{"x"}, {}', "US": '{"x"}, {}', "DS": '{"x"}, {}', "RS": '{"x"}, {}'}, ["all_gather", "all_gather"]),
    ],
)
def test_what_an_mlp_sends(specs: dict[str, str], kinds: list[str]) -> None:
    assert collective_kinds(_mlp(**specs), 4) == kinds
    _agree(_mlp(**specs), _mlp(), _array(8, 6), _array(6, 12), _array(12, 6))


def test_sums_of_partial_values_are_reduced_once() -> None:
    text = """func.func @main(%a: tensor<4x8xf32>AS, %b: tensor<8x4xf32>BS) -> tensor<4x4xf32> {
      %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
      %c = stablehlo.negate %a : tensor<4x8xf32>
      %q = stablehlo.dot_general %c, %b, contracting_dims = [1] x [0]
          : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
      %t = stablehlo.transpose %q, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %s = stablehlo.add %p, %t : tensor<4x4xf32>
      return %s : tensor<4x4xf32>
    }"""
    sharded = _placed(text, AS='{}, {"x"}', BS='{"x"}, {}')
    assert collective_kinds(sharded, 4) == ["all_reduce"]
    _agree(sharded, _whole(text), _array(4, 8), _array(8, 4))


def test_users_of_one_value_share_its_resharding() -> None:
    text = """func.func @main(%a: tensor<8x4xf32>AS) -> (tensor<8x4xf32>RS, tensor<8x4xf32>RS) {
      %b = stablehlo.reverse %a, dims = [0] : tensor<8x4xf32>
      %c = stablehlo.sine %a : tensor<8x4xf32>
      return %c, %a : tensor<8x4xf32>, tensor<8x4xf32>
    }"""
    sharded = _placed(text, AS='{"x"}, {}', RS='{}, {"x"}')
    # sine(a) moves once, and so does a, however it is asked for.
    assert len(collective_kinds(sharded, 4)) <= 2
    _agree(sharded, _whole(text), _array(8, 4))


_LOOP = """func.func @main(%a: tensor<8x4xf32>AS, %w: tensor<4x4xf32>WS) -> tensor<8x4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:3 = stablehlo.while(%i = %zero, %s = %a, %v = %w) : tensor<i32>, tensor<8x4xf32>, tensor<4x4xf32>
  THREE_TURNS
    %u = stablehlo.dot_general %s, %v, contracting_dims = [1] x [0]
        : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %q = stablehlo.sign %u : tensor<8x4xf32>
    stablehlo.return %j, %q, %v : tensor<i32>, tensor<8x4xf32>, tensor<4x4xf32>
  }
  return %r#1 : tensor<8x4xf32>
}""".replace("THREE_TURNS", THREE_TURNS)


def test_what_a_loop_does_not_change_is_resharded_outside() -> None:
    sharded = _placed(_LOOP, AS='{"x"}, {}', WS='{"x"}, {}')
    parts = partitioner.partition(spmd.parse(sharded), spmd.ProcessGrid(1, 4))
    rows = collectives(parts.module)
    assert [(row.kind, row.turns) for row in rows] == [("all_gather", 1)]
    _agree(sharded, _whole(_LOOP), _array(8, 4), _array(4, 4))


def test_sums_over_a_loop_are_reduced_once() -> None:
    text = """func.func @main(%a: tensor<8x4xf32>AS) -> tensor<4x4xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %none = stablehlo.constant dense<1.0> : tensor<4x4xf32>
      %r:3 = stablehlo.while(%i = %zero, %s = %none, %x = %a) : tensor<i32>, tensor<4x4xf32>, tensor<8x4xf32>
      THREE_TURNS
        %y = stablehlo.negate %x : tensor<8x4xf32>
        %g = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0]
          : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
        %u = stablehlo.add %s, %g : tensor<4x4xf32>
        stablehlo.return %j, %u, %y : tensor<i32>, tensor<4x4xf32>, tensor<8x4xf32>
      }
      return %r#1 : tensor<4x4xf32>
    }""".replace("THREE_TURNS", THREE_TURNS)
    sharded = _placed(text, AS='{"x", "y"}, {}')
    parts = partitioner.partition(spmd.parse(sharded), spmd.ProcessGrid(1, 4))
    assert [(row.kind, row.turns) for row in collectives(parts.module)] == [("all_reduce", 1)]
    _agree(sharded, _whole(text), _array(8, 4))


def test_unreduced_values_wait() -> None:
    text = (
        _MESH
        + """
    func.func @main(%a: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
                    %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<4x4xf32> {
      %p = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
      %u = sdy.sharding_constraint %p <@mesh, [{}, {}], unreduced={"x"}> : tensor<4x4xf32>
      %r = sdy.sharding_constraint %u <@mesh, [{"x"}, {}]> : tensor<4x4xf32>
      return %r : tensor<4x4xf32>
    }"""
    )
    assert collective_kinds(text, 4) == ["reduce_scatter"]
    a, b = _array(4, 8), _array(8, 4)
    np.testing.assert_allclose(run_parts(text, [a, b], 4)[0], a @ b)


def test_values_made_unreduced_keep_their_sum() -> None:
    text = (
        _MESH
        + """
    func.func @main(%a: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) -> tensor<4x8xf32> {
      %u = sdy.replicated_to_unreduced {"x"} %a out_sharding=<@mesh, [{}, {}], unreduced={"x"}> : tensor<4x8xf32>
      %r = sdy.all_reduce {"x"} %u out_sharding=<@mesh, [{}, {}]> : tensor<4x8xf32>
      return %r : tensor<4x8xf32>
    }"""
    )
    a = _array(4, 8)
    np.testing.assert_array_equal(run_parts(text, [a], 4)[0], a)


@pytest.mark.parametrize(("size", "before"), [(8, []), (7, []), (5, ["all_gather"])])
def test_blocks_made_unreduced_are_sent_nowhere(size: int, before: list[str]) -> None:
    """A block stands among nothing: the sum over the processes, zeros' signs included, is the whole.

    Blocks of 2 of a dimension of 5 do not make those of 3 up: they are gathered first.
    """
    text = (
        _MESH
        + f"""
    func.func @main(%a: tensor<{size}x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x", "y"}}, {{}}]>}})
        -> tensor<{size}x4xf32> {{
      %u = sdy.sharded_to_unreduced [{{"y"}}, {{}}] %a out_sharding=<@mesh, [{{"x"}}, {{}}], unreduced={{"y"}}>
          : tensor<{size}x4xf32>
      %v = sdy.sharded_to_unreduced [{{"x"}}, {{}}] %u out_sharding=<@mesh, [{{}}, {{}}], unreduced={{"x", "y"}}>
          : tensor<{size}x4xf32>
      %r = sdy.all_reduce {{"x", "y"}} %v out_sharding=<@mesh, [{{}}, {{}}]> : tensor<{size}x4xf32>
      return %r : tensor<{size}x4xf32>
    }}"""
    )
    assert collective_kinds(text, 4) == [*before, "all_reduce"]
    a = _array(size, 4)
    a[0], a[-1] = -0.0, 0.0
    result = run_parts(text, [a], 4)[0]
    np.testing.assert_array_equal(result.view(np.int32), a.view(np.int32))


@pytest.mark.parametrize(("groups", "batch"), [("batch", 4), ("feature", 1)])
def test_groups_of_a_convolution_are_cut_where_processes_have_as_many(groups: str, batch: int) -> None:
    """Four groups over three devices: each does all of them."""
    counts = {"batch": "batch_group_count = 4 : i64, feature_group_count = 1 : i64",
              "feature": "batch_group_count = 1 : i64, feature_group_count = 4 : i64"}[groups]  # fmt: skip
    features = 1 if groups == "batch" else 4
    types = f"(tensor<{batch}x6x{features}xf32>, tensor<3x1x4xf32>) -> tensor<1x4x4xf32>"
    body = f"""
      %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {{stride = [1]}}
          {{{counts}}} : {types}
      return %0 : tensor<1x4x4xf32>
    }}"""
    cut = '{sdy.sharding = #sdy.sharding<@three, [{}, {}, {"x"}]>}'
    head = f"func.func @main(%a: tensor<{batch}x6x{features}xf32>, %b: tensor<3x1x4xf32> CUT) -> "
    sharded = f'sdy.mesh @three = <["x"=3]>\n{head.replace("CUT", cut)}(tensor<1x4x4xf32> {cut}) {{{body}'
    arguments = [_array(batch, 6, features), _array(3, 1, 4)]
    expected = run_whole(f"{head.replace('CUT', '')}tensor<1x4x4xf32> {{{body}", arguments)[0]
    np.testing.assert_allclose(run_parts(sharded, arguments, 3)[0], expected)


def test_manual_computations_stand_among_automatic_code() -> None:
    text = (
        _MESH
        + """
    func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {}]>}) -> tensor<4xf32> {
      %b = stablehlo.add %a, %a : tensor<8x4xf32>
      %c = sdy.manual_computation(%b) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{}, {}]>]
          manual_axes={"x"} (%p: tensor<4x4xf32>) {
        %s = "stablehlo.all_reduce"(%p) <{replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>,
            channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}> ({
        ^bb0(%l: tensor<f32>, %r: tensor<f32>):
          %t = stablehlo.add %l, %r : tensor<f32>
          stablehlo.return %t : tensor<f32>
        }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
        sdy.return %s : tensor<4x4xf32>
      } : (tensor<8x4xf32>) -> tensor<4x4xf32>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %d = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [0]
        : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
      return %d : tensor<4xf32>
    }"""
    )
    a = _array(8, 4)
    np.testing.assert_allclose(run_parts(text, [a], 4)[0], (2 * a).sum(0))


def test_dimensions_that_axes_do_not_divide_are_padded_and_nobody_sees_it() -> None:
    text = """func.func @main(%a: tensor<5x3xf32>AS) -> (tensor<3xf32>, tensor<5x3xf32>, tensor<3xf32>) {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %i = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %s = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0]
        : (tensor<5x3xf32>, tensor<f32>) -> tensor<3xf32>
      %e = stablehlo.exponential %a : tensor<5x3xf32>
      %m = stablehlo.reduce(%e init: %i) applies stablehlo.maximum across dimensions = [0]
        : (tensor<5x3xf32>, tensor<f32>) -> tensor<3xf32>
      %r = stablehlo.reverse %e, dims = [0] : tensor<5x3xf32>
      return %s, %r, %m : tensor<3xf32>, tensor<5x3xf32>, tensor<3xf32>
    }"""
    _agree(_placed(text, AS='{"x", "y"}, {}'), _whole(text), -np.abs(_array(5, 3)) - 1)


def test_device_order_is_the_mesh_s() -> None:
    text = """sdy.mesh @mesh = <["x"=4], device_ids=[3, 1, 0, 2]>
    func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
      %b = stablehlo.reverse %a, dims = [0] : tensor<8xf32>
      return %b : tensor<8xf32>
    }"""
    parts = partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, 4))
    assert [parts.in_shardings[0].index(rank)[0].start for rank in range(4)] == [4, 2, 6, 0]
    a = _array(8)
    np.testing.assert_array_equal(run_parts(text, [a], 4)[0], a[::-1])


def test_replicas_run_apart() -> None:
    text = _mlp(XS="{}, {}", US='{}, {"x"}', DS='{"x"}, {}', RS="{}, {}")
    module, grid = spmd.parse(text), spmd.ProcessGrid(2, 4)
    parts = partitioner.partition(module, grid)
    batches = [[_array(8, 6), _array(6, 12), _array(12, 6)] for _ in range(2)]
    inputs = [
        [
            partitioner.shard_array(a, layout, rank)
            for a, layout in zip(batches[rank // 4], parts.in_shardings, strict=True)
        ]
        for rank in range(8)
    ]
    results = spmd.run_parallel(parts.module, grid, inputs)
    for replica in range(2):
        (desired,) = run_whole(_mlp(), batches[replica])
        blocks = [results[4 * replica + index][0] for index in range(4)]
        joined = partitioner.join_blocks(blocks, parts.out_shardings[0])
        # Sums of up to 15 in another order, of which some nearly cancel.
        np.testing.assert_allclose(joined, desired, rtol=1e-5, atol=1e-5)


def test_shardings_put_on_a_program_without_any() -> None:
    plain = spmd.parse(_mlp())
    module = partitioner.with_shardings(plain, {"x": 2, "y": 2}, [("x",), (None, "y"), ("y", None)], [("x",)])
    assert partitioner.is_sharded(module)
    assert not partitioner.is_sharded(plain)
    spmd.verify(module)
    arguments = [_array(8, 6), _array(6, 12), _array(12, 6)]
    (actual,) = run_parts(str(module), arguments, 4)
    np.testing.assert_allclose(actual, run_whole(_mlp(), arguments)[0], rtol=1e-5)


def test_the_table_tells_what_is_sent_and_where() -> None:
    text = _mlp(XS="{}, {}", US='{}, {"x"}', DS='{"x"}, {}', RS="{}, {}")
    parts = partitioner.partition(spmd.parse(text, "mlp.mlir"), spmd.ProcessGrid(1, 4))
    (row,) = collectives(parts.module)
    # An all_reduce of 8x6 floats between two processes sends the value once.
    assert (row.kind, row.groups, row.bytes, row.turns) == ("all_reduce", "2x2", 8 * 6 * 4, 1)
    assert row.place.startswith("mlp.mlir:7:")
    assert total_bytes(parts.module) == row.bytes
    assert "all_reduce" in format_table(parts.module)


@pytest.mark.parametrize(("turns", "shown", "counted"), [(7, "7", 7), ("%n", "?", 1)])
def test_the_table_counts_the_turns_of_loops(turns: int | str, shown: str, counted: int) -> None:
    """Seven sums over two processes of 4 numbers; of a loop that does not say how many turns it makes, of one."""
    body = """%s = stablehlo.reduce(%v init: %zero) applies stablehlo.add across dimensions = [0]
        : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
      %u = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<4xf32>) -> tensor<8x4xf32>"""
    taken = "" if isinstance(turns, int) else ", %n: tensor<i32>"
    text = f"""{_MESH}
    func.func @main(%x: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}{taken})
        -> (tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}) {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
    {counted_loop("tensor<8x4xf32>", body, turns)}
      return %r#1 : tensor<8x4xf32>
    }}"""
    module = partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, 4)).module
    (row,) = collectives(module)
    assert row.bytes == 16 and total_bytes(module) == counted * 16
    header, line, total, whole = [line.split() for line in format_table(module).splitlines()]
    assert header[3] == "turns" and line[:4] == ["all_reduce", "2x2", "16", shown]
    assert total[:4] == ["total", "all_reduce", "1x", str(counted * 16)] and whole[:3] == ["total", "1x", total[3]]


def test_what_cannot_be_split_is_said() -> None:
    text = (
        _MESH
        + """
    func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
      %b = stablehlo.custom_call @somebody(%a) : (tensor<8xf32>) -> tensor<8xf32>
      return %b : tensor<8xf32>
    }"""
    )
    parts = partitioner.partition(spmd.parse(text, "call.mlir"), spmd.ProcessGrid(1, 4))
    (note,) = parts.notes
    assert note.startswith("call.mlir:4:")
    assert "somebody" in note or "custom_call" in note


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_mesh_that_does_not_fit_the_grid() -> None:
    with pytest.raises(spmd.CompileError, match=r"mlp\.mlir:1:1.*mesh's 4 devices as partitions, got 8"):
        spmd.compile(spmd.parse(_mlp(XS='{"x"}, {}'), "mlp.mlir"), spmd.ProcessGrid(1, 8))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ('{"x"}, {"x"}', "used twice"),
        ('{"q"}, {}', 'unknown axis "q"'),
        ('{"x"}', "must have the tensor's rank 2, got 1"),
        ('{"x":(1)3}, {}', "does not divide"),
        ('{"x":(1)2}, {}', "is the full axis"),
    ],
)
def test_shardings_that_break_a_constraint(spec: str, message: str) -> None:
    with pytest.raises(spmd.VerificationError, match=message):
        spmd.parse(_mlp(XS=spec))


def test_a_group_asked_for_two_layouts() -> None:
    text = (
        _MESH
        + """
    func.func @main(%a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                    %b: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) -> tensor<8x4xf32> {
      sdy.sharding_group %a group_id=0 : tensor<8x4xf32>
      sdy.sharding_group %b group_id=0 : tensor<8x4xf32>
      return %a : tensor<8x4xf32>
    }"""
    )
    with pytest.raises(spmd.CompileError, match="shardings of a sharding group must be equal"):
        partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, 4))


def test_dynamic_shapes_are_refused_with_their_place() -> None:
    text = (
        _MESH
        + """
    func.func @main(%a: tensor<?xf32>, %b: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
        -> tensor<?xf32> {
      %c = stablehlo.sine %a : tensor<?xf32>
      return %c : tensor<?xf32>
    }"""
    )
    with pytest.raises(spmd.CompileError, match=r"dyn\.mlir:.*static shape"):
        partitioner.partition(spmd.parse(text, "dyn.mlir"), spmd.ProcessGrid(1, 4))


def test_a_mesh_of_one_device_leaves_the_program_as_it_is() -> None:
    """JAX's exports name the empty mesh wherever a random key is an argument."""
    module = spmd.parse("""sdy.mesh @empty_mesh = <[]>
        func.func @twice(%x: tensor<2xui32>) -> tensor<2xui32> {
          %y = sdy.sharding_constraint %x <@empty_mesh, [{}]> : tensor<2xui32>
          %z = stablehlo.add %y, %x : tensor<2xui32>
          return %z : tensor<2xui32>
        }
        func.func @main(%x: tensor<2xui32>) -> tensor<2xui32> {
          %y = sdy.sharding_constraint %x <@empty_mesh, [{}]> : tensor<2xui32>
          %z = call @twice(%y) : (tensor<2xui32>) -> tensor<2xui32>
          return %z : tensor<2xui32>
        }""")
    parts = partitioner.partition(module)
    assert [op.name for op in parts.module.function("main").body.ops] == ["func.call", "func.return"]
    executable = spmd.compile(module)
    x = np.array([3, 4], np.uint32)
    (block,) = executable(*executable.shard(x))
    assert executable.unshard(block)[0].tolist() == [6, 8]


def test_a_block_that_is_not_of_its_layout_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a handler lowers an op: what it files is compared with the layout that it says."""

    def wrong(lowering: Lowering, op: Op) -> None:
        lowering.set(op.result, lowering.replicated(op.operands[0]), lowering.target_sharding(op.result))

    monkeypatch.setitem(lowering_core._HANDLERS, "stablehlo.negate", wrong)
    text = _placed(
        "func.func @main(%x: tensor<8xf32>XS) -> tensor<8xf32> {\n%r = stablehlo.negate %x : tensor<8xf32>\n"
        "return %r : tensor<8xf32>\n}",
        XS='{"x"}',
    )
    with pytest.raises(InternalError, match=r'negate: a block of tensor<8xf32> laid out as \[\{"x"\}\] is of type'):
        partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, 4))


def test_the_mesh_is_the_grid_where_none_is_given() -> None:
    text = _placed(
        "func.func @main(%x: tensor<8xf32>XS) -> (tensor<8xf32>RS) {\n%r = stablehlo.negate %x : tensor<8xf32>\n"
        "return %r : tensor<8xf32>\n}",
        XS='{"x"}',
        RS='{"x", "y"}',
    )
    module, x = spmd.parse(text), np.arange(8, dtype=np.float32)
    assert spmd.compile(module).grid == spmd.simulate(module).grid == spmd.ProcessGrid(1, 4)
    simulation = spmd.simulate(module)
    np.testing.assert_array_equal(simulation.unshard(*simulation(*simulation.shard(x)))[0], -x)
    blocks = spmd.run_parallel(module, inputs=[[x[4 * (rank // 2) :][:4]] for rank in range(4)])
    np.testing.assert_array_equal(np.concatenate([block for (block,) in blocks]), -x)


def test_an_array_is_not_put_together_of_some_of_its_blocks() -> None:
    text = _placed("func.func @main(%x: tensor<8xf32>XS) -> tensor<8xf32> { return %x : tensor<8xf32> }", XS='{"x"}')
    (layout,) = partitioner.partition(spmd.parse(text), spmd.ProcessGrid(1, 4)).in_shardings
    blocks = [np.full(4, rank // 2, np.float32) for rank in range(4)]
    assert partitioner.join_blocks(blocks, layout).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="a block for each of 4 devices, got 3"):
        partitioner.join_blocks(blocks[:3], layout)
