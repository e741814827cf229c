"""Files that `jax.export` writes are loaded, and compute what the function does."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import spmd
from spmd.artifacts.jax_export import read_exported
from spmd.syntax import difference

Abstract = jax.ShapeDtypeStruct


def layer(parameters: Any, x: Any, *, scale: Any) -> Any:
    hidden = jnp.tanh(x @ parameters["w"] + parameters["b"][0]) * scale
    return {"h": hidden, "s": (hidden.sum(), None)}


PARAMETERS = {"w": np.float32(np.arange(12).reshape(4, 3) / 10), "b": [np.float32([1, -1, 0.5]), np.int8([3, 4])]}
X = np.float32(np.arange(8).reshape(2, 4) / 7)


def abstract(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: Abstract(np.shape(leaf), np.asarray(leaf).dtype), tree)


def written(function: Callable[..., Any], path: Path, *args: Any, order: int = 0, **kwargs: Any) -> export.Exported:
    """`function` exported to `path`, at the shapes of the arguments."""
    exported = export.export(jax.jit(function), **kwargs)(*args)
    path.write_bytes(exported.serialize(vjp_order=order))
    return exported


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file whose name says nothing."""
    return tmp_path / "program"


def test_a_function_of_trees_takes_all_its_leaves(file: Path) -> None:
    """An argument that the function does not use is taken all the same; the module itself leaves it out."""
    exported = export.export(jax.jit(layer))(abstract(PARAMETERS), abstract(X), scale=abstract(np.float32(2)))
    file.write_bytes(exported.serialize())
    module = spmd.load(file)
    leaves = jax.tree.leaves(((PARAMETERS, X), {"scale": np.float32(2)}))
    got = spmd.compile(module)(*leaves)
    for mine, jaxs in zip(got, jax.tree.leaves(layer(PARAMETERS, X, scale=np.float32(2))), strict=True):
        np.testing.assert_allclose(mine, jaxs, rtol=1e-6)
    names = [argument.name_hint for argument in module.function("main").arguments]
    assert names == ["args_0_b_0", "args_0_b_1", "args_0_w", "args_1", "scale"]


def test_what_is_known_of_the_function(file: Path) -> None:
    exported = written(lambda p, x: layer(p, x, scale=x[0, 0]), file, abstract(PARAMETERS), abstract(X))
    exported_file = read_exported(file.read_bytes())
    assert str(exported_file.in_tree) == "(({'b': [*, *], 'w': *}, *), {})"
    assert str(exported_file.out_tree) == "{'h': *, 's': (*, None)}"
    assert exported_file.argument_names == ["args[0]['b'][0]", "args[0]['b'][1]", "args[0]['w']", "args[1]"]
    assert exported_file.result_names == ["result['h']", "result['s'][0]"]
    assert [str(aval) for aval in exported_file.in_avals] == ["f32[3]", "i8[2]", "f32[4,3]", "f32[2,4]"]
    assert exported_file.kept == exported.module_kept_var_idx == (0, 2, 3)
    assert (exported_file.platforms, exported_file.devices, exported_file.calling_convention) == (
        exported.platforms, exported.nr_devices, exported.calling_convention_version,
    )  # fmt: skip
    assert exported_file.disabled_checks == exported_file.effects == ()


def test_the_module_is_the_one_that_was_exported(file: Path) -> None:
    exported = written(lambda x: jnp.cumsum(jnp.sort(x)), file, Abstract((7,), "float32"))
    assert difference(spmd.load(file), spmd.parse(exported.mlir_module())) is None


def test_gradients_are_of_the_orders_that_were_written(file: Path) -> None:
    def square(x: Any) -> Any:
        return jnp.sum(x * x * x)

    written(square, file, Abstract((3,), "float32"), order=2)
    x, one = np.float32([1, 2, 3]), np.float32(1)
    (gradient,) = spmd.compile(spmd.load(file, vjp=1))(x, one)
    np.testing.assert_allclose(gradient, 3 * x * x, rtol=1e-6)
    second = spmd.compile(spmd.load(file, vjp=2))(x, one, np.float32([1, 0, 0]))
    np.testing.assert_allclose(second[0], [6, 0, 0], rtol=1e-6)
    with pytest.raises(spmd.UsageError, match="no gradient of order 3"):
        spmd.load(file, vjp=3)


def test_symbolic_shapes_are_the_arguments_own(file: Path) -> None:
    rows, columns = export.symbolic_shape("b, 2*c")
    exported = written(lambda x: jnp.sum(x, 0) + x.shape[0] * x.shape[1], file, Abstract((rows, columns), "float32"))
    module = spmd.load(file)
    assert str(read_exported(file.read_bytes()).in_avals[0]) == "f32[b,2*c]"
    assert exported.in_avals[0].shape[0] == rows
    program = spmd.compile(module)
    for shape in ((1, 2), (3, 4), (5, 6)):
        x = np.float32(np.random.default_rng(0).normal(size=shape))
        np.testing.assert_allclose(program(x)[0], x.sum(0) + shape[0] * shape[1], rtol=1e-5)


def test_of_several_platforms_this_one_runs(file: Path) -> None:
    def which(x: Any) -> Any:
        return jax.lax.platform_dependent(x, cuda=lambda x: x + 2, tpu=lambda x: x + 3, cpu=lambda x: x + 1)

    written(which, file, Abstract((2,), "float32"), platforms=("cuda", "cpu", "tpu"))
    module = spmd.load(file)
    assert len(module.function("main").arguments) == 1
    assert spmd.compile(module)(np.zeros(2, np.float32))[0].tolist() == [1, 1]


def test_what_other_platforms_call_need_not_be_known(file: Path) -> None:
    written(lambda x: jnp.linalg.eigvalsh(x @ x.T), file, Abstract((4, 4), "float32"), platforms=("cuda", "cpu"))
    x = np.float32(np.random.default_rng(0).normal(size=(4, 4)))
    (got,) = spmd.compile(spmd.load(file))(x)
    np.testing.assert_allclose(got, np.linalg.eigvalsh(x @ x.T), rtol=1e-4, atol=1e-4)


def test_a_sharded_function_runs_on_its_mesh(file: Path) -> None:
    mesh = jax.sharding.AbstractMesh((2,), ("x",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("x"))
    function = jax.jit(lambda x: x @ x.T, in_shardings=rows, out_shardings=rows)
    exported = export.export(function)(Abstract((4, 4), "float32"))
    file.write_bytes(exported.serialize())
    exported_file = read_exported(file.read_bytes())
    assert (
        exported_file.devices == 2
        and exported_file.in_shardings[0] is not None
        and exported_file.in_shardings[0].text == "[x] over (x=2)"
    )
    x = np.float32(np.arange(16).reshape(4, 4))
    grid = spmd.ProcessGrid(1, 2)
    parts = spmd.run_parallel(spmd.load(file), grid, [[x[:2]], [x[2:]]])
    np.testing.assert_allclose(np.concatenate([part[0] for part in parts]), x @ x.T, rtol=1e-6)


DTYPES = ["bool", "int4", "uint8", "int64", "float16", "bfloat16", "float8_e4m3fn", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kind_of_element(dtype: str, file: Path) -> None:
    with jax.enable_x64(True):
        written(lambda x: (x[::-1], jnp.zeros_like(x)), file, Abstract((3,), dtype))
    x = np.array([0, 1, 1]).astype(jnp.dtype(dtype))
    got = spmd.compile(spmd.load(file))(x)
    assert got[0].dtype == x.dtype and got[0].tolist() == x[::-1].tolist()


def test_keys_of_random_numbers_are_their_words(file: Path) -> None:
    written(lambda key: jax.random.uniform(key, (3,)), file, jax.eval_shape(lambda: jax.random.key(0)))
    (got,) = spmd.compile(spmd.load(file))(np.asarray(jax.random.key_data(jax.random.key(7))))
    np.testing.assert_array_equal(got, jax.random.uniform(jax.random.key(7), (3,)))


def test_info_tells_what_a_file_holds(file: Path) -> None:
    written(lambda p, x: layer(p, x, scale=x[0, 0]), file, abstract(PARAMETERS), abstract(X), order=1)
    command = [sys.executable, "-m", "launch", "info", str(file)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for words in (
        "file of jax.export", "args[0]['b'][1]: i8[2]  (not used)", "StableHLO_v1.", "1 stablehlo.tanh",
        "gradients           of order 1", "@main(tensor<3xf32>, tensor<2xi8>, tensor<4x3xf32>, tensor<2x4xf32>)",
    ):  # fmt: skip
        assert words in shown


def test_what_is_no_such_file_is_told_with_its_place(file: Path) -> None:
    written(lambda x: x + 1, file, Abstract((3,), "float32"))
    data = bytearray(file.read_bytes())
    file.write_bytes(data[:900])
    with pytest.raises(spmd.ParseError, match=r"program: byte \d+ \(flatbuffer\): "):
        spmd.load(file)
    plain = spmd.parse("func.func @main() { return }")
    spmd.save(plain, file)
    with pytest.raises(spmd.UsageError, match=r"vjp needs a file of jax\.export"):
        spmd.load(file, vjp=1)
