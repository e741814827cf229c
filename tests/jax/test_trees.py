"""Trees, dtypes, weak types, keys and static arguments are what they are under jax.jit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import spmd.jax  # noqa: E402


@partial(jax.tree_util.register_dataclass, data_fields=["x", "rest"], meta_fields=["name"])
@dataclass
class RegisteredState:
    x: Any
    rest: Any
    name: str = "state"


class RegisteredPair(NamedTuple):
    first: Any
    second: Any


def same(function: Any, *args: Any, **kwargs: Any) -> None:
    """The function gives the same tree here as under jax.jit, the same types and elements."""
    mine, other = spmd.jax.jit(function)(*args, **kwargs), jax.jit(function)(*args, **kwargs)
    assert jax.tree.structure(mine) == jax.tree.structure(other)
    for first, second in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
        assert isinstance(first, np.ndarray)
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        np.testing.assert_allclose(first, np.asarray(second), rtol=1e-6)


ONES = np.ones(3, np.float32)
TREES = [
    {"w": ONES, "b": (ONES, None), "a": [], "n": {}},
    RegisteredPair(ONES, RegisteredPair(None, (ONES,))),
    RegisteredState(ONES, {"y": ONES}, "other"),
    [jnp.ones(3), ONES, 2, 2.5, True],
    (),
]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_trees_keep_their_structure(tree: Any) -> None:
    same(lambda tree: jax.tree.map(lambda leaf: leaf * 2, tree), tree)


DTYPES = [np.float64, np.int64, np.uint8, np.bool_, np.complex64, np.complex128, np.float16, ml_dtypes.bfloat16]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_are_those_of_jax_with_and_without_x64(dtype: type, x64: bool) -> None:
    with jax.enable_x64(x64):
        same(lambda x: (x, x + 1, x * 1.5), np.array([0, 1, 3]).astype(dtype))


@pytest.mark.parametrize("scalar", [1, 1.0, True, 1j, np.float32(1), np.int8(1), np.float64(1), jnp.float32(1)])
def test_scalars_promote_as_they_do_there(scalar: Any) -> None:
    same(lambda scalar, x: (scalar + x, scalar), scalar, np.array([1, 2], np.float16))


def test_arguments_by_name_and_unused_ones() -> None:
    same(lambda x, *, y, z=None: {"sum": x + y["a"]}, ONES, y={"a": ONES, "b": np.zeros(7)})


def test_typed_keys_go_in_and_come_out() -> None:
    def split(key: Any) -> Any:
        first, *others = jax.random.split(key, 3)
        return first, jnp.stack(others), jax.random.normal(first, (4,))

    for impl in ("threefry2x32", "rbg", "unsafe_rbg"):
        key = jax.random.key(7, impl=impl)
        first, others, draws = spmd.jax.jit(split)(key)
        expected = jax.jit(split)(key)
        assert jax.random.key_impl(first) == jax.random.key_impl(key) and others.shape == (2,)
        assert (jax.random.key_data(others) == jax.random.key_data(expected[1])).all()
        if impl == "threefry2x32":
            np.testing.assert_allclose(draws, expected[2], rtol=1e-5)
        assert spmd.jax.jit(lambda key: key)(first) == first


def test_derivatives_by_integers_are_float0() -> None:
    step = spmd.jax.jit(jax.grad(lambda x: (x * 2.0).sum(), allow_int=True))
    assert step(np.array([1, 2])).dtype == jax.dtypes.float0


def test_results_are_numpy_s_own_or_jax_s() -> None:
    assert isinstance(spmd.jax.jit(lambda x: x + 1, as_jax=True)(ONES), jax.Array)
    result = spmd.jax.jit(lambda x: x + 1)(ONES)
    result += 1  # the caller owns it
    assert (np.asarray(jnp.asarray(result)) == 3).all()


def test_a_decorator_compiles_once_for_each_form() -> None:
    traced = 0

    @spmd.jax.jit
    def double(x: Any) -> Any:
        """Twice x."""
        nonlocal traced
        traced += 1
        return jax.tree.map(lambda leaf: 2 * leaf, x)

    for x in (ONES, ONES, jnp.ones(3), np.ones(3), np.ones(4), ONES, [ONES], {"a": ONES}, [ONES], [None], None):
        jax.tree.map(np.testing.assert_array_equal, double(x), jax.tree.map(lambda leaf: 2 * leaf, x))
    assert traced == 6
    assert double.__doc__ == "Twice x." and "double" in repr(double)


def test_static_arguments_are_values_of_python() -> None:
    def power(x: Any, times: int, *, mode: str = "sum") -> Any:
        return getattr(jnp, mode)(x**times) if times else mode

    for options in ({"static_argnums": 1, "static_argnames": "mode"}, {"static_argnames": ("times", "mode")}):
        step = spmd.jax.jit(power, **options)
        x = np.array([1, 2], np.float32)
        assert [step(x, 2), step(x, times=3), step(x, 2, mode="max"), step(2 * x, 2)] == [5, 9, 4, 20]
    jitted = jax.jit(power, static_argnums=1, static_argnames="mode")
    for options in ({}, {"static_argnums": 1}, {"static_argnums": 1, "static_argnames": "mode"}):
        assert spmd.jax.jit(jitted, **options)(x, 2, mode="min") == 1


def test_results_take_the_memory_of_donated_arguments() -> None:
    step = spmd.jax.jit(lambda k, p, g: ({"w": p["w"] - k * g}, k), donate_argnums=(1,), static_argnums=0)
    p, g = {"w": np.ones(300, np.float32)}, np.ones(300, np.float32)
    (updated, _) = step(2, p, g)
    assert (
        updated["w"].ctypes.data == p["w"].ctypes.data
        and updated["w"].tolist() == [-1] * 300
        and g.tolist() == [1] * 300
    )
    updated, _ = step(2, {"w": jnp.ones(300)}, g)  # JAX's own arrays are not written over
    assert updated["w"].tolist() == [-1] * 300


def test_an_argument_that_is_donated_and_given_twice_is_copied() -> None:
    x = np.ones(3, np.float32)
    assert spmd.jax.jit(lambda x, y: x + y, donate_argnums=(0,))(x, x).tolist() == [2, 2, 2]
    assert x.tolist() == [1, 1, 1]


def test_donated_arguments_may_come_by_name_or_be_left_to_their_defaults() -> None:
    step = spmd.jax.jit(lambda x, y=None: x + 1 if y is None else x + y, donate_argnums=(0, 1))
    assert step(ONES.copy()).tolist() == step(ONES.copy(), y=ONES.copy()).tolist() == [2] * 3
    x = np.ones(300, np.float32)
    assert step(x=x).ctypes.data == x.ctypes.data


class Scaled:
    scale = 3

    @spmd.jax.jit
    def called_on(self, x: Any) -> Any:
        return x * 2 if self is None else x

    @partial(spmd.jax.jit, static_argnums=0)
    def scaled(self, x: Any) -> Any:
        return x * self.scale

    def __call__(self, x: Any, times: float = 2.0) -> Any:
        return x * times

    def plain(self, x: Any) -> Any:
        return x * self.scale


def test_what_can_be_called_is_a_function() -> None:
    object = Scaled()
    assert object.scaled(ONES).tolist() == object.scaled(ONES).tolist() == [3] * 3
    assert Scaled.called_on(None, ONES).tolist() == [2] * 3
    with pytest.raises(spmd.UsageError, match="self is of type Scaled"):
        object.called_on(ONES)
    for function in (object.plain, object, partial(object, times=3.0), jax.jit(object.plain), jax.vmap(object.plain)):
        same(function, ONES)


LAYOUTS = [
    np.arange(12, dtype=np.float32).reshape(3, 4).T[::2],
    np.arange(4, dtype=np.int32)[::-1],
    np.zeros((0, 3), np.float32),
    np.array(3, np.uint8),
    np.broadcast_to(np.float32(2), (2, 2)),
    np.ones(3, np.float32).view(np.recarray),
    np.zeros(3, jax.dtypes.float0),
    jax.device_put(ONES, jax.NamedSharding(jax.make_mesh((1,), ("d",)), jax.P("d"))),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("array", LAYOUTS, ids=lambda array: f"{array.dtype} {array.shape}")
def test_arrays_are_taken_however_they_lie(array: Any) -> None:
    if array.dtype == jax.dtypes.float0:
        assert spmd.jax.jit(lambda x: x)(array).dtype == array.dtype
    else:
        same(lambda x: (x + x, x.sum()), array)


def test_arguments_are_donated_by_name_as_well() -> None:
    def add(x: Any, *, tree: Any) -> Any:
        return x + tree["a"], tree["a"] * 2

    for names in ("tree", ["x", "tree"]):
        x, a = np.ones(300, np.float32), np.ones(300, np.float32)
        total, double = spmd.jax.jit(add, donate_argnames=names)(x, tree={"a": a})
        assert total.tolist() == double.tolist() == [2] * 300
        assert a.ctypes.data in (total.ctypes.data, double.ctypes.data)
        assert ("x" in names) == (x.tolist() == [2] * 300)


@pytest.mark.parametrize("number", [0, 3, -4])
def test_what_is_no_array_is_not_donated(number: int) -> None:
    with pytest.raises(spmd.UsageError, match="donate_argnums has"):
        spmd.jax.jit(lambda k, x, y: x + y, donate_argnums=number, static_argnums=0)(1, ONES, ONES)


def test_consts_and_closures_are_part_of_the_program() -> None:
    table, key = jnp.arange(4.0), jax.random.key(1)
    same(lambda x: table[:3] + x + jax.random.uniform(key, (3,)) + np.arange(3), ONES)


LEAKED: list[Any] = []
DELETED = jnp.ones(3)
DELETED.delete()

BAD: list[tuple[Any, dict[str, Any], tuple[Any, ...], str]] = [
    (lambda x: jax.lax.psum(x, "data"), {}, (ONES,), r"py:\d+: .* the axis data; the axes here are processes \(1\)"),
    (lambda x: x, {"axes": {"data": 4}}, (ONES,), "data=4 make 4 processes, and there are 1 ranks; .* -n 4`"),
    (lambda x, y: x, {}, (ONES, {"a": object()}), r"y\['a'\] is of type object: JAX makes no array of it"),
    (lambda *xs: xs, {}, (ONES, "text"), "argument 1 is of type str"),
    (lambda x: x, {}, (2**40,), "x is of type int: .*too large"),
    (lambda x: x, {}, (np.arange(3, dtype=">f4"),), "x is of type ndarray of >f4: JAX makes no array of it"),
    (lambda x: x, {}, (np.array(["a"]),), "x is of type ndarray of <U1"),
    (lambda x: x, {}, (DELETED,), "x is a jax array that is deleted"),
    (lambda x: x, {}, (jax.ShapeDtypeStruct((3,), np.float32),), r"ShapeDtypeStruct, float32\[3\], holds no elements"),
    (lambda x: LEAKED.append(x) or x + LEAKED[0], {}, (np.arange(3),), "a value that JAX traced in another call"),
    (lambda x: jax.lax.ppermute(x, "processes", [(0, 5)]), {}, (ONES,), r"\.py:\d+: ppermute .* pair \(0, 5\)"),
    (lambda x: x, {}, (np.ma.masked_array([1.0], [True]),), "x is a masked array"),
    (lambda x, y: x, {"static_argnums": 1}, (ONES, [1]), "static argument 'y' is of type list, which cannot be hashed"),
    (lambda x: x, {"donate_argnums": "x"}, (ONES,), "must be an integer or a sequence of integers, got 'x'"),
    (lambda x: x, {"donate_argnames": 1}, (ONES,), "donate_argnames must be a name or a sequence of names, got 1"),
    (lambda x: x, {"donate_argnames": "z"}, (ONES,), "donate_argnames has 'z', which is no parameter"),
    (lambda x, n: x, {"donate_argnames": "n", "static_argnums": 1}, (ONES, 1), "donate_argnames has 'n', .* static"),
    (lambda x: x, {"as_jax": "yes"}, (ONES,), "as_jax must be True or False, got 'yes'"),
    (lambda x: x, {"in_shardings": "auto"}, (ONES,), "in_shardings is an option of jax.jit"),
    (lambda x: x, {"static_argnums": 3}, (ONES,), "static_argnums has 3, and the function takes 1 arguments"),
    (lambda x, n: x, {"static_argnums": -3}, (ONES, 1), "static_argnums has -3, and the function takes 2 arguments"),
    (lambda x: x, {"static_argnames": 3}, (ONES,), "static_argnames must be a name or a sequence of names, got 3"),
    (lambda x: x, {"static_argnames": "z"}, (ONES,), "static_argnames has 'z', which is no parameter"),
    (lambda x: x, {"axes": {"data": 0}}, (ONES,), "axes must map names to positive integers, got 'data': 0"),
    (lambda x: x, {"axes": ["data"]}, (ONES,), "axes must map names to sizes"),
    (lambda x: x, {"axes": {"a": 1}, "grid": spmd.ProcessGrid(1, 1)}, (ONES,), "axes or a grid, not both"),
    (lambda x: x, {"nonsense": 1}, (ONES,), "unknown option 'nonsense'"),
    (3, {}, (ONES,), "spmd.jax.jit takes a function, got int"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "options", "args", "message"), BAD)
def test_bad_use_gets_a_sentence(function: Any, options: dict[str, Any], args: tuple[Any, ...], message: str) -> None:
    if not LEAKED:
        spmd.jax.jit(lambda x: LEAKED.append(x) or x)(ONES)
    with pytest.raises(spmd.UsageError, match=message):
        spmd.jax.jit(function, **options)(*args)


def test_bad_use_of_a_simulation_gets_a_sentence() -> None:
    many = spmd.jax.simulate(lambda x: jax.lax.psum(x, "data"), axes={"data": 4})
    with pytest.raises(spmd.UsageError, match=r"x is float32\[3\]: it needs a leading axis of all 4 processes"):
        many(ONES)
    assert many(ONES[:1]).tolist() == [4.0] * 4
    assert many(2.0).tolist() == [8.0] * 4


def test_a_step_is_simulated_and_exported_as_what_it_was_made_of() -> None:
    @spmd.jax.jit(static_argnums=0)
    def step(times: int, x: Any) -> Any:
        return jax.lax.psum(x, "processes") * times

    assert spmd.jax.simulate(step, axes={"processes": 3})(2, ONES).tolist() == [6] * 3
    assert len(spmd.jax.export(step, 2, ONES, axes={"processes": 3}).function("main").type.inputs) == 1
    with pytest.raises(spmd.UsageError, match="x is a value that JAX is tracing"):
        jax.grad(lambda x: step(2, x).sum())(ONES)


def test_a_grid_may_stand_for_the_axis() -> None:
    module = spmd.jax.jit(lambda x: jax.lax.psum(x, "processes"), grid=spmd.ProcessGrid(3, 2)).lower(ONES)
    (result,) = spmd.run_parallel(module, inputs=[[ONES]] * 6)[0]
    assert result.tolist() == [6, 6, 6]
