"""Programs with shardings whose sizes their arguments tell."""

import copy
from typing import Any

import numpy as np
import pytest

import partitioner
import spmd
from spmd.runtime.symbolic import SymbolicExecutable
from spmd.support.arrays import Array
from tests.jax_meshes import abstract_mesh

HEADER = """module attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
"""
TANH = (
    HEADER
    + """
  func.func @main(%a: tensor<?x?xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
                  %w: tensor<?x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>})
      -> (tensor<?x8xf32>, tensor<?xf32>) {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %n = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
    %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
      : (tensor<?x?xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %1 = stablehlo.tanh %0 : tensor<?x8xf32>
    %2 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0]
      : (tensor<?x?xf32>, tensor<f32>) -> tensor<?xf32>
    return %1, %2 : tensor<?x8xf32>, tensor<?xf32>
  }
}
"""
)
RNG = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def compiled(module: spmd.Module) -> SymbolicExecutable:
    executable = spmd.compile(module)
    assert isinstance(executable, SymbolicExecutable)
    return executable


def run_blocks(text: str, arguments: list[Array]) -> list[Array]:
    """The global results of `text`, whose processes are given nothing but their blocks."""
    module = spmd.parse(text)
    sized = compiled(module).for_shapes([array.shape for array in arguments])
    blocks = [
        [
            partitioner.shard_array(array, layout, rank)
            for array, layout in zip(arguments, sized.in_shardings, strict=True)
        ]
        for rank in range(sized.grid.size)
    ]
    results = spmd.run_parallel(module, inputs=blocks, timeout=120)
    layouts = enumerate(sized.out_shardings)
    return [partitioner.join_blocks([result[index] for result in results], layout) for index, layout in layouts]


@pytest.mark.parametrize(("rows", "columns"), [(6, 8), (2, 3), (10, 1), (4, 0)])
def test_sizes_are_those_of_the_arguments(rows: int, columns: int) -> None:
    a, w = normal(rows, columns), normal(columns, 8)
    product, total = run_blocks(TANH, [a, w])
    np.testing.assert_allclose(product, np.tanh(a @ w), rtol=1e-5)
    np.testing.assert_allclose(total, a.sum(0), rtol=1e-5, atol=1e-6)


def test_one_executable_serves_every_size() -> None:
    executable = compiled(spmd.parse(TANH))
    first = executable.for_shapes([(6, 8), (8, 8)])
    assert executable.for_shapes([(6, 8), (8, 8)]) is first
    assert [str(type) for type in first.in_types] == ["tensor<3x8xf32>", "tensor<8x4xf32>"]
    assert executable.for_blocks([normal(3, 8), normal(8, 4)]) is first
    assert executable.for_blocks([normal(1, 8), normal(8, 4)]) is not first
    again = copy.deepcopy(executable)
    assert again.for_shapes([(6, 8), (8, 8)]).in_types == first.in_types


def test_a_grid_of_one_process_takes_whole_arrays() -> None:
    text = TANH.replace("= 4 : i32", "= 1 : i32").replace('["x"=2, "y"=2]', '["x"=1, "y"=1]')
    executable = compiled(spmd.parse(text))
    a, w = normal(3, 5), normal(5, 8)
    product, total = executable.unshard(*executable(*executable.shard(a, w)))
    np.testing.assert_allclose(product, np.tanh(a @ w), rtol=1e-5)
    np.testing.assert_allclose(total, a.sum(0), rtol=1e-5)


WRONG: dict[str, tuple[list[tuple[int, ...]], type[Exception], str]] = {
    "sizes that differ": ([(6, 8), (4, 8)], spmd.VerificationError, "dot_general"),
    "a rank": (
        [(6,), (8, 8)],
        spmd.ExecutionError,
        r"argument 0 of @main: tensor<\?x\?xf32> is needed, got shape \(6,\)",
    ),
    "a known size": ([(6, 8), (8, 9)], spmd.ExecutionError, r"argument 1 of @main: tensor<\?x8xf32> is needed"),
    "too few": ([(6, 8)], spmd.ExecutionError, "takes 2 arguments, got 1"),
}


@pytest.mark.parametrize("what", WRONG)
def test_arguments_that_do_not_fit_are_told(what: str) -> None:
    shapes, kind, words = WRONG[what]
    executable = compiled(spmd.parse(TANH))
    with pytest.raises(kind, match=words):
        executable.for_shapes(shapes)


def test_blocks_that_are_of_no_arrays_are_told() -> None:
    executable = compiled(spmd.parse(TANH))
    with pytest.raises(spmd.ExecutionError, match=r"\(3, 8\), \(8, 3\) are not blocks of common global arrays"):
        executable.for_blocks([normal(3, 8), normal(8, 3)])
    with pytest.raises(spmd.ExecutionError, match="arrays are needed, not callables"):
        executable.shard(lambda index: normal(3, 8)[index], normal(8, 8))


#: What a program of one argument `%a` does with its `%n` rows: the result's type, body, and value.
BODIES: dict[str, tuple[str, str, Any]] = {
    "broadcast": (
        "?x3xf32",
        """%s = stablehlo.concatenate %n1, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %r = stablehlo.dynamic_broadcast_in_dim %one, %s, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x3xf32>""",
        lambda a: np.ones((len(a), 3), np.float32),
    ),
    "iota": (
        "?xf32",
        "%r = stablehlo.dynamic_iota %n1, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>",
        lambda a: np.arange(len(a), dtype=np.float32),
    ),
    "reshape": (
        "?xf32",
        """%m = stablehlo.multiply %n1, %three : tensor<1xi32>
    %r = stablehlo.dynamic_reshape %a, %m : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<?xf32>""",
        lambda a: a.reshape(-1),
    ),
    "pad": (
        "?x?xf32",
        """%lo = stablehlo.concatenate %n1, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %no = stablehlo.constant dense<0> : tensor<2xi32>
    %r = stablehlo.dynamic_pad %a, %one, %lo, %no, %no
      : (tensor<?x3xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>""",
        lambda a: np.pad(a, ((len(a), 0), (3, 0)), constant_values=1),
    ),
    "slice": (
        "?x3xf32",
        """%c = stablehlo.constant dense<[1, 0]> : tensor<2xi32>
    %u = stablehlo.constant dense<1> : tensor<2xi32>
    %l = stablehlo.concatenate %n1, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %r = stablehlo.real_dynamic_slice %a, %c, %l, %u
      : (tensor<?x3xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x3xf32>""",
        lambda a: a[1:],
    ),
    "a loop": (
        "?x3xf32",
        """%i = stablehlo.constant dense<0> : tensor<i32>
    %r0:2 = stablehlo.while(%k = %i, %v = %a) : tensor<i32>, tensor<?x3xf32>
      cond { %p = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1> }
      do { %s = stablehlo.constant dense<1> : tensor<i32>
        %t = stablehlo.add %k, %s : tensor<i32>
        %w = stablehlo.add %v, %v : tensor<?x3xf32>
        stablehlo.return %t, %w : tensor<i32>, tensor<?x3xf32> }
    %r = stablehlo.abs %r0#1 : tensor<?x3xf32>""",
        lambda a: np.abs(a * 2 ** len(a)),
    ),
    "branches": (
        "?x3xf32",
        """%four = stablehlo.constant dense<4> : tensor<i32>
    %p = stablehlo.compare LT, %n, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %r = "stablehlo.if"(%p) ({ stablehlo.return %a : tensor<?x3xf32> }, {
      %w = stablehlo.negate %a : tensor<?x3xf32>
      stablehlo.return %w : tensor<?x3xf32> }) : (tensor<i1>) -> tensor<?x3xf32>""",
        lambda a: a if len(a) < 4 else -a,
    ),
    "a call": (
        "?x3xf32",
        "%r = func.call @twice(%n, %a) : (tensor<i32>, tensor<?x3xf32>) -> tensor<?x3xf32>",
        lambda a: a * len(a),
    ),
}


@pytest.mark.parametrize("rows", [2, 6])
@pytest.mark.parametrize("name", BODIES)
def test_ops_of_dynamic_shape_become_static(name: str, rows: int) -> None:
    type, body, value = BODIES[name]
    text = (
        HEADER
        + f"""
  func.func private @twice(%n: tensor<i32>, %a: tensor<?x3xf32>) -> tensor<?x3xf32> {{
    %c = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
    %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %three = stablehlo.constant dense<3> : tensor<1xi32>
    %s = stablehlo.concatenate %n1, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %b = stablehlo.dynamic_broadcast_in_dim %c, %s, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x3xf32>
    %r = stablehlo.multiply %a, %b : tensor<?x3xf32>
    return %r : tensor<?x3xf32>
  }}
  func.func @main(%a: tensor<?x3xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}) -> tensor<{type}> {{
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %three = stablehlo.constant dense<3> : tensor<1xi32>
    %n = stablehlo.get_dimension_size %a, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
    %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    {body}
    return %r : tensor<{type}>
  }}
}}
"""
    )
    a = normal(rows, 3)
    (result,) = run_blocks(text, [a])
    np.testing.assert_allclose(result, value(a), rtol=1e-5)


def test_an_assertion_of_shapes_is_told_as_it_is_written() -> None:
    text = TANH.replace(
        "    %0 = stablehlo.dot",
        """    %two = stablehlo.constant dense<2> : tensor<i32>
    %ok = stablehlo.compare GE, %n, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%ok, %n) {error_message = "got {0} rows", has_side_effect = true}
      : (tensor<i1>, tensor<i32>) -> ()
    %0 = stablehlo.dot""",
    )
    executable = compiled(spmd.parse(text))
    with pytest.raises(spmd.ExecutionError, match="got 1 rows"):
        executable.for_shapes([(1, 8), (8, 8)])
    sized = executable.for_shapes([(2, 8), (8, 8)])
    assert "shape_assertion" not in str(sized.module)
    a, w = normal(4, 3), normal(3, 8)
    np.testing.assert_allclose(run_blocks(text, [a, w])[0], np.tanh(a @ w), rtol=1e-5)


def test_what_jax_exports_with_symbolic_shapes_and_shardings() -> None:
    jax = pytest.importorskip("jax")
    from jax import export
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = abstract_mesh((2, 2), ("x", "y"))

    def function(a: Any, w: Any) -> Any:
        return jax.numpy.tanh(a @ w) * a.shape[0], jax.numpy.arange(a.shape[1]) + a.sum(0)

    rows, columns = export.symbolic_shape("n, m")
    sharded = [NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("x", None), (None, "y"))]
    arguments = [
        jax.ShapeDtypeStruct(shape, "float32", sharding=sharding)
        for shape, sharding in zip(((2 * rows, columns), (columns, 8)), sharded, strict=True)
    ]
    exported = export.export(jax.jit(function), platforms=["cpu"])(*arguments)
    module = spmd.parse(exported.serialize())
    executable = compiled(module)
    a, w = normal(6, 5), normal(5, 8)
    sized = executable.for_shapes([a.shape, w.shape])
    blocks = [
        [partitioner.shard_array(array, layout, rank) for array, layout in zip((a, w), sized.in_shardings, strict=True)]
        for rank in range(4)
    ]
    results = spmd.run_parallel(executable, inputs=blocks, timeout=120)
    for index, correct in enumerate(jax.jit(function)(a, w)):
        layout = sized.out_shardings[index]
        np.testing.assert_allclose(
            partitioner.join_blocks([result[index] for result in results], layout), correct, rtol=1e-5
        )
