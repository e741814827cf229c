"""A function is compiled anew where JAX's settings change what it means, as under jax.jit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import spmd

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import spmd.jax  # noqa: E402

ONE = {"processes": 1}


def x64() -> AbstractContextManager[None]:
    try:
        return jax.enable_x64(True)
    except AttributeError:  # JAX 0.10
        from jax.experimental import enable_x64

        return enable_x64()


CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "x64": x64,
    "precision": lambda: jax.default_matmul_precision("float32"),
    "threefry": lambda: jax.threefry_partitionable(not jax.config.jax_threefry_partitionable),
    "dtype promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "rank promotion": lambda: jax.numpy_rank_promotion("raise"),
}


@pytest.mark.parametrize("first", [True, False])
def test_64_bits_are_of_the_call(first: bool) -> None:
    step = spmd.jax.jit(lambda x: x / 3, axes=ONE)
    x = np.arange(4)
    for wide in (first, not first, first):
        if wide:
            with x64():
                assert step(x).dtype == np.float64
        else:
            assert step(x).dtype == np.float32


def test_random_numbers_are_those_of_the_setting() -> None:
    def draw(seed: Any) -> Any:
        return jax.random.normal(jax.random.key(seed), (5,))

    step, own = spmd.jax.jit(draw, axes=ONE), jax.jit(draw)
    seed, before = np.uint32(3), jax.config.jax_threefry_partitionable
    for partitionable in (before, not before, before):
        with jax.threefry_partitionable(partitionable):
            np.testing.assert_allclose(step(seed), own(seed), rtol=1e-6)


@pytest.mark.parametrize("name", CONTEXTS)
def test_each_setting_has_a_program_of_its_own(name: str) -> None:
    traced = 0

    def function(x: Any) -> Any:
        nonlocal traced
        traced += 1
        return x @ x

    step, x = spmd.jax.jit(function, axes=ONE), np.ones((2, 2), np.float32)
    step(x)
    once = traced
    for _ in range(2):
        with CONTEXTS[name]():
            step(x)
        step(x)
    assert traced == 2 * once


def test_strict_promotion_is_heeded_after_the_first_call() -> None:
    step = spmd.jax.jit(lambda x, y: x + y, axes=ONE)
    x, y = np.ones(2, np.float32), np.ones(2, np.int32)
    step(x, y)
    with jax.numpy_dtype_promotion("strict"), pytest.raises(ValueError, match="no available implicit dtype promotion"):
        step(x, y)
    np.testing.assert_array_equal(step(x, y), [2, 2])


def test_simulated_functions_heed_them_too() -> None:
    many = spmd.jax.simulate(lambda x: jnp.sin(x) / 3, axes={"processes": 2})
    x = np.arange(4).reshape(2, 2)
    assert many(x).dtype == np.float32
    with x64():
        assert many(x).dtype == np.float64
    assert many(x).dtype == np.float32


def masked(x: Any) -> Any:
    return jnp.where(x > 0, jnp.log(x), 0)


@pytest.mark.parametrize("processes", [1, 2])
def test_nan_in_a_result_is_an_error_that_names_its_primitive(processes: int) -> None:
    """Under jax_debug_nans; before and afterwards the program runs as ever."""
    run, x = runner(lambda x: jnp.sqrt(x + 1) * 2, processes), np.array([1, -9], np.float32)
    assert np.isnan(run(x)).any()
    with jax.debug_nans(True):
        with pytest.raises(FloatingPointError, match=r"test_settings.py:\d+: invalid value \(nan\) .* in sqrt"):
            run(x)
        run(np.abs(x))
    assert np.isnan(run(x)).any()


def test_infinity_in_a_result_is_one_under_its_own_setting() -> None:
    step, x = spmd.jax.jit(lambda x: 1 / jnp.exp(x), axes=ONE), np.array([-90, 1], np.float32)
    with jax.debug_nans(True):
        step(x)
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match=r"invalid value \(inf\) encountered in div"):
        step(x)


def test_nan_that_reaches_no_result_is_none() -> None:
    step = spmd.jax.jit(masked, axes=ONE)
    with jax.debug_nans(True):
        np.testing.assert_array_equal(step(np.array([-1, 1], np.float32)), [0, 0])


def test_infinity_that_was_written_is_not_blamed() -> None:
    """The maximum of rows begins with -inf; the sum of 1 and an infinite argument is what gives infinity."""
    step = spmd.jax.jit(lambda x: 1 + jnp.max(x, 1), axes=ONE)
    with jax.debug_infs(True):
        step(np.ones((3, 4), np.float32))
        with pytest.raises(FloatingPointError, match=r"invalid value \(inf\)"):
            step(np.full((3, 4), np.inf, np.float32))


def test_nan_among_the_arguments_is_said_to_be_there() -> None:
    step = spmd.jax.jit(lambda x: x.reshape(2, 1), axes=ONE)
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="none of its operations gave"):
        step(np.full(2, np.nan, np.float32))


def test_loops_name_the_primitive_within() -> None:
    def function(x: Any) -> Any:
        return jax.lax.scan(lambda total, each: (total + jnp.log(each), total), jnp.float32(0), x)

    step = spmd.jax.jit(function, axes=ONE)
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"invalid value \(nan\) encountered in log"):
        step(np.array([1, -1, 2], np.float32))


def test_narrow_floats_are_looked_through() -> None:
    step = spmd.jax.jit(lambda x: jnp.log(x), axes=ONE)
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="encountered in log"):
        step(np.array([1, -1], jnp.bfloat16))


def runner(function: Callable[[Any], Any], processes: int) -> Callable[[Any], Any]:
    """`function` as spmd.jax.jit runs it on one process, or spmd.jax.simulate on several."""
    if processes == 1:
        return spmd.jax.jit(function, axes=ONE)
    many = spmd.jax.simulate(function, axes={"processes": processes})
    return lambda x: many(np.stack([x] * processes))
