"""What functions of spmd.jax take as arrays: of other libraries, of JAX's typed meshes; and what they say of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import AbstractMesh, AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import spmd.jax  # noqa: E402
from tests.jax_meshes import abstract_mesh  # noqa: E402

MESH = abstract_mesh((4,), ("data",))


class Tensor:
    """An array of another library: nothing is known of it but what DLPack's protocol tells."""

    def __init__(self, array: Any, differentiated: bool = False) -> None:
        self.array, self.differentiated = array, differentiated

    def detach(self) -> Tensor:
        return type(self)(self.array)

    def __dlpack__(self, **options: Any) -> Any:
        if self.differentiated:
            raise BufferError("cannot export a tensor that requires gradients")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.sampled(11)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "bool", "bfloat16", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3)])
def test_tensors_are_taken_by_dlpack(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    if dtype == "bool":
        array: Any = np.asarray(values % 2 == 0)
    else:
        array = jnp.asarray(values, jnp.bfloat16) if dtype == "bfloat16" else values.astype(dtype)
    step = spmd.jax.jit(lambda tree: {"same": tree["x"], "more": tree["x"] + 1})
    expected = jax.jit(lambda x: (x, x + 1))(array)
    for tensor in (Tensor(array), Tensor(array, differentiated=True)):
        for _ in range(2):  # at the first call, and at those after
            results = step({"x": tensor})
            np.testing.assert_array_equal(results["same"], np.asarray(expected[0]))
            np.testing.assert_array_equal(results["more"], np.asarray(expected[1]))
            assert results["same"].dtype == expected[0].dtype


def leaves_of(seed: int) -> list[Any]:
    """Scalars and arrays of JAX, whose values differ by the seed."""
    scalars: list[Any] = [np.float32(seed), np.float64(seed), np.int64(seed), np.uint8(seed), np.bool_(seed % 2)]
    arrays = [jnp.full(3, seed), jnp.float32(seed), jnp.full((2, 1), seed, jnp.bfloat16), jnp.asarray(seed) * 2]
    return [*scalars, *arrays, seed, seed / 2, bool(seed % 2), complex(seed, 1), np.float16(seed), np.complex64(seed)]


def test_leaves_like_those_of_the_last_call_are_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    step, expected = (jit(lambda leaves: [leaf * 2 for leaf in leaves]) for jit in (spmd.jax.jit, jax.jit))
    step(leaves_of(2))

    def examined(*_: Any) -> Any:
        raise AssertionError("a leaf is examined")

    with monkeypatch.context() as patched:
        for module in ("step", "leaves"):
            patched.setattr(f"spmd.jax.{module}.form_of", examined)
        given = step(leaves_of(3))
    for mine, theirs in zip(given, expected(leaves_of(3)), strict=True):
        assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)


def test_leaves_of_the_same_types_and_other_forms_are_noticed() -> None:
    step = spmd.jax.jit(lambda x: x * np.float16(2))
    for x in (jnp.ones(3), jnp.ones(4), jnp.ones(4, jnp.int32), jnp.ones((4, 1)), jnp.asarray(1), jnp.asarray(1) + 1):
        result, expected = step(x), x * np.float16(2)
        assert result.dtype == expected.dtype and np.array_equal(result, expected)
    assert step(7) == 14
    with pytest.raises(spmd.UsageError, match=r"x is of type int: .*too large"):
        step(2**40)
    with jax.enable_x64(True):
        assert step(2**10) == 2**11
    x = jnp.ones(3)
    step(x)
    x.delete()
    with pytest.raises(spmd.UsageError, match="x is a jax array that is deleted"):
        step(x)


def test_a_tensor_elsewhere_is_explained() -> None:
    class Elsewhere(Tensor):
        def __dlpack_device__(self) -> Any:
            return 2, 0  # of CUDA

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("on another device")

    with pytest.raises(spmd.UsageError, match=r"x is a .*Elsewhere.*memory of the CPU"):
        spmd.jax.jit(lambda x: x)(Elsewhere(None))


@pytest.mark.parametrize("value", ["train", b"train"])
def test_a_string_suggests_static_arguments(value: Any) -> None:
    with pytest.raises(spmd.UsageError, match=r"mode is of type \w+, .* static_argnums= or static_argnames="):
        spmd.jax.jit(lambda x, mode: x)(1.0, mode=value)
    assert spmd.jax.jit(lambda x, mode: x, static_argnames="mode")(1.0, mode=value) == 1


def test_a_collective_of_the_global_view_suggests_shard_map() -> None:
    mapped = jax.shard_map(lambda v: v * 2, mesh=MESH, in_specs=P("data"), out_specs=P("data"))
    cut = jax.jit(lambda x: lax.psum(x, "data"), in_shardings=NamedSharding(MESH, P("data")))
    for function in (cut, lambda x: lax.psum(mapped(x), "data")):
        with pytest.raises(spmd.UsageError, match=r"names the axis data; .* inside of jax\.shard_map alone"):
            spmd.jax.jit(function).lower(np.zeros(8, np.float32))
    with pytest.raises(spmd.UsageError) as caught:
        spmd.jax.jit(lambda x: lax.psum(x, "data"), axes={"model": 1})(np.zeros(8, np.float32))
    assert "shard_map" not in str(caught.value)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_shardings_of_arguments_are_kept(kind: Any) -> None:
    """Typed ones are part of what is traced; a function without shardings of its own is laid out by them."""
    typed = AbstractMesh((4,), ("data",), axis_types=(kind,))
    struct = jax.ShapeDtypeStruct((8, 4), np.float32, sharding=NamedSharding(typed, P("data")))
    seen = []

    def function(x: Any) -> Any:
        seen.append(jax.typeof(x).sharding.spec)
        return jnp.sin(x)

    step = spmd.jax.jit(function)
    module = step.lower(struct)
    assert seen[-1] == (P("data", None) if kind is AxisType.Explicit else P(None, None))
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    simulated = spmd.simulate(module, spmd.ProcessGrid(1, 4))
    (blocks,) = simulated(x.reshape(4, 2, 4))
    np.testing.assert_allclose(blocks, np.sin(x).reshape(4, 2, 4), rtol=1e-6)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_whole_arguments_are_cut_by_in_shardings_of_either_kind_of_mesh(kind: Any) -> None:
    mesh = AbstractMesh((2, 2), ("data", "model"), axis_types=(kind, kind))
    rows, columns = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "model"))
    x, w = np.arange(32, dtype=np.float32).reshape(8, 4), np.arange(24, dtype=np.float32).reshape(4, 6)
    many = spmd.jax.simulate(jax.jit(lambda x, w: jnp.sin(x @ w), in_shardings=(rows, columns), out_shardings=rows))
    blocks = many(x, w)
    assert blocks.shape == (4, 4, 6)
    np.testing.assert_allclose(many.unshard(blocks), np.sin(x @ w), rtol=1e-5)


def test_an_array_of_a_typed_mesh_keeps_its_sharding() -> None:
    one = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(one, P("data")))
    step = spmd.jax.jit(lambda x: jax.sharding.reshard(x * 2, NamedSharding(one.abstract_mesh, P())))
    np.testing.assert_array_equal(step(x), np.arange(8) * 2)


def test_blocks_that_are_none_are_refused() -> None:
    make = spmd.jax.make_array_from_process_local_data
    one = NamedSharding(abstract_mesh((1,), ("data",)), P("data"))
    with pytest.raises(spmd.UsageError, match="takes a NamedSharding, got"):
        make(P("data"), np.zeros(3))
    with pytest.raises(spmd.UsageError, match="the mesh of data=4 has 4 devices, and there are 1 ranks"):
        make(NamedSharding(MESH, P("data")), np.zeros(3))
    with pytest.raises(spmd.UsageError, match="cuts 1 dimensions, and a block has 0"):
        make(one, np.float32(3))
    for shape in ((7,), (3, 1)):
        with pytest.raises(spmd.UsageError, match="global array of shape"):
            make(one, np.zeros(3), shape)
    given = make(one, {"x": np.zeros(3, np.float32)})["x"]
    assert repr(given).startswith("ProcessLocalArray(float32[3], ")
    assert spmd.jax.jit(lambda x: x + 1)(given).tolist() == [1, 1, 1]
    with pytest.raises(spmd.UsageError, match=r"x is the block of one process.*spmd\.jax\.jit"):
        spmd.jax.simulate(lambda x: x + 1)(given)
